"""Reading large text files a line at a time; a damaged one is named, with the line."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def numbered_lines(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yields every line of a UTF-8 file, plain or gzipped, after its place (``file, line 12``).

    Only ``\\n`` and ``\\r\\n`` end a line. One line is held at a time.

    Raises:
        ValueError: If the gzip data is cut or damaged, or a line is not UTF-8.
    """
    n = 0
    with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as lines:
        while line := _next(lines, path, n):
            n += 1
            where = f"{path}, line {n}"
            yield where, _text(where, line, "utf-8-sig" if n == 1 else "utf-8")


def parse_json(where: str, line: str) -> Any:
    """Returns the value that a line holds.

    Raises:
        ValueError: If it is not JSON; the message starts with ``where``.
    """
    try:
        return json.loads(line)
    except json.JSONDecodeError as err:
        raise ValueError(f"{where}: not JSON ({err.msg} at column {err.colno}); get the file again") from err


def _text(where: str, line: bytes, encoding: str) -> str:
    try:
        return line.decode(encoding).removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as err:
        raise ValueError(f"{where}: not UTF-8 text ({err.reason} at byte {err.start})") from err


def _next(lines, path: str | Path, n: int) -> bytes:
    try:
        return lines.readline()
    except (OSError, EOFError, zlib.error) as err:
        raise ValueError(f"{path}: damaged after line {n} ({err}); get the file again") from err
