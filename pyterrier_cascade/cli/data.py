"""The files and data sets that the commands read, and the tables and runs that they write."""

import os
import stat
from collections.abc import Iterator
from typing import IO, Any

import pandas as pd
import pyterrier as pt

from pyterrier_cascade.text_files import STDIN, filled_lines, json_strings, table_rows


def n_lines(path: str) -> int | None:
    """Returns the number of lines of a file that are not empty; None of a stream, which can be read only once."""
    if path == STDIN or not stat.S_ISREG(os.stat(path).st_mode):
        return None
    return sum(1 for _ in filled_lines(path))


def texts(path: str, field: str = "text") -> Iterator[tuple[str, str, str]]:
    """Yields the place, the name and the text of each document or query in a file.

    Args:
        path: A TSV file of names and texts without a header, or a ``.jsonl`` (or ``.jsonl.gz``) with ``docno`` and
            texts.
        field: The key of the text in a ``.jsonl``.
    """
    as_json = path.removesuffix(".gz").endswith(".jsonl")
    for where, line in filled_lines(path):
        values = json_strings(where, line, "docno", field) if as_json else line.split("\t")
        if len(values) != 2:
            raise ValueError(f"{where}: {len(values)} fields with tabs between; give a name and a text")
        if not values[0]:
            raise ValueError(f"{where}: the name is empty; give every text a name")
        yield where, *values


def dataset(name: str, folder: str | None = None) -> Any:
    """Returns a data set of PyTerrier.

    Args:
        name: Its name.
        folder: The folder with its files, for a data set that reads files.
    """
    try:
        return pt.get_dataset(name, **({} if folder is None else {"folder": folder}))
    except KeyError as error:
        # PyTerrier's own message leaves out the message of the data set's provider.
        reasons = [str(one.args[0]) for one in (error, error.__cause__) if one is not None and one.args]
        raise ValueError(" ".join(reasons)) from error
    except TypeError as error:
        raise ValueError(f"{name} reads no files from a folder; leave --folder out") from error


def labelled(path: str, field: str) -> pd.DataFrame:
    """Returns lists of candidates with labels, which may be grades.

    The columns are ``qid``, ``query``, ``docno``, the text, ``label``, and ``teacher`` where the file has it.

    Args:
        path: A TSV file with a header.
        field: The column with the text.
    """
    columns = {**dict.fromkeys(["qid", "query", "docno", field], str), "label": int}
    return pd.DataFrame([row for _, row in table_rows(path, columns, {"teacher": float})])


def write_table(frame: pd.DataFrame, out: IO[str], header: bool = True) -> None:
    """Writes a frame as a TSV file.

    Numbers have all their digits, missing values are empty, and commas separate the members of a sequence.

    Args:
        frame: The frame.
        out: The stream to write to.
        header: Whether the first line names the columns.
    """
    if header:
        out.write("\t".join(frame.columns) + "\n")
    for row in zip(*(frame[name].tolist() for name in frame.columns), strict=True):
        out.write("\t".join(map(_field, row)) + "\n")


def _field(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(_field, value))
    return "" if pd.isna(value) else str(value)


def write_run(results: pd.DataFrame, out: IO[str], tag: str) -> None:
    """Writes results as a TREC run; scores have all their digits.

    Args:
        results: A results frame.
        out: The stream to write to.
        tag: The name of the run.
    """
    columns = (results[name].tolist() for name in ("qid", "docno", "rank", "score"))
    for qid, docno, rank, score in zip(*columns, strict=True):
        out.write(f"{qid} Q0 {docno} {rank} {score!r} {tag}\n")


def check_run_names(frame: pd.DataFrame) -> None:
    """Raises where a TREC run, whose fields have spaces between, cannot hold an id."""
    for qid, docno in zip(frame["qid"].tolist(), frame["docno"].tolist(), strict=True):
        if [qid, docno] != f"{qid} {docno}".split():
            raise ValueError(f"a TREC run cannot hold qid {qid!r} with docno {docno!r}; use --format tsv")
