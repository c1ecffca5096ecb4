"""Candidates from files and data sets, some queries at a time."""

import pickle
import sqlite3
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_cascade.checks import shown
from pyterrier_cascade.cli import data
from pyterrier_cascade.text_files import STDIN, run_rows, table_rows

ROWS = 4_096
"""The least number of candidates in a frame, but for the last one; the last query of a frame is always whole."""
SHOWN = 5
"""The most missing names that an error lists."""


Rows = Iterator[pd.DataFrame]
Load = Callable[[pd.DataFrame], pd.DataFrame]
"""The function that adds to a frame what its file lacks, such as the texts of a run."""


def read(options: Namespace, field: str | None, check: Callable[[pd.DataFrame], Any] | None = None) -> Rows:
    """Returns candidates as frames of whole queries.

    Without a check the next frame is read when it is asked for. With one, everything is read and checked first, so that
    an error in the last row comes before any result; the rows wait in a temporary file, without the texts of a run.

    Args:
        options: The options of :func:`~pyterrier_cascade.cli.arguments.add_candidates`, and ``quiet``.
        field: The column with the text; None where no text is needed.
        check: Is called with each frame, and raises what the command refuses.
    """
    _check(options)
    frames, load = _source(options, field)
    if check is None:
        return map(load, frames)
    kept, n = tempfile.TemporaryFile(), 0  # noqa: SIM115
    for frame in frames:
        check(load(frame))
        pickle.dump(frame, kept)
        n += 1
    kept.seek(0)
    return (load(pickle.load(kept)) for _ in range(n))


def _source(options: Namespace, field: str | None) -> tuple[Rows, Load]:
    if options.candidates:
        columns = dict.fromkeys(["qid", "query", "docno", *([field] if field else [])], str)
        return whole_queries(table_rows(options.candidates, columns, {"score": float})), _as_it_is
    if options.run:
        return whole_queries(run_rows(options.run)), _loader_of_run(options, field)
    if options.dataset:
        found = data.dataset(options.dataset, options.folder)
        if not hasattr(found, "get_candidates"):
            raise ValueError(f"{options.dataset} has no lists of candidates; give a --run for it")
        rows = ((options.dataset, row) for row in found.get_candidates().to_dict("records"))
        return whole_queries(rows), _as_it_is
    raise ValueError("no candidates; give --run, --candidates, or a --dataset that has lists of them")


