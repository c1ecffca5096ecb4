"""Reranking a run or a table of candidates."""

import argparse
from typing import IO, Any

from pyterrier_cascade import registry
from pyterrier_cascade.cli import arguments

HELP = "rerank a TREC run or a TSV file of candidates"
EXAMPLE = "my-cascade --run bm25.run --topics topics.tsv --docs docs.tsv --with alpha=0.4 > reranked.run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("model", metavar="MODEL", help="the folder of a ranker, or its name on the Hub")
    parser.add_argument(
        "--kind",
        choices=[one.command for one in registry.RERANKERS],
        help="the kind of the ranker; only an encoder without a classifier needs it",
    )
    parser.add_argument("--cache", metavar="FOLDER", help="a document cache of this DC-BERT; no texts are needed then")
    arguments.add_settings(parser, "the ranker")
    parser.add_argument("--format", choices=("trec", "tsv"), default="trec", help="of the output; trec by default")
    parser.add_argument("--tag", default="pyterrier_cascade", help="the name of the run in a TREC run")
    arguments.add_candidates(parser)


def run(options: argparse.Namespace, out: IO[str]) -> None:
    """Writes the candidates of each query with new scores and ranks, after all of them were read and checked."""
    import pyterrier as pt

    from pyterrier_cascade import frames
    from pyterrier_cascade.cli import candidates, data

    if options.tag.split() != [options.tag]:
        raise ValueError(f"--tag {options.tag!r}: give one word")
    ranker, field = _cached(options) if options.cache else _uncached(options)
    more = [name for name in ("exit_layer", "probability") if name in ranker.new_columns()]
    columns = ["qid", "docno", "rank", "score", *more]

    def check(frame: Any) -> None:
        frames.validate(frame, context=ranker, text_field=field)
        if options.format == "trec":
            data.check_run_names(frame)
        if options.cache:
            ranker.check_held(frame)

    blocks = candidates.read(options, field, check)
    if options.format == "tsv":
        out.write("\t".join(columns) + "\n")
    total = None if options.quiet else candidates.count(options)
    with pt.tqdm(total=total, desc="reranking", unit=" candidates", disable=options.quiet) as bar:
        for frame in blocks:
            results = ranker(frame)
            if options.format == "tsv":
                data.write_table(results[columns], out, header=False)
            else:
                data.write_run(results, out, options.tag)
            out.flush()
            bar.update(len(frame))


def _uncached(options: argparse.Namespace) -> tuple[Any, str]:
    """Returns the ranker, and the column with the text that it reads."""
    from pyterrier_cascade.cli import models

    found = _found(options)
    if found is None:
        raise ValueError(
            f"{options.model!r} is an encoder without a head, whose scores would mean nothing: train a ranker on it, "
            "or give --kind dcbert --with interaction=late, which needs no training"
        )
    ranker = models.load(options.model, found, options.settings)
    return ranker, ranker.text_field


def _cached(options: argparse.Namespace) -> tuple[Any, str | None]:
    """Returns the ranker over a cache, and the column with the text of missing documents if it reads them.

    The settings are those of :class:`~pyterrier_cascade.CachedRanker`, and those that make a DC-BERT of an encoder.
    """
    from pyterrier_cascade import DCBERT, CachedRanker, DocumentCache
    from pyterrier_cascade.cli import models, settings

    models.refuse_unless_dcbert(options.model, _found(options))
    own = settings.declared(CachedRanker, skip=settings.ELSEWHERE | {"cache"})
    parts = settings.declared(DCBERT.from_pretrained)
    given = settings.parsed(options.settings, own | parts, "--with")
    model = DCBERT.from_pretrained(options.model, **{name: given[name] for name in parts if name in given})
    ranker = DocumentCache(options.cache).reranker(model, **{name: given[name] for name in own if name in given})
    return ranker, ranker.dcbert().text_field if ranker.missing == "encode" else None


def _found(options: argparse.Namespace) -> registry.Reranker | None:
    from pyterrier_cascade.cli import models

    return registry.by_command(options.kind) if options.kind else models.held_by(options.model)
