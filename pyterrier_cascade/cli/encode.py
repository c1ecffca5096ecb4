"""Filling a document cache."""

import argparse
from typing import IO

from pyterrier_cascade import registry
from pyterrier_cascade.cli import arguments

HELP = "encode documents by a DC-BERT into a cache; a killed call goes on when it is made again"
EXAMPLE = "my-dcbert --docs docs.tsv --output docs.dc --dtype int8"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("model", metavar="MODEL", help="a DC-BERT or an encoder, a folder or a Hub name")
    parser.add_argument("--output", metavar="FOLDER", required=True, help="the folder of the cache")
    parser.add_argument("--dtype", default="fp16", help="fp16, the default, or int8, which takes half the disk")
    parser.add_argument("--shards", metavar="0-3,7", type=shards, help="encode these shards only; all by default")
    parser.add_argument("--shard-size", metavar="N", type=int, default=5000, help="documents in a shard; 5000")
    parser.add_argument("--verify", action="store_true", help="then read the whole cache, and fail if it is damaged")
    arguments.add_settings(parser, "the DC-BERT")
    arguments.add_documents(parser)


def shards(text: str) -> list[int]:
    """Returns the numbers that ranges such as ``0-3,7`` stand for."""
    found = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise argparse.ArgumentTypeError(f"{text!r} is not like 0-3,7")
        found += range(int(first), int(last) + 1)
    return found


def run(options: argparse.Namespace, out: IO[str]) -> None:
    """Encodes the documents, and writes the description of the cache."""
    from pyterrier_cascade.cli import data, info, models

    if bool(options.docs) == bool(options.dataset):
        raise ValueError("give the documents by either --docs or --dataset")
    models.refuse_unless_dcbert(options.model, models.held_by(options.model))
    # States of documents do not depend on the interaction.
    dcbert = models.load(
        options.model,
        registry.by_command("dcbert"),
        options.settings,
        skip=["interaction"],
        verbose=not options.quiet,
    )
    field = dcbert.text_field
    if options.docs:
        corpus = ({"docno": name, field: text} for _, name, text in data.texts(options.docs, field))
        n_documents = data.n_lines(options.docs)
    else:
        corpus = data.dataset(options.dataset, options.folder).get_corpus_iter(verbose=False)
        n_documents = None
    cache = dcbert.encode(
        corpus,
        options.output,
        dtype=options.dtype,
        shards=options.shards,
        shard_size=options.shard_size,
        n_documents=n_documents,
    )
    if options.verify:
        cache.verify(verbose=not options.quiet)
    info.write(info.described(options.output), out)
