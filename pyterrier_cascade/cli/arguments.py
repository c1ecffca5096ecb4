"""Options that several commands share."""

import argparse


def add_candidates(parser: argparse.ArgumentParser) -> None:
    """Adds the options that name the source of the candidates."""
    group = parser.add_argument_group("candidates (files are UTF-8, plain or gzipped; - is standard input)")
    one = group.add_mutually_exclusive_group()
    one.add_argument("--run", metavar="FILE", help="a TREC run")
    one.add_argument(
        "--candidates", metavar="FILE", help="a TSV file whose header names qid, query, docno, text, in any order"
    )
    group.add_argument("--topics", metavar="FILE", help="the queries of the run: a TSV file of qid, query, no header")
    add_documents(group)


def add_documents(group: argparse._ActionsContainer) -> None:
    """Adds the options that name the source of the documents."""
    group.add_argument(
        "--docs", metavar="FILE", help="documents: a TSV file of docno, text, no header; or .jsonl with these keys"
    )
    group.add_argument("--dataset", metavar="NAME", help="a data set of PyTerrier instead, such as as2:wikiqa/test")
    group.add_argument("--folder", help="the folder with the files of the data set")


def add_settings(parser: argparse.ArgumentParser, of: str) -> None:
    """Adds the option for settings.

    Args:
        parser: The parser of a command.
        of: The owner of the settings, for the help.
    """
    parser.add_argument(
        "--with",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a setting of {of}; may be repeated",
    )
