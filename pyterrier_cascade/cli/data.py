"""What the commands read and write: text files, plain or gzipped, a line at a time; and data sets."""

import contextlib
import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any

import pandas as pd
import pyterrier as pt

STDIN = "-"
GZIP = b"\x1f\x8b"
"""How a gzip file begins, and no text in UTF-8 does."""
NUMBERS = {int: "a whole number", float: "a number"}

Row = dict[str, Any]


def lines(path: str) -> Iterator[tuple[str, str]]:
    """Yields the lines of a file that are not empty, each behind its place (``file, line 12``).

    Args:
        path: A file in UTF-8, plain or gzipped, or ``-`` for standard input.
    """
    name, number = "standard input" if path == STDIN else path, 0
    with contextlib.ExitStack() as stack:
        raw = sys.stdin.buffer if path == STDIN else stack.enter_context(open(path, "rb"))
        file = stack.enter_context(gzip.open(raw)) if raw.peek(2)[:2] == GZIP else raw
        while line := _next(file, name, number):
            number += 1
            place = f"{name}, line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{place}: not UTF-8 text ({error.reason} at byte {error.start})") from error
            if text:
                yield place, text


def _next(file: IO[bytes], name: str, number: int) -> bytes:
    try:
        return file.readline()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{name}: damaged after line {number} ({error})") from error


def n_lines(path: str) -> int | None:
    """Returns the number of a file's lines that are not empty; None of what can be read only once."""
    return sum(1 for _ in lines(path)) if os.path.isfile(path) else None


def table(
    path: str, columns: Mapping[str, type], optional: Mapping[str, type] | None = None
) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a TSV with a header, each behind its place; columns that are not asked for are left out.

    Args:
        path: The file.
        columns: The columns that it must have, with their types.
        optional: Those that it may have.
    """
    rows = lines(path)
    place, header = next(rows, (path, ""))
    names = header.split("\t")
    if missing := [name for name in columns if name not in names]:
        raise ValueError(
            f"{place}: the header names no column {', '.join(missing)}; give {', '.join(columns)}, with tabs between"
        )
    wanted = [(names.index(name), name, of) for name, of in {**columns, **(optional or {})}.items() if name in names]
    for place, text in rows:
        fields = text.split("\t")
        if len(fields) != len(names):
            raise ValueError(f"{place}: {len(fields)} fields with tabs between, but the header has {len(names)}")
        yield place, {name: _typed(place, name, fields[number], of) for number, name, of in wanted}


def run(path: str) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a TREC run, each behind its place."""
    for place, fields in _split(path, "qid Q0 docno rank score tag"):
        qid, _, docno, rank, score, _ = fields
        yield (
            place,
            {
                "qid": qid,
                "docno": docno,
                "rank": _typed(place, "rank", rank, int),
                "score": _typed(place, "score", score, float),
            },
        )


def qrels(path: str) -> pd.DataFrame:
    """Returns the judgements of a file of TREC qrels: ``qid``, ``docno``, ``label``."""
    rows = [
        (qid, docno, _typed(place, "label", label, int))
        for place, (qid, _, docno, label) in _split(path, "qid iteration docno label")
    ]
    return pd.DataFrame(rows, columns=["qid", "docno", "label"])


def _split(path: str, form: str) -> Iterator[tuple[str, list[str]]]:
    for place, text in lines(path):
        fields = text.split()
        if len(fields) != len(form.split()):
            raise ValueError(f"{place}: {len(fields)} fields, not the {len(form.split())} of {form!r}")
        yield place, fields


def _typed(place: str, name: str, text: str, of: type) -> Any:
    try:
        return of(text)
    except ValueError:
        raise ValueError(f"{place}: {name} {text!r} is not {NUMBERS[of]}") from None


def texts(path: str, field: str = "text") -> Iterator[tuple[str, str, str]]:
    """Yields the names and texts of documents or queries, each behind its place.

    Args:
        path: A TSV without a header, of names and texts, or a ``.jsonl`` (or ``.jsonl.gz``) with ``docno`` and texts.
        field: The key of the text in a ``.jsonl``.
    """
    as_json = path.removesuffix(".gz").endswith(".jsonl")
    for place, text in lines(path):
        values = _from_json(place, text, ("docno", field)) if as_json else text.split("\t")
        if len(values) != 2:
            raise ValueError(f"{place}: {len(values)} fields with tabs between, not a name and a text")
        if not values[0]:
            raise ValueError(f"{place}: the name is empty")
        yield place, *values


def _from_json(place: str, text: str, keys: tuple[str, ...]) -> list[str]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: not JSON ({error.msg} at column {error.colno})") from error
    for key in keys:
        if not isinstance(found, dict) or not isinstance(found.get(key), str):
            raise ValueError(f"{place}: no string {key!r}; give objects with {' and '.join(keys)}")
    return [found[key] for key in keys]


def dataset(name: str, folder: str | None = None):
    """Returns a data set of PyTerrier.

    Args:
        name: Its name.
        folder: The folder with its files, for those that have such.
    """
    try:
        return pt.get_dataset(name, **({} if folder is None else {"folder": folder}))
    except KeyError as error:
        # PyTerrier's own message leaves out what the provider said.
        reasons = [str(one.args[0]) for one in (error, error.__cause__) if one is not None and one.args]
        raise ValueError(" ".join(reasons)) from error
    except TypeError as error:
        raise ValueError(f"{name} reads no files from a folder; leave --folder out") from error


def labelled(path: str, field: str) -> pd.DataFrame:
    """Returns lists with labels: ``qid``, ``query``, ``docno``, the text, ``label``, and ``teacher`` where given.

    Args:
        path: A TSV with a header.
        field: The column with the text.
    """
    columns = {**dict.fromkeys(["qid", "query", "docno", field], str), "label": int}
    return pd.DataFrame([row for _, row in table(path, columns, {"teacher": float})])


def write_table(frame: pd.DataFrame, out: IO[str], header: bool = True) -> None:
    """Writes a frame as a TSV; numbers to the last digit, nothing for what is missing, sequences with commas between.

    Args:
        frame: What is written.
        out: Where to.
        header: Whether the first line names the columns.
    """
    if header:
        out.write("\t".join(frame.columns) + "\n")
    for row in zip(*(frame[name].tolist() for name in frame.columns), strict=True):
        out.write("\t".join(map(_shown, row)) + "\n")


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(_shown, value))
    return "" if pd.isna(value) else str(value)


def write_run(results: pd.DataFrame, out: IO[str], tag: str) -> None:
    """Writes results as a TREC run, with scores to the last digit.

    Args:
        results: A results frame.
        out: Where to.
        tag: The name of the run.
    """
    columns = (results[name].tolist() for name in ("qid", "docno", "rank", "score"))
    for qid, docno, rank, score in zip(*columns, strict=True):
        if [qid, docno] != f"{qid} {docno}".split():
            raise ValueError(f"a TREC run cannot hold qid {qid!r} with docno {docno!r}; use --format tsv")
        out.write(f"{qid} Q0 {docno} {rank} {score!r} {tag}\n")
