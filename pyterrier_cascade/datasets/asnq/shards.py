"""The folder that the builder fills: shards of pages, each whole or absent, and a manifest that is written last."""

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from pyterrier_cascade.datasets.asnq.lines import numbered_lines, parse_json
from pyterrier_cascade.datasets.asnq.page import Page

MANIFEST = "manifest.json"
FORMAT = {"format": "asnq-like", "version": 2}
TEMPORARY = ".tmp-"

Counts = dict[str, Counter]


def add_page(counts: Counts, page: Page) -> None:
    """Adds a page to the counts: for its part the number of ``questions`` and of pairs with each label."""
    counter = counts.setdefault(page.part, Counter())
    for question in page.questions:
        counter.update(question.labels)
    counter["questions"] += len(page.questions)


def total(many: Iterable[Mapping[str, Mapping[str, int]]]) -> Counts:
    """Returns the sum of counts."""
    counts: Counts = {}
    for one in many:
        for part, counter in one.items():
            counts.setdefault(part, Counter()).update(counter)
    return counts


def write_shard(path: Path, pages: Iterable[Page]) -> dict[str, Any]:
    """Writes pages one after the other and returns what the manifest says of them; the file appears when it is whole.

    The same pages give the same bytes.
    """
    counts: Counts = {}

    def write(file: IO[bytes]) -> None:
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as out:
            for page in pages:
                add_page(counts, page)
                out.write(page.to_line().encode("ascii"))

    _publish(path, write)
    return _entry(path, counts)


def describe_shard(path: Path) -> dict[str, Any]:
    """Returns the same of a shard that is there, which is read from end to end."""
    counts: Counts = {}
    for page in read_shard(path):
        add_page(counts, page)
    return _entry(path, counts)


def read_shard(path: Path) -> Iterator[Page]:
    """Yields the pages of a shard.

    Raises:
        ValueError: If it is damaged.
    """
    return (Page.from_line(where, line) for where, line in numbered_lines(path))


def write_json(path: Path, value: Any) -> None:
    """Writes a value that appears when it is whole."""
    _publish(path, lambda file: file.write(json.dumps(value, indent=1, sort_keys=True).encode()))


def read_json(path: Path) -> Any:
    """Returns the value that :func:`write_json` wrote.

    Raises:
        ValueError: If it is damaged.
    """
    return parse_json(str(path), path.read_text(encoding="utf-8"))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a finished folder, once the sizes of its shards have been checked.

    Raises:
        FileNotFoundError: If the folder is not finished.
        ValueError: If it is something else, or a shard is missing or not of its size.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} is not a finished ASNQ-like folder: {MANIFEST}, which is written last, is missing; run the same "
            f"build again to complete it"
        )
    manifest = read_json(path)
    if {key: manifest.get(key) for key in FORMAT} != FORMAT:
        seen = ", ".join(f"{key} {manifest.get(key)!r}" for key in FORMAT)
        raise ValueError(f"{path} has {seen}; this version reads format 'asnq-like', version 2")
    for shard in manifest["shards"]:
        file = folder / shard["name"]
        if not file.is_file() or file.stat().st_size != shard["bytes"]:
            raise ValueError(f"{file} is missing or not of its {shard['bytes']} bytes; copy or build the folder again")
    return manifest


def sweep(folder: Path) -> None:
    """Removes what a build that was killed left half-written."""
    for path in folder.glob(f"{TEMPORARY}*"):
        path.unlink(missing_ok=True)


def _entry(path: Path, counts: Counts) -> dict[str, Any]:
    ordered = {part: dict(sorted(counter.items())) for part, counter in sorted(counts.items())}
    return {"name": path.name, "bytes": path.stat().st_size, "counts": ordered}


def _publish(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    part = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    try:
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
