"""The folder of a document cache: which files are where, and the catalog that lists its shards."""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyterrier_cascade.dcbert.catalog import PREFIX, Catalog, catalog_name, write_catalog
from pyterrier_cascade.dcbert.shards import Shard, shard_name
from pyterrier_cascade.store import publish

META = "pt_meta.json"
END = "end.json"
"""Written when a build has seen the end of the corpus: ``n_documents`` and ``n_shards``."""
SHARD = re.compile(r"shard-(\d{5,})")
KIND = {"type": "dcbert_cache", "format": "shards", "package_hint": "pyterrier_cascade", "version": 1}


def read_meta(folder: Path) -> dict[str, Any]:
    """Returns what ``pt_meta.json`` says of a cache, once its kind has been checked."""
    if not (folder / META).is_file():
        raise FileNotFoundError(f"no document cache at {str(folder)!r}; make one with DocumentCache.build")
    meta = publish.read_sealed(folder / META)
    if any(meta.get(key) != KIND[key] for key in ("type", "format", "version")):
        seen = ", ".join(f"{key} {meta.get(key)!r}" for key in ("type", "format", "version"))
        raise ValueError(f"{str(folder)!r} holds {seen}; this reads dcbert_cache, shards, version 1")
    return meta


def read_end(folder: Path) -> dict[str, int] | None:
    """Returns the ``n_documents`` and ``n_shards`` of the whole corpus; None while no build has seen its end."""
    return publish.read_sealed(folder / END) if (folder / END).is_file() else None


def shard_numbers(folder: Path) -> list[int]:
    """Returns the numbers of the shards that are there, ascending."""
    return sorted(int(match[1]) for name in os.listdir(folder) if (match := SHARD.fullmatch(name)))


def opened(folder: Path, number: int, meta: Mapping[str, Any]) -> Shard:
    """Returns a shard of a cache."""
    return Shard(folder / shard_name(number), meta)


def up_to_date(folder: Path, meta: Mapping[str, Any], writer: publish.Writer) -> None:
    """Writes the catalog of the shards that are there, unless it is there already."""
    with writer.alone():
        shards = {number: opened(folder, number, meta) for number in shard_numbers(folder)}
        name = catalog_name(shards)
        if not (folder / name).is_dir():
            with writer.publishing(name) as unfinished:
                write_catalog(unfinished, shards)
        for path in folder.glob(f"{PREFIX}*"):
            if path.name != name:
                shutil.rmtree(path, ignore_errors=True)


def open_catalog(folder: Path, meta: Mapping[str, Any]) -> tuple[Catalog, tempfile.TemporaryDirectory | None]:
    """Returns the catalog of the shards that are there, made first if need be.

    Where the folder cannot be written it is made in a temporary one, which lives as long as the second value.
    """
    numbers = shard_numbers(folder)
    if found := _current(folder, numbers):
        return found, None
    try:
        with publish.Writer(folder) as writer:
            up_to_date(folder, meta, writer)
        if found := _current(folder, shard_numbers(folder)):
            return found, None
    except OSError as error:
        if error.errno not in publish.UNWRITABLE:
            raise
    aside = tempfile.TemporaryDirectory(prefix="dcbert-catalog-")
    write_catalog(Path(aside.name), {number: opened(folder, number, meta) for number in numbers})
    return Catalog(Path(aside.name)), aside


def _current(folder: Path, numbers: list[int]) -> Catalog | None:
    for path in sorted(folder.glob(f"{PREFIX}*")):
        try:
            catalog = Catalog(path)
        except FileNotFoundError:
            # Another process has just replaced it.
            continue
        if catalog.numbers.tolist() == numbers:
            return catalog
    return None
