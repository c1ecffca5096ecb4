"""Text files, read line by line: UTF-8, plain or gzipped. Every error names its place, as in ``file, line 12``."""

import gzip
import json
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import pandas as pd

from pyterrier_cascade.checks import shown

STDIN = "-"
GZIP = b"\x1f\x8b"
"""The first two bytes of every gzip file; no text in UTF-8 begins with them."""
RUN = "qid Q0 docno rank score tag"
QRELS = "qid iteration docno label"

_DAMAGED = (OSError, EOFError, zlib.error)
_NUMBERS = {int: "a whole number", float: "a number"}


def numbered_lines(path: str | Path) -> Iterator[tuple[str, str]]:
    r"""Yields every line of a file, without its end, after its place (``file, line 12``).

    Only ``\n`` and ``\r\n`` end a line: ``str.splitlines`` would also cut at characters such as U+2028, which sentences
    may contain. One line is held in memory at a time.

    Args:
        path: A file in UTF-8, plain or gzipped, or ``-`` for standard input.

    Raises:
        ValueError: If the gzip data is cut or damaged, or a line is not UTF-8.
    """
    for number, (where, line) in enumerate(raw_lines(path), start=1):
        yield where, _decoded(where, line, number == 1).removesuffix("\n").removesuffix("\r")


def raw_lines(path: str | Path) -> Iterator[tuple[str, bytes]]:
    """Yields every line of a file as bytes with its end, as :func:`numbered_lines` does, whatever encoding it has."""
    name, number = _name(path), 0
    with _opened(path) as file:
        try:
            for number, line in enumerate(file, start=1):
                yield f"{name}, line {number}", line
        except _DAMAGED as error:
            raise ValueError(f"{name}: damaged after line {number} ({error}); get the file again") from error


def filled_lines(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yields the lines of a file that are not empty, as :func:`numbered_lines` does."""
    return ((where, line) for where, line in numbered_lines(path) if line)


@contextmanager
def refusing_other_shapes(message: str) -> Iterator[None]:
    """Raises ValueError if the block looks in a JSON value for a key that it lacks, or it is of another type.

    Args:
        message: The place, and the shape that was expected; the found error follows in brackets.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{message} ({error!r})") from error


def read_json(path: str | Path) -> Any:
    """Returns the value of a JSON file, plain or gzipped, which is read as a whole.

    Raises:
        ValueError: If the file is damaged, not UTF-8 or not JSON.
    """
    name = _name(path)
    with _opened(path) as file:
        try:
            content = file.read()
        except _DAMAGED as error:
            raise ValueError(f"{name}: damaged ({error}); get the file again") from error
    try:
        return json.loads(_decoded(name, content, starts=True))
    except json.JSONDecodeError as error:
        raise _not_json(f"{name}, line {error.lineno}", error) from error
    except RecursionError as error:
        raise ValueError(f"{name}: JSON that is nested too deeply; get the file again") from error


def parse_json(where: str, line: str) -> Any:
    """Returns the JSON value of one line.

    Args:
        where: The place of the line, with which the error begins.
        line: The line.

    Raises:
        ValueError: If it is not JSON.
    """
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise _not_json(where, error) from error


def json_strings(where: str, line: str, *keys: str) -> list[str]:
    """Returns the strings under some keys of a JSON object, which is one line of a file.

    Raises:
        ValueError: If the line is not JSON, not an object, or has no string under one of the keys.
    """
    found = parse_json(where, line)
    for key in keys:
        if not isinstance(found, dict) or not isinstance(found.get(key), str):
            raise ValueError(f"{where}: no string {key!r}; give objects with {' and '.join(keys)}")
    return [found[key] for key in keys]


def table_rows(
    path: str | Path, columns: Mapping[str, type], optional: Mapping[str, type] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the rows of a TSV file with a header, each after its place; quotation marks are ordinary characters.

    Args:
        path: The file. Empty lines are skipped.
        columns: The columns that the file must have, with their types; all others are left out.
        optional: The columns that the file may have.

    Raises:
        ValueError: If the header lacks a column, a line has another number of fields, or a number cannot be read.
    """
    lines = filled_lines(path)
    where, header = next(lines, (_name(path), ""))
    names = header.split("\t")
    if missing := [name for name in columns if name not in names]:
        raise ValueError(
            f"{where}: the header names no column {', '.join(missing)}; give {', '.join(columns)}, with tabs between"
        )
    wanted = [(names.index(name), name, of) for name, of in {**columns, **(optional or {})}.items() if name in names]
    for where, line in lines:
        fields = line.split("\t")
        if len(fields) != len(names):
            raise ValueError(f"{where}: {len(fields)} fields with tabs between, but the header has {len(names)}")
        yield where, {name: number(where, name, fields[place], of) for place, name, of in wanted}


def run_rows(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the rows of a TREC run (``qid``, ``docno``, ``rank``, ``score``), each after its place."""
    for where, line in filled_lines(path):
        qid, _, docno, rank, score, _ = fields_of(where, line, RUN)
        numbers = {"rank": number(where, "rank", rank, int), "score": number(where, "score", score, float)}
        yield where, {"qid": qid, "docno": docno, **numbers}


def read_qrels(path: str | Path) -> pd.DataFrame:
    """Returns the judgements of a file of TREC qrels: ``qid``, ``docno``, ``label``."""
    rows = []
    for where, line in filled_lines(path):
        qid, _, docno, label = fields_of(where, line, QRELS)
        rows.append((qid, docno, number(where, "label", label, int)))
    return pd.DataFrame(rows, columns=["qid", "docno", "label"])


def fields_of(where: str, line: str, form: str, separator: str | None = None) -> list[str]:
    """Returns the fields of a line.

    Args:
        where: The place of the line.
        line: The line.
        form: The names of the fields, such as ``"qid iteration docno label"``.
        separator: The text between two fields; None for any white space.

    Raises:
        ValueError: If there are more or fewer fields than the form has.
    """
    fields = line.split(separator)
    if len(fields) != len(form.split()):
        tabs = " with tabs between" if separator == "\t" else ""
        raise ValueError(f"{where}: {len(fields)} fields{tabs}, not the {len(form.split())} of {form!r}")
    return fields


def number(where: str, name: str, text: str, of: type) -> Any:
    """Returns a field as ``int``, ``float`` or ``str``.

    Raises:
        ValueError: If the text is no such number.
    """
    try:
        return of(text)
    except ValueError:
        raise ValueError(f"{where}: {name} {shown(text)} is not {_NUMBERS[of]}") from None


def _name(path: str | Path) -> str:
    return "standard input" if path == STDIN else str(path)


@contextmanager
def _opened(path: str | Path) -> Iterator[IO[bytes]]:
    with nullcontext(sys.stdin.buffer) if path == STDIN else open(path, "rb") as raw:
        zipped = str(path).endswith(".gz") or raw.peek(2)[:2] == GZIP
        yield gzip.GzipFile(fileobj=raw) if zipped else raw


def _decoded(where: str, data: bytes, starts: bool) -> str:
    try:
        # A byte order mark may stand at the start of a file only.
        return data.decode("utf-8-sig" if starts else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start})") from error


def _not_json(where: str, error: json.JSONDecodeError) -> ValueError:
    return ValueError(f"{where}: not JSON ({error.msg} at column {error.colno}); get the file again")
