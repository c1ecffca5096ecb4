"""Quality and cost of a cascade under many settings."""

import argparse
import warnings
from collections.abc import Sequence
from typing import IO

from pyterrier_cascade.cli import arguments

HELP = "measure a cascade under many settings of alpha, from scores that are computed once"
EXAMPLE = 'my-cascade --candidates dev.tsv --qrels dev.qrels --measures "AP P@1" --max-cost 0.6'
OURS = ("RelativeCost", "RelativeTokenCost", "Survival")
PLAN = ("plan", "batch_size", "rounding", "exited")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("model", metavar="MODEL", help="a cascade, or a trace, which needs no candidates")
    parser.add_argument("--qrels", metavar="FILE", help="TREC qrels; those of the --dataset by default")
    parser.add_argument(
        "--measures", nargs="+", default=["AP"], metavar="MEASURE", help="such as AP P@1; AP by default"
    )
    parser.add_argument("--alphas", nargs="+", metavar="ALPHA", help="such as 0.3 0.6,0.4,0,0; a grid by default")
    parser.add_argument("--trace", metavar="FOLDER", help="keep the scores there; what is there is not computed again")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--pareto", action="store_true", help="print the settings that no other beats")
    one.add_argument("--max-cost", type=float, metavar="SHARE", help="print the best setting that costs no more")
    one.add_argument("--max-loss", type=float, metavar="VALUE", help="print the cheapest setting that loses no more")
    arguments.settings(parser, "the cascade")
    arguments.candidates(parser)


def run(options: argparse.Namespace, out: IO[str]) -> None:
    """Writes a table of settings, measures and costs."""
    from pyterrier_cascade.cli import data

    measures = [measure(name) for given in options.measures for name in given.split()]
    alphas = None if options.alphas is None else [alpha(text) for text in options.alphas]
    judged = _qrels(options)
    trace, plan, qids = _traced(options)
    asked = judged["qid"].isin(qids)
    if not asked.all() and asked.any():
        n_judged = judged["qid"].nunique()
        warnings.warn(
            f"{n_judged - judged['qid'][asked].nunique()} of {n_judged} judged questions have no candidates here and "
            "are not measured",
            stacklevel=1,
        )
        judged = judged[asked]
    sweep = trace.sweep(judged, measures, alphas, **plan)
    frame = sweep.frame
    if options.pareto:
        frame = sweep.pareto()
    elif options.max_cost is not None or options.max_loss is not None:
        frame = sweep.best(max_cost=options.max_cost, max_loss=options.max_loss).to_frame().T
    data.write_table(frame, out)


def measure(name: str):
    """Returns the measure of a name: one of ir-measures, or of ours."""
    import ir_measures

    from pyterrier_cascade import measures

    ours, _, cutoff = name.partition("@")
    try:
        if ours in OURS:
            found = getattr(measures, ours)
            found = found @ int(cutoff) if cutoff else found
        else:
            found = ir_measures.parse_measure(name)
    except (NameError, ValueError, SyntaxError) as error:
        raise ValueError(f"--measures {name}: {error}") from error
    if lacking := [name for name, of in found.SUPPORTED_PARAMS.items() if of.required and name not in found.params]:
        raise ValueError(f"--measures {name}: it needs a {lacking[0]}, as in {name}@10")
    return found


def alpha(text: str) -> float | tuple[float, ...]:
    """Returns a setting of alpha: a number for all heads, or one for each with commas between."""
    from pyterrier_cascade.cli import settings

    try:
        return settings.value(text, float | Sequence[float])
    except ValueError:
        raise ValueError(f"--alphas {text}: give a number, or one for each head with commas between") from None


def _qrels(options: argparse.Namespace):
    from pyterrier_cascade.cli import data

    if options.qrels:
        return data.qrels(options.qrels)
    if not options.dataset:
        raise ValueError("no judgements; give --qrels, or a --dataset that has them")
    return data.dataset(options.dataset, options.folder).get_qrels()


def _traced(options: argparse.Namespace):
    """Returns the trace, what it is swept with besides alpha, and the questions that are meant."""
    from pathlib import Path

    import pandas as pd

    from pyterrier_cascade import Trace
    from pyterrier_cascade.cli import candidates, models, settings

    if (Path(options.model) / models.ARTIFACT).is_file():
        if options.run or options.candidates or options.trace:
            raise ValueError(f"{options.model!r} is a trace, which has its candidates; leave them out")
        known = {name: hint for name, hint in settings.declared(Trace.sweep).items() if name in PLAN}
        trace = Trace(options.model)
        return trace, settings.parsed(options.settings, known, "--with"), trace.qids
    kind = models.kind_of(options.model)
    if kind not in ("cascade", "sequential"):
        raise ValueError(f"{options.model!r} is a {kind}; only a cascade has settings to sweep")
    cascade = models.load(options.model, kind, options.settings, skip=["alpha", "counts"], verbose=not options.quiet)
    blocks = list(candidates.read(options, cascade.text_field))
    if not blocks:
        raise ValueError("there are no candidates to score")
    given = pd.concat(blocks, ignore_index=True)
    return cascade.trace(given, options.trace), {name: getattr(cascade, name) for name in PLAN}, given["qid"].unique()
