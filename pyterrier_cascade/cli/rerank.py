"""Reranking a run or a table of candidates."""

import argparse
from typing import IO

from pyterrier_cascade.cli import arguments

HELP = "rerank a TREC run or a TSV of candidates"
EXAMPLE = "my-cascade --run bm25.run --topics topics.tsv --docs docs.tsv --with alpha=0.4 > reranked.run"
KINDS = ("crossencoder", "cascade", "dcbert", "hierarchical", "sequential")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("model", metavar="MODEL", help="the folder of a ranker, or its name on the Hub")
    parser.add_argument("--kind", choices=KINDS, help="what it is; needed of a bare encoder only")
    parser.add_argument("--cache", metavar="FOLDER", help="a document cache of this DC-BERT; no texts are needed then")
    arguments.settings(parser, "the ranker")
    parser.add_argument("--format", choices=("trec", "tsv"), default="trec", help="of the output; trec by default")
    parser.add_argument("--tag", default="pyterrier_cascade", help="the name of the run in a TREC run")
    arguments.candidates(parser)


def run(options: argparse.Namespace, out: IO[str]) -> None:
    """Writes the candidates of each query with new scores and ranks."""
    import pyterrier as pt

    from pyterrier_cascade.cli import candidates, data

    if options.tag.split() != [options.tag]:
        raise ValueError(f"--tag {options.tag!r}: give one word")
    ranker = _cached(options) if options.cache else _ranker(options)
    needs_text = not options.cache or ranker.missing == "encode"
    columns = ["qid", "docno", "rank", "score", *(["exit_layer"] if "exit_layer" in ranker.new_columns() else [])]
    if options.format == "tsv":
        out.write("\t".join(columns) + "\n")
    field = ranker.dcbert().text_field if options.cache else ranker.text_field
    frames = candidates.read(options, field if needs_text else None)
    total = None if options.quiet else candidates.number(options)
    with pt.tqdm(total=total, desc="reranking", unit=" candidates", disable=options.quiet) as bar:
        for frame in frames:
            results = ranker(frame)
            if options.format == "tsv":
                data.write_table(results[columns], out, header=False)
            else:
                data.write_run(results, out, options.tag)
            out.flush()
            bar.update(len(frame))


def _ranker(options: argparse.Namespace):
    from pyterrier_cascade.cli import models

    kind = options.kind or models.kind_of(options.model)
    if kind == models.ENCODER:
        raise ValueError(
            f"{options.model!r} is an encoder without a head, whose scores would mean nothing: train a ranker on it, "
            "or give --kind dcbert --with interaction=late, which needs no training"
        )
    return models.load(options.model, kind, options.settings)


def _cached(options: argparse.Namespace):
    """Returns what ranks by a cache; the settings are its own, and those that make a DC-BERT of an encoder."""
    from pyterrier_cascade import DCBERT, CachedRanker, DocumentCache
    from pyterrier_cascade.cli import models, settings

    kind = options.kind or models.kind_of(options.model)
    if kind not in models.OF_DCBERT:
        raise ValueError(f"--cache is for a DC-BERT, but {options.model!r} is a {kind}")
    own = settings.declared(CachedRanker, skip=settings.ELSEWHERE | {"cache"})
    parts = settings.declared(DCBERT.from_pretrained)
    given = settings.parsed(options.settings, own | parts, "--with")
    model = DCBERT.from_pretrained(options.model, **{name: given[name] for name in parts if name in given})
    cache = DocumentCache(options.cache)
    return cache.reranker(model, **{name: given[name] for name in own if name in given})
