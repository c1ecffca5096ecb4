"""Candidates from files and data sets, some queries at a time."""

import sqlite3
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator

import pandas as pd
import pyterrier as pt

from pyterrier_cascade.cli import data

BLOCK = 4_096
"""The candidates that are in memory at a time, and those of the last query that is begun."""
SHOWN = 5


def read(options: Namespace, field: str | None) -> Iterator[pd.DataFrame]:
    """Returns candidates as frames of whole queries, which are read one after the other.

    Args:
        options: Those of :func:`~pyterrier_cascade.cli.arguments.candidates`, and ``quiet``.
        field: The column with the text; None where no text is needed.
    """
    _check(options)
    if options.candidates:
        columns = dict.fromkeys(["qid", "query", "docno", *([field] if field else [])], str)
        return blocks(data.table(options.candidates, columns, {"score": float}))
    if options.run:
        return _of_run(options, field)
    if options.dataset:
        found = data.dataset(options.dataset, options.folder)
        if not hasattr(found, "get_candidates"):
            raise ValueError(f"{options.dataset} has no lists of candidates; give a --run for it")
        return blocks((options.dataset, row) for row in found.get_candidates().to_dict("records"))
    raise ValueError("no candidates; give --run, --candidates, or a --dataset that has lists of them")


def _check(options: Namespace) -> None:
    others = [name for name in ("topics", "docs", "dataset") if getattr(options, name)]
    if options.candidates and others:
        raise ValueError(f"--candidates brings its own queries and texts; leave out --{others[0]}, or give a --run")
    if not options.run and not options.candidates and (options.topics or options.docs):
        raise ValueError("--topics and --docs belong to a --run; give one")
    if [options.run, options.topics, options.docs].count(data.STDIN) > 1:
        raise ValueError("only one file can be standard input")


def number(options: Namespace) -> int | None:
    """Returns how many candidates there are, where that can be known in advance."""
    n = data.n_lines(options.run or options.candidates or "")
    return n if n is None or options.run else n - 1


def _of_run(options: Namespace, field: str | None) -> Iterator[pd.DataFrame]:
    found = data.dataset(options.dataset, options.folder) if options.dataset else None
    if found is None and not options.topics:
        raise ValueError("a run has no queries; give --topics, or the --dataset that it was made for")
    if found is None and field and not options.docs:
        raise ValueError("a run has no texts; give --docs, or the --dataset that it was made for")
    queries = Texts(options.topics) if options.topics else _Topics(options.dataset, found)
    load = _loader(options, found, field)
    found = blocks(data.run(options.run))
    return (load(frame.assign(query=queries.find(frame["qid"], "queries"))) for frame in found)


class _Topics:
    """The queries of a data set."""

    def __init__(self, name: str, found):
        topics = found.get_topics()
        if "query" not in topics:
            raise ValueError(f"{name} has topics of {', '.join(topics.columns)}, and no query; give --topics")
        self.name, self.queries = name, dict(zip(topics["qid"].astype(str), topics["query"], strict=True))

    def find(self, names: pd.Series, what: str) -> list[str]:
        if missing := [name for name in names.unique() if name not in self.queries]:
            raise KeyError(f"{len(missing)} {what} of the run are not in {self.name}: {missing[:SHOWN]}")
        return [self.queries[name] for name in names]


def _loader(options: Namespace, found, field: str | None) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Returns what adds the texts."""
    if field is None:
        return lambda frame: frame
    if options.docs:
        documents = Texts(options.docs, field, options.quiet)
        return lambda frame: frame.assign(**{field: documents.find(frame["docno"], "documents")})
    loader = pt.text.get_text(found, [field])

    def load(frame: pd.DataFrame) -> pd.DataFrame:
        try:
            return loader(frame)
        except KeyError as error:
            raise KeyError(f"documents of the run are not in {options.dataset}: {error.args[0]}") from error

    return load


class Texts:
    """Texts by name, in a temporary database on disk, so that memory does not grow with them.

    Args:
        path: What :func:`~pyterrier_cascade.cli.data.texts` reads.
        field: Likewise.
        quiet: Whether to show no progress.
    """

    def __init__(self, path: str, field: str = "text", quiet: bool = True):
        self.path, self.database = path, sqlite3.connect("")
        # As bytes, because not every string is UTF-8.
        self.database.execute("CREATE TABLE texts (name BLOB PRIMARY KEY, text BLOB)")
        rows = pt.tqdm(data.texts(path, field), desc=f"reading {path}", unit=" texts", disable=quiet)
        for place, name, text in rows:
            try:
                self.database.execute("INSERT INTO texts VALUES (?, ?)", (_bytes(name), _bytes(text)))
            except sqlite3.IntegrityError:
                raise ValueError(f"{place}: {name!r} is there twice") from None

    def find(self, names: pd.Series, what: str) -> pd.Series:
        """Returns the texts of names; those that are missing are named in an error.

        Args:
            names: The names.
            what: What they are called in the error.
        """
        select = "SELECT text FROM texts WHERE name = ?"
        found = {name: self.database.execute(select, (_bytes(name),)).fetchone() for name in names.unique()}
        if missing := [name for name, row in found.items() if row is None]:
            shown = ", ".join(map(repr, missing[:SHOWN])) + ", ..." * (len(missing) > SHOWN)
            raise KeyError(f"{len(missing)} {what} of the run are not in {self.path}: {shown}")
        texts = [found[name][0].decode("utf-8", "surrogatepass") for name in names]
        # pandas would make its own strings of them, which not every text can be.
        return pd.Series(texts, index=names.index, dtype=object)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def blocks(rows: Iterable[tuple[str, data.Row]]) -> Iterator[pd.DataFrame]:
    """Yields rows as frames of whole queries, so that memory stays bounded.

    Args:
        rows: Rows with ``qid``, each behind its place; those of a query together.
    """
    block, last, seen = [], None, set()
    for place, row in rows:
        if row["qid"] != last:
            if row["qid"] in seen:
                raise ValueError(
                    f"{place}: query {row['qid']!r} comes again after others; put the rows of a query together "
                    "(those of a run by: sort -s -k 1,1)"
                )
            if len(block) >= BLOCK:
                yield pd.DataFrame(block)
                block = []
            last = row["qid"]
            seen.add(last)
        block.append(row)
    if block:
        yield pd.DataFrame(block)