def _as_it_is(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def _check(options: Namespace) -> None:
    others = [name for name in ("topics", "docs", "dataset") if getattr(options, name)]
    if options.candidates and others:
        raise ValueError(f"--candidates brings its own queries and texts; leave out --{others[0]}, or give a --run")
    if not options.run and not options.candidates and (options.topics or options.docs):
        raise ValueError("--topics and --docs belong to a --run; give one")
    if [options.run, options.topics, options.docs].count(STDIN) > 1:
        raise ValueError("only one file can be standard input")


def count(options: Namespace) -> int | None:
    """Returns the number of candidates; None where it cannot be known in advance."""
    path = options.run or options.candidates
    n_lines = data.n_lines(path) if path else None
    # A table has a header.
    return n_lines if n_lines is None or options.run else n_lines - 1


def _loader_of_run(options: Namespace, field: str | None) -> Load:
    found = data.dataset(options.dataset, options.folder) if options.dataset else None
    if found is None and not options.topics:
        raise ValueError("a run has no queries; give --topics, or the --dataset that it was made for")
    if found is None and field and not options.docs:
        raise ValueError("a run has no texts; give --docs, or the --dataset that it was made for")
    queries = Texts(options.topics) if options.topics else _Topics(options.dataset, found)
    load = _loader(options, found, field)
    return lambda frame: load(frame.assign(query=queries.find(frame["qid"], "queries")))


class _Topics:
    """The queries of a data set, by their ids.

    Args:
        name: The name of the data set.
        found: The data set.
    """

    def __init__(self, name: str, found):
        topics = found.get_topics()
        if "query" not in topics:
            raise ValueError(f"the topics of {name} have {', '.join(topics.columns)}, but no query; give --topics")
        self.name, self.queries = name, dict(zip(topics["qid"].astype(str), topics["query"], strict=True))

    def find(self, names: pd.Series, what: str) -> list[str]:
        """Returns the queries with these ids, as :meth:`Texts.find` does."""
        if missing := [name for name in names.unique() if name not in self.queries]:
            raise _missing(missing, what, self.name)
        return [self.queries[name] for name in names]


def _missing(names: list[str], what: str, where: str) -> KeyError:
    shown = ", ".join(map(repr, names[:SHOWN])) + ", ..." * (len(names) > SHOWN)
    return KeyError(f"{where} lacks {len(names)} of the run's {what}: {shown}; add them, or leave out their rows")


def _loader(options: Namespace, found, field: str | None) -> Load:
    if field is None:
        return _as_it_is
    if options.docs:
        documents = Texts(options.docs, field, options.quiet)
        return lambda frame: frame.assign(**{field: documents.find(frame["docno"], "documents")})
    loader = pt.text.get_text(found, [field])

    def load(frame: pd.DataFrame) -> pd.DataFrame:
        try:
            return loader(frame)
        except KeyError as error:
            raise KeyError(f"{options.dataset} lacks documents of the run: {error.args[0]}") from error

    return load


class Texts:
    """The texts of a file by their names, in a temporary database on disk, so that memory does not grow with them.

    Args:
        path: A file that :func:`~pyterrier_cascade.cli.data.texts` reads.
        field: The key of the text in a ``.jsonl``.
        quiet: Whether to show no progress.
    """

    def __init__(self, path: str, field: str = "text", quiet: bool = True):
        self.path, self.database = path, sqlite3.connect("")
        # The texts are kept as bytes, because JSON may hold half a surrogate pair, which UTF-8 cannot encode.
        self.database.execute("CREATE TABLE texts (name BLOB PRIMARY KEY, text BLOB)")
        rows = pt.tqdm(data.texts(path, field), desc=f"reading {path}", unit=" texts", disable=quiet)
        for place, name, text in rows:
            try:
                self.database.execute("INSERT INTO texts VALUES (?, ?)", (_bytes(name), _bytes(text)))
            except sqlite3.IntegrityError:
                raise ValueError(f"{place}: {shown(name)} is there twice; leave one of the two out") from None

    def find(self, names: pd.Series, what: str) -> pd.Series:
        """Returns the texts with these names. An error lists the names that are missing.

        Args:
            names: The names.
            what: A noun for them in the error, such as ``"documents"``.
        """
        select = "SELECT text FROM texts WHERE name = ?"
        found = {name: self.database.execute(select, (_bytes(name),)).fetchone() for name in names.unique()}
        if missing := [name for name, row in found.items() if row is None]:
            raise _missing(missing, what, self.path)
        texts = [found[name][0].decode("utf-8", "surrogatepass") for name in names]
        # The strings of pandas cannot hold half a surrogate pair; objects can.
        return pd.Series(texts, index=names.index, dtype=object)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def whole_queries(rows: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[pd.DataFrame]:
    """Yields rows as frames of whole queries, so that memory stays bounded.

    Args:
        rows: Rows with ``qid``, each after its place; the rows of a query stand together.
    """
    frame, last, seen = [], None, set()
    for place, row in rows:
        if row["qid"] != last:
            if row["qid"] in seen:
                raise ValueError(
                    f"{place}: query {shown(row['qid'])} comes again after others; put the rows of a query together "
                    "(those of a run by: sort -s -k 1,1)"
                )
            if len(frame) >= ROWS:
                yield pd.DataFrame(frame)
                frame = []
            last = row["qid"]
            seen.add(last)
        frame.append(row)
    if frame:
        yield pd.DataFrame(frame)
