"""The catalog of a document cache: the small arrays of all its shards in one place, and where each docno is.

It follows from the shards and is made again whenever it does not list those that are there.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyterrier_cascade.dcbert import files
from pyterrier_cascade.dcbert.shards import ARRAYS, DOCNOS, Shard, encoded, hashed, shard_name
from pyterrier_cascade.strings import Strings

META = "catalog.json"
PREFIX = "catalog-"
BLOCK = 64
"""How many sorted hashes share a checksum."""


@dataclass(frozen=True)
class Spans:
    """Where the tokens of some documents are.

    Attributes:
        rows: The documents in the catalog ``(n,)``.
        shards: The number of the shard of each ``(n,)``.
        starts: Its first token in that shard ``(n,)``.
        sizes: Its tokens ``(n,)``.
        n_entries: Its entries ``(n,)``.
        lengths: The tokens of all their entries ``(n_entries,)``.
    """

    rows: np.ndarray
    shards: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    n_entries: np.ndarray
    lengths: np.ndarray


def catalog_name(shards: Mapping[int, Shard]) -> str:
    """Returns the name of the folder of these shards' catalog, by their numbers and contents."""
    return PREFIX + files.seal({"shards": _table(shards)})[:16]


def write_catalog(folder: Path, shards: Mapping[int, Shard]) -> None:
    """Writes the catalog of shards into an empty folder, with 20 bytes of memory for each document.

    Raises:
        ValueError: If a docno is in two shards, or the small files of a shard are damaged.
    """
    n = sum(shard.n_documents for shard in shards.values())

    def each(name: str) -> Iterator[np.ndarray]:
        return (shard.array(name) for shard in shards.values())

    sizes = {
        f"{DOCNOS}.bytes": sum(len(array) for array in each(f"{DOCNOS}.bytes")),
        f"{DOCNOS}.ends": n,
        "entries": n + 1,
        "offsets": sum(shard.meta["n_entries"] for shard in shards.values()) + 1,
        "checks": n,
    }
    dtypes = {f"{DOCNOS}.bytes": "|u1", f"{DOCNOS}.ends": "<i8"} | ARRAYS
    joined = {f"{DOCNOS}.ends": _ends, "entries": _edges, "offsets": _edges}
    for name, size in sizes.items():
        pieces = joined.get(name, iter)(each(name))
        files.write_array(folder / f"{name}.npy", dtypes[name], size, pieces)
    hashes = np.concatenate([np.empty(0, "<u8"), *each("hashes")])
    order = np.concatenate([np.empty(0, "<u4"), *_by_hash(hashes)])
    hashes = hashes[order]
    _refuse_repeated(hashes, order, Strings.open(folder, DOCNOS), shards)
    blocks = [zlib.crc32(hashes[start : start + BLOCK]) for start in range(0, n, BLOCK)]
    for name, dtype, array in (("hashes", "<u8", hashes), ("order", "<u4", order), ("blocks", "<u4", blocks)):
        files.write_array(folder / f"{name}.npy", dtype, len(array), [np.asarray(array)])
    fields = {"shards": _table(shards), "files": {path.name: path.stat().st_size for path in folder.iterdir()}}
    (folder / META).write_bytes(files.sealed(fields))


def _table(shards: Mapping[int, Shard]) -> list[dict[str, int | str]]:
    counts = ("n_documents", "n_entries", "n_tokens", files.SEAL)
    return [{"number": number} | {name: shard.meta[name] for name in counts} for number, shard in shards.items()]


