"""Making the index of a document store: the small arrays of all shards in one folder, and the look-up of docnos.

The index follows from the shards and the changes. It is made again whenever it does not belong to them.
"""

import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from pyterrier_cascade.store import publish
from pyterrier_cascade.store.documents import given_twice
from pyterrier_cascade.store.folder import Changes, StoreFolder
from pyterrier_cascade.store.index import BLOCK, DOCNOS, DTYPES, META, PREFIX, Index, mapped, mapped_docnos
from pyterrier_cascade.store.shards import Shard

Shards = Mapping[int, Shard]


def index_name(shards: Shards, changes: Changes) -> str:
    """Returns the name of the index folder of these shards: a hash of their numbers and contents and the changes."""
    return PREFIX + publish.seal({"shards": _table(shards), "changes": changes.seal})[:16]


def open_index(folder: StoreFolder) -> tuple[StoreFolder, Index, tempfile.TemporaryDirectory | None]:
    """Returns the folder as it is now, and the index of the documents that count; it is made first if need be.

    Where the folder cannot be written the index is made in a temporary folder, which lives as long as the last value.
    """
    while True:
        try:
            return _opened(folder)
        except (ValueError, OSError):
            # Another process may have changed the documents meanwhile and removed shards that are no longer needed.
            if folder.is_current:
                raise
        folder = StoreFolder.now(folder.path, folder.meta)


def _opened(folder: StoreFolder) -> tuple[StoreFolder, Index, tempfile.TemporaryDirectory | None]:
    if found := _current(folder):
        return folder, found, None
    try:
        bring_up_to_date(folder)
        folder = StoreFolder.now(folder.path, folder.meta)
        if found := _current(folder):
            return folder, found, None
    except OSError as error:
        if error.errno not in publish.UNWRITABLE:
            raise
    aside = tempfile.TemporaryDirectory(prefix="document-index-")
    write_index(Path(aside.name), folder.shards(), folder.changes)
    return folder, Index(Path(aside.name)), aside


def _current(folder: StoreFolder) -> Index | None:
    for path in sorted(folder.path.glob(f"{PREFIX}*")):
        try:
            index = Index(path)
        except FileNotFoundError:
            # Another process has just replaced it.
            continue
        if index.numbers.tolist() == folder.numbers() and index.changes == folder.changes.seal:
            return index
    return None


def bring_up_to_date(folder: StoreFolder) -> None:
    """Writes the index of the documents that count now, unless it is there, and removes every other index."""
    with folder.alone():
        remove_others(folder.path, publish_index(StoreFolder.now(folder.path, folder.meta)))


def publish_index(folder: StoreFolder) -> str:
    """Writes an index into the store, unless it is there, and returns the name of its folder."""
    shards = folder.shards()
    name = index_name(shards, folder.changes)
    if not (folder.path / name).is_dir():
        with publish.publishing_folder(folder.path / name, keep=True) as unfinished:
            write_index(unfinished, shards, folder.changes)
    return name


def remove_others(folder: Path, name: str) -> None:
    """Removes every index but one."""
    for path in folder.glob(f"{PREFIX}*"):
        if path.name != name:
            shutil.rmtree(path, ignore_errors=True)


def write_index(into: Path, shards: Shards, changes: Changes) -> None:
    """Writes the index of shards into an empty folder; it takes some 25 bytes of memory for each document.

    Raises:
        ValueError: If a docno is in two places, or the small files of a shard are damaged.
    """

    def each(name: str) -> Iterator[np.ndarray]:
        return (shard.array(name) for shard in shards.values())

    joined = {f"{DOCNOS}.bytes": iter, f"{DOCNOS}.ends": _ends, "entries": _edges, "offsets": _edges, "checks": iter}
    for name, join in joined.items():
        _write(into, name, join(each(name)))
    dead = _dead(shards, changes)
    hashes = np.concatenate([np.empty(0, "<u8"), *each("hashes")])
    live = np.ones(len(hashes), bool)
    live[dead] = False
    order = np.concatenate([np.empty(0, "<u4"), *_by_hash(hashes, live)])
    hashes = hashes[order]
    _refuse_repeated(hashes, order, mapped_docnos(into), shards)
    blocks = [zlib.crc32(hashes[start : start + BLOCK]) for start in range(0, len(hashes), BLOCK)]
    for name, array in (("hashes", hashes), ("order", order), ("blocks", blocks), ("dead", dead)):
        _write(into, name, [array])
    fields = {
        "shards": _table(shards),
        "changes": changes.seal,
        "counts": _counts(into, dead),
        "dead": zlib.crc32(dead.astype(DTYPES["dead"])),
        "files": {path.name: path.stat().st_size for path in into.iterdir()},
    }
    (into / META).write_bytes(publish.sealed(fields))


def _write(folder: Path, name: str, pieces: Iterable[np.ndarray]) -> None:
    with open(folder / f"{name}.bin", "wb") as file:
        for piece in pieces:
            file.write(np.asarray(piece).astype(DTYPES[name]).data)


def _table(shards: Shards) -> list[dict[str, int | str]]:
    counts = ("n_documents", "n_entries", "n_tokens", publish.SEAL)
    return [{"number": number} | {name: shard.meta[name] for name in counts} for number, shard in shards.items()]


def _ends(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    base = 0
    for array in arrays:
        yield array + base
        base += int(array[-1]) if len(array) else 0


def _edges(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    yield np.zeros(1)
    yield from _ends(array[1:] for array in arrays)


def _dead(shards: Shards, changes: Changes) -> np.ndarray:
    """Returns the rows of the index that were deleted or replaced, ascending ``(n,)``."""
    found, start = [np.empty(0, np.int64)], 0
    for number, shard in shards.items():
        found.append(start + np.array(changes.dead.get(number, ()), np.int64))
        start += shard.n_documents
    return np.concatenate(found)


def _by_hash(hashes: np.ndarray, live: np.ndarray) -> Iterator[np.ndarray]:
    # A sixteenth at a time, as sorting takes memory.
    for top in range(16):
        here = np.flatnonzero((hashes >> np.uint64(60) == top) & live)
        yield here[np.argsort(hashes[here], kind="stable")].astype("<u4")


def _counts(folder: Path, dead: np.ndarray) -> dict[str, int]:
    """Returns the documents, entries and tokens of the documents that count."""
    entries, offsets = (mapped(folder, name) for name in ("entries", "offsets"))
    n_entries = entries[dead + 1].astype(np.int64) - entries[dead].astype(np.int64)
    n_tokens = offsets[entries[dead + 1]].astype(np.int64) - offsets[entries[dead]].astype(np.int64)
    return {
        "n_documents": len(entries) - 1 - len(dead),
        "n_entries": len(offsets) - 1 - int(n_entries.sum()),
        "n_tokens": int(offsets[-1]) - int(n_tokens.sum()),
    }


def _refuse_repeated(hashes: np.ndarray, order: np.ndarray, docnos, shards: Shards) -> None:
    alike = np.flatnonzero(hashes[1:] == hashes[:-1])
    rows = np.sort(order[np.union1d(alike, alike + 1)]).astype(np.int64)
    names = docnos.take(rows) if len(rows) else []
    repeated = [docno for docno, count in Counter(names).items() if count > 1]
    if repeated:
        folders = np.repeat(
            [shard.folder.name for shard in shards.values()], [shard.n_documents for shard in shards.values()]
        )
        where = sorted(set(folders[rows[np.asarray(names) == repeated[0]]].tolist()))
        details = f", in {' and '.join(where)}; drop or rename the repeated ones and build the cache anew"
        raise given_twice(repeated, details)
