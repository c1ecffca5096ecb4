"""Quality and cost of a cascade under many settings."""

import argparse
from collections.abc import Sequence
from typing import IO, Any

from pyterrier_cascade.cli import arguments

HELP = "measure a cascade under many settings of alpha, from scores that are computed once"
EXAMPLE = 'my-cascade --candidates dev.tsv --qrels dev.qrels --measures "AP P@1" --max-cost 0.6'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("model", metavar="MODEL", help="a cascade, or a trace, which needs no candidates")
    parser.add_argument("--qrels", metavar="FILE", help="TREC qrels; those of the --dataset by default")
    parser.add_argument(
        "--measures", nargs="+", default=["AP"], metavar="MEASURE", help="such as AP P@1; AP by default"
    )
    parser.add_argument("--alphas", nargs="+", metavar="ALPHA", help="such as 0.3 0.6,0.4,0,0; a grid by default")
    parser.add_argument("--trace", metavar="FOLDER", help="keep the scores there, and use the scores that are there")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--pareto", action="store_true", help="print the settings that no other beats")
    one.add_argument("--max-cost", type=float, metavar="SHARE", help="print the best setting that costs no more")
    one.add_argument("--max-loss", type=float, metavar="VALUE", help="print the cheapest setting that loses no more")
    arguments.add_settings(parser, "the cascade")
    arguments.add_candidates(parser)


def run(options: argparse.Namespace, out: IO[str]) -> None:
    """Writes a table of settings, measures and costs."""
    from pyterrier_cascade.checks import warn_user
    from pyterrier_cascade.cli import data
    from pyterrier_cascade.measures.names import parse_measures

    measures = parse_measures(name for given in options.measures for name in given.split())
    alphas = None if options.alphas is None else [alpha(text) for text in options.alphas]
    judged = _qrels(options)
    trace, policy, qids = _traced(options)
    asked = judged["qid"].isin(qids)
    if not asked.all() and asked.any():
        n_judged = judged["qid"].nunique()
        n_unasked = n_judged - judged["qid"][asked].nunique()
        warn_user(f"{n_unasked} of {n_judged} judged questions have no candidates here and are not measured")
        judged = judged[asked]
    sweep = trace.sweep(judged, measures, alphas, **policy)
    frame = sweep.frame
    if options.pareto:
        frame = sweep.pareto()
    elif options.max_cost is not None or options.max_loss is not None:
        frame = sweep.best(max_cost=options.max_cost, max_loss=options.max_loss).to_frame().T
    data.write_table(frame, out)


def alpha(text: str) -> float | tuple[float, ...]:
    """Returns a setting of alpha: a number for all heads, or one for each with commas between."""
    from pyterrier_cascade.cli import settings

    try:
        return settings.value(text, float | Sequence[float])
    except ValueError:
        raise ValueError(f"--alphas {text}: give a number, or one for each head with commas between") from None


def _qrels(options: argparse.Namespace):
    from pyterrier_cascade.cli import data
    from pyterrier_cascade.text_files import read_qrels

    if options.qrels:
        return read_qrels(options.qrels)
    if not options.dataset:
        raise ValueError("no judgements; give --qrels, or a --dataset that has them")
    return data.dataset(options.dataset, options.folder).get_qrels()


def _traced(options: argparse.Namespace) -> tuple[Any, dict[str, Any], Any]:
    """Returns the trace, the settings of its policy that stay the same, and the ids of the questions to measure."""
    from dataclasses import asdict, fields
    from pathlib import Path

    import pandas as pd

    from pyterrier_cascade import Trace
    from pyterrier_cascade.cli import candidates, models, settings
    from pyterrier_cascade.early_exit.policy import Policy
    from pyterrier_cascade.early_exit.ranker import EarlyExitRanker
    from pyterrier_cascade.early_exit.trace import META

    # A sweep tries many values of the settings that drop candidates.
    swept = {one.name for one in fields(Policy) if one.metadata}
    if (Path(options.model) / META).is_file():
        if options.run or options.candidates or options.trace:
            raise ValueError(f"{options.model!r} is a trace, which has its candidates; leave them out")
        known = settings.declared(Policy, skip=settings.ELSEWHERE | swept)
        trace = Trace(options.model)
        return trace, settings.parsed(options.settings, known, "--with"), trace.qids
    found = models.held_by(options.model)
    if found is None or not issubclass(found.cls, EarlyExitRanker):
        held = "an encoder" if found is None else f"a {found.name}"
        raise ValueError(f"{options.model!r} holds {held}; only a cascade has settings to sweep")
    cascade = models.load(options.model, found, options.settings, skip=swept, verbose=not options.quiet)
    blocks = list(candidates.read(options, cascade.text_field))
    if not blocks:
        raise ValueError("there are no candidates to score")
    given = pd.concat(blocks, ignore_index=True)
    return cascade.trace(given, options.trace), asdict(cascade.policy), given["qid"].unique()
