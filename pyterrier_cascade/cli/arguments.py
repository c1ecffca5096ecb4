"""Options that several commands share."""

import argparse


def candidates(parser: argparse.ArgumentParser) -> None:
    """Adds where candidates come from."""
    group = parser.add_argument_group("candidates (files are UTF-8, plain or gzipped; - is standard input)")
    one = group.add_mutually_exclusive_group()
    one.add_argument("--run", metavar="FILE", help="a TREC run")
    one.add_argument("--candidates", metavar="FILE", help="a TSV with a header: qid, query, docno, text, or more")
    group.add_argument("--topics", metavar="FILE", help="queries of the run, a TSV without header: qid, query")
    documents(group)


def documents(group) -> None:
    """Adds where documents come from."""
    group.add_argument(
        "--docs", metavar="FILE", help="documents, a TSV without header: docno, text; or .jsonl with these keys"
    )
    group.add_argument("--dataset", metavar="NAME", help="a data set of PyTerrier instead, such as as2:wikiqa/test")
    group.add_argument("--folder", help="the folder with the data set's files")


def settings(parser: argparse.ArgumentParser, of: str) -> None:
    """Adds the settings of what is named."""
    parser.add_argument(
        "--with",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a setting of {of}; may be repeated",
    )