def _ends(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    base = 0
    for array in arrays:
        yield array + base
        base += int(array[-1]) if len(array) else 0


def _edges(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    yield np.zeros(1)
    yield from _ends(array[1:] for array in arrays)


def _by_hash(hashes: np.ndarray) -> Iterator[np.ndarray]:
    # A sixteenth at a time, as sorting takes memory.
    for top in range(16):
        here = np.flatnonzero(hashes >> np.uint64(60) == top)
        yield here[np.argsort(hashes[here], kind="stable")].astype("<u4")


def _refuse_repeated(hashes: np.ndarray, order: np.ndarray, docnos: Strings, shards: Mapping[int, Shard]) -> None:
    alike = np.flatnonzero(hashes[1:] == hashes[:-1])
    rows = order[np.union1d(alike, alike + 1)].astype(np.int64)
    names = docnos.take(rows) if len(rows) else []
    repeated = [docno for docno, count in Counter(names).items() if count > 1]
    if repeated:
        numbers = np.repeat(list(shards), [shard.n_documents for shard in shards.values()])
        where = sorted(shard_name(number) for number in numbers[rows[np.asarray(names) == repeated[0]]])
        more = f" and {len(repeated) - 1} more docnos" * (len(repeated) > 1)
        raise ValueError(
            f"docno {repeated[0]!r}{more} given to more than one document, in {' and '.join(where)}; drop or rename "
            "the repeated ones and build the cache anew"
        )


class Catalog:
    """The catalog in a folder, memory-mapped.

    A document is found by the hash of its docno, and its docno is compared to the letter. What is not found is proved
    to be missing by the checksums of the hashes beside its place.

    Args:
        folder: The folder.
        stride: How many positions a shard has.
    """

    def __init__(self, folder: Path, stride: int):
        self.folder, self.stride = folder, stride
        try:
            fields = files.read_sealed(folder / META)
        except ValueError:
            raise self._damaged() from None
        if any((folder / name).stat().st_size != size for name, size in fields["files"].items()):
            raise self._damaged()
        self.shards = fields["shards"]
        self.numbers = np.array([shard["number"] for shard in self.shards], np.int64)
        self.seals = {shard["number"]: shard[files.SEAL] for shard in self.shards}
        self.row_edges = self._edges("n_documents")
        self.entry_edges = self._edges("n_entries")
        self.token_edges = self._edges("n_tokens")
        if (np.diff(self.row_edges) > stride).any():
            raise ValueError(f"a shard has more than {stride} documents; the cache's shard_size was changed")
        names = (f"{DOCNOS}.bytes", f"{DOCNOS}.ends", "entries", "offsets", "checks", "hashes", "order", "blocks")
        arrays = {name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in names}
        self._docnos = Strings(arrays[f"{DOCNOS}.bytes"], arrays[f"{DOCNOS}.ends"])
        self._bytes = memoryview(self._docnos.blob)
        self.entries, self.offsets, self.checks = (arrays[name] for name in ("entries", "offsets", "checks"))
        self._hashes, self._order, self._blocks = (arrays[name] for name in ("hashes", "order", "blocks"))

    def _edges(self, name: str) -> np.ndarray:
        return np.cumsum([0] + [shard[name] for shard in self.shards])

    def _damaged(self) -> ValueError:
        return ValueError(f"{str(self.folder)!r} is damaged; delete that folder, it is made again from the shards")

    def __len__(self):
        """Returns the number of documents."""
        return int(self.row_edges[-1])

    def positions(self, rows: np.ndarray) -> np.ndarray:
        """Returns the positions of documents in the cache."""
        place = np.searchsorted(self.row_edges, rows, "right") - 1
        return self.numbers[place] * self.stride + rows - self.row_edges[place]

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Returns the documents at positions of the cache."""
        if not len(self.numbers):
            place, known = np.zeros(len(positions), np.int64), np.zeros(len(positions), bool)
            sizes = self.row_edges
        else:
            numbers = positions // self.stride
            place = np.searchsorted(self.numbers, numbers).clip(max=len(self.numbers) - 1)
            sizes = np.diff(self.row_edges)
            known = (self.numbers[place] == numbers) & (positions % self.stride < sizes[place])
        if not known.all():
            wrong = int(positions[~known][0])
            raise IndexError(f"position {wrong} is not in the cache; use those that find returns, without its -1")
        return self.row_edges[place] + positions % self.stride

    def docnos(self, rows: np.ndarray) -> np.ndarray:
        """Returns the names of documents ``(n,)``."""
        return self._docnos.take(rows) if len(rows) else np.empty(0, object)

    def docno_bytes(self, rows: np.ndarray) -> list[memoryview]:
        """Returns the same as bytes."""
        ends = self._docnos.ends
        spans = zip(np.where(rows > 0, ends[rows - 1], 0).tolist(), ends[rows].tolist(), strict=True)
        return [self._bytes[start:end] for start, end in spans]

    def find(self, docnos: Sequence[str]) -> np.ndarray:
        """Returns the documents with these names, -1 where there is none ``(n,)``."""
        names = encoded(docnos)
        hashes = hashed(names)
        rows = np.full(len(names), -1)
        if not len(self):
            return rows
        places = np.searchsorted(self._hashes, hashes)
        alike = np.flatnonzero(self._hashes[places.clip(max=len(self) - 1)] == hashes)
        candidates = self._order[places[alike]].astype(np.int64)
        if (candidates >= len(self)).any():
            raise self._damaged()
        stored = self.docno_bytes(candidates)
        for number, row, docno in zip(alike.tolist(), candidates.tolist(), stored, strict=True):
            if docno == names[number]:
                rows[number] = row
        for number in np.flatnonzero(rows < 0).tolist():
            rows[number] = self._search(names[number], hashes[number], int(places[number]))
        return rows

    def _search(self, name: bytes, wanted: np.uint64, place: int) -> int:
        first = place
        while place < len(self) and self._hashes[place] == wanted:
            row = int(self._order[place])
            stored = bytes(self.docno_bytes(np.array([row]))[0]) if row < len(self) else b""
            if stored == name:
                return row
            if hashed([stored])[0] != wanted:
                raise self._damaged()
            place += 1
        self._prove_missing(wanted, first, place)
        return -1

    def _prove_missing(self, wanted: np.uint64, first: int, after: int) -> None:
        # A flipped bit in the sorted hashes must not make a document look missing.
        around = range(max(first - 1, 0), min(after + 1, len(self)))
        for block in range(around.start // BLOCK, (around.stop - 1) // BLOCK + 1):
            if zlib.crc32(self._hashes[block * BLOCK : (block + 1) * BLOCK]) != self._blocks[block]:
                raise self._damaged()
        if (first > 0 and self._hashes[first - 1] >= wanted) or (after < len(self) and self._hashes[after] <= wanted):
            raise self._damaged()

    def spans(self, rows: np.ndarray) -> Spans:
        """Returns where the tokens of documents are."""
        place = np.searchsorted(self.row_edges, rows, "right") - 1
        first, last = self.entries[rows].astype(np.int64), self.entries[rows + 1].astype(np.int64)
        bad = (last <= first) | (first < self.entry_edges[place]) | (last > self.entry_edges[place + 1])
        if bad.any():
            raise self._damaged()
        starts, ends = self.offsets[first].astype(np.int64), self.offsets[last].astype(np.int64)
        bad = (ends <= starts) | (starts < self.token_edges[place]) | (ends > self.token_edges[place + 1])
        n_entries = last - first
        entry = np.repeat(first - np.cumsum(n_entries) + n_entries, n_entries) + np.arange(n_entries.sum())
        lengths = (self.offsets[entry + 1] - self.offsets[entry]).astype(np.int64)
        if bad.any() or (lengths < 1).any():
            raise self._damaged()
        return Spans(rows, self.numbers[place], starts - self.token_edges[place], ends - starts, n_entries, lengths)
