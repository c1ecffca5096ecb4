"""The catalog of a document cache: the small arrays of all its shards in one place, and where each docno is.

It follows from the shards and is made again whenever it does not list those that are there.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyterrier_cascade.dcbert.shards import DOCNOS, Shard, encoded, hashed, shard_name
from pyterrier_cascade.store import publish
from pyterrier_cascade.store.strings import Strings

META = "catalog.json"
PREFIX = "catalog-"
DTYPES = {
    f"{DOCNOS}.bytes": "|u1",
    f"{DOCNOS}.ends": "<i8",
    "entries": "<u8",
    "offsets": "<u8",
    "checks": "<u4",
    "hashes": "<u8",
    "order": "<u4",
    "blocks": "<u4",
}
"""Those of shards end to end; all hashes, sorted; the row of each; the checksum of each block of these hashes."""
BLOCK = 64
"""How many sorted hashes share a checksum."""


@dataclass(frozen=True)
class Spans:
    """Where the tokens of some entries are; all ``(n,)``.

    Attributes:
        shards: The number of each one's shard.
        starts: Its first token in that shard.
        lengths: Its tokens.
        checks: Its checksum.
        docnos: The name of its document.
        places: Which of the document's entries it is.
        n_entries: How many the document has.
    """

    shards: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    checks: np.ndarray
    docnos: list[memoryview]
    places: np.ndarray
    n_entries: np.ndarray


def catalog_name(shards: Mapping[int, Shard]) -> str:
    """Returns the name of the folder of these shards' catalog, by their numbers and contents."""
    return PREFIX + publish.seal({"shards": _table(shards)})[:16]


def write_catalog(folder: Path, shards: Mapping[int, Shard]) -> None:
    """Writes the catalog of shards into an empty folder, with some 25 bytes of memory for each document.

    Raises:
        ValueError: If a docno is in two shards, or the small files of a shard are damaged.
    """

    def each(name: str) -> Iterator[np.ndarray]:
        return (shard.array(name) for shard in shards.values())

    joined = {f"{DOCNOS}.bytes": iter, f"{DOCNOS}.ends": _ends, "entries": _edges, "offsets": _edges, "checks": iter}
    for name, join in joined.items():
        _write(folder, name, join(each(name)))
    hashes = np.concatenate([np.empty(0, "<u8"), *each("hashes")])
    order = np.concatenate([np.empty(0, "<u4"), *_by_hash(hashes)])
    hashes = hashes[order]
    _refuse_repeated(hashes, order, _docnos(folder), shards)
    blocks = [zlib.crc32(hashes[start : start + BLOCK]) for start in range(0, len(hashes), BLOCK)]
    for name, array in (("hashes", hashes), ("order", order), ("blocks", blocks)):
        _write(folder, name, [array])
    fields = {"shards": _table(shards), "files": {path.name: path.stat().st_size for path in folder.iterdir()}}
    (folder / META).write_bytes(publish.sealed(fields))


def _write(folder: Path, name: str, pieces: Iterable[np.ndarray]) -> None:
    with open(folder / f"{name}.bin", "wb") as file:
        for piece in pieces:
            file.write(np.asarray(piece).astype(DTYPES[name]).data)


def _mapped(folder: Path, name: str) -> np.ndarray:
    path = folder / f"{name}.bin"
    return np.asarray(np.memmap(path, DTYPES[name], "r")) if path.stat().st_size else np.empty(0, DTYPES[name])


def _docnos(folder: Path) -> Strings:
    return Strings(_mapped(folder, f"{DOCNOS}.bytes"), _mapped(folder, f"{DOCNOS}.ends"))


def _table(shards: Mapping[int, Shard]) -> list[dict[str, int | str]]:
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


def _by_hash(hashes: np.ndarray) -> Iterator[np.ndarray]:
    # A sixteenth at a time, as sorting takes memory.
    for top in range(16):
        here = np.flatnonzero(hashes >> np.uint64(60) == top)
        yield here[np.argsort(hashes[here], kind="stable")].astype("<u4")


def _refuse_repeated(hashes: np.ndarray, order: np.ndarray, docnos: Strings, shards: Mapping[int, Shard]) -> None:
    alike = np.flatnonzero(hashes[1:] == hashes[:-1])
    rows = np.sort(order[np.union1d(alike, alike + 1)]).astype(np.int64)
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

    Documents and entries have numbers that stay the same when shards are added: the number of the shard, the place of
    the document in it and, in the last 16 bits, the place of the entry in the document.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        try:
            fields = publish.read_sealed(folder / META)
        except ValueError:
            raise self._damaged() from None
        if any((folder / name).stat().st_size != size for name, size in fields["files"].items()):
            raise self._damaged()
        self.shards = fields["shards"]
        self.numbers = np.array([shard["number"] for shard in self.shards], np.int64)
        self.seals = {shard["number"]: shard[publish.SEAL] for shard in self.shards}
        self.row_edges = self._edges("n_documents")
        self.entry_edges = self._edges("n_entries")
        self.token_edges = self._edges("n_tokens")
        self._docnos = _docnos(folder)
        self._bytes = memoryview(self._docnos.blob)
        self._entries, self._offsets, self._checks = (
            _mapped(folder, name) for name in ("entries", "offsets", "checks")
        )
        self._hashes, self._order, self._blocks = (_mapped(folder, name) for name in ("hashes", "order", "blocks"))

    def _edges(self, name: str) -> np.ndarray:
        return np.cumsum([0] + [shard[name] for shard in self.shards])

    def _damaged(self) -> ValueError:
        return ValueError(f"{str(self.folder)!r} is damaged; delete that folder, it is made again from the shards")

    def __len__(self):
        """Returns the number of documents."""
        return int(self.row_edges[-1])

    def numbered(self, rows: np.ndarray) -> np.ndarray:
        """Returns the numbers of documents, by their rows in this catalog ``(n,)``."""
        place = np.searchsorted(self.row_edges, rows, "right") - 1
        return self.numbers[place] << 40 | (rows - self.row_edges[place]) << 16

    def located(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the place among the shards and the row of each document or entry ``(n,)``, by their numbers."""
        if not len(self):
            known = np.zeros(len(numbers), bool)
        else:
            shards, documents = numbers >> 40, numbers >> 16 & 0xFFFFFF
            place = np.searchsorted(self.numbers, shards).clip(max=len(self.numbers) - 1)
            known = (self.numbers[place] == shards) & (documents < np.diff(self.row_edges)[place])
        if not known.all():
            raise self._unknown(numbers[~known][0])
        return (place, self.row_edges[place] + documents) if len(numbers) else (numbers, numbers)

    def _unknown(self, number: int) -> IndexError:
        return IndexError(f"there is no {number} in the cache; use the numbers that find returns, without its -1")

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
        gone = np.flatnonzero(rows < 0)
        firsts, afters = places[gone], np.searchsorted(self._hashes, hashes[gone], "right")
        for i in np.flatnonzero(afters > firsts).tolist():
            rows[gone[i]] = self._among(range(firsts[i], afters[i]), names[gone[i]], hashes[gone[i]])
        missing = rows[gone] < 0
        self._prove_missing(hashes[gone][missing], firsts[missing], afters[missing])
        return rows

    def _among(self, places: range, name: bytes, wanted: np.uint64) -> int:
        for place in places:
            row = int(self._order[place])
            stored = bytes(self.docno_bytes(np.array([row]))[0]) if row < len(self) else b""
            if stored == name:
                return row
            if hashed([stored])[0] != wanted:
                raise self._damaged()
        return -1

    def _prove_missing(self, wanted: np.ndarray, firsts: np.ndarray, afters: np.ndarray) -> None:
        # A flipped bit in the sorted hashes must not make a document look missing.
        before, behind = (firsts - 1).clip(min=0), afters.clip(max=len(self) - 1)
        for block in np.unique(np.concatenate([before, behind]) // BLOCK).tolist():
            if zlib.crc32(self._hashes[block * BLOCK : (block + 1) * BLOCK]) != self._blocks[block]:
                raise self._damaged()
        unsorted = ((firsts > 0) & (self._hashes[before] >= wanted)) | (
            (afters < len(self)) & (self._hashes[behind] <= wanted)
        )
        if unsorted.any():
            raise self._damaged()

    def _within(self, place: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first, last = (self._entries[rows + more].astype(np.int64) for more in (0, 1))
        if ((last <= first) | (first < self.entry_edges[place]) | (last > self.entry_edges[place + 1])).any():
            raise self._damaged()
        return first, last - first

    def entries(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the entries of documents, one after the other, and how many each has ``(n,)``."""
        _, n_entries = self._within(*self.located(numbers))
        places = np.arange(n_entries.sum()) - np.repeat(np.cumsum(n_entries) - n_entries, n_entries)
        return np.repeat(numbers, n_entries) + places, n_entries

    def spans(self, numbers: np.ndarray) -> Spans:
        """Returns where the tokens of entries are."""
        place, rows = self.located(numbers)
        first, n_entries = self._within(place, rows)
        places = numbers & 0xFFFF
        if (places >= n_entries).any():
            raise self._unknown(numbers[places >= n_entries][0])
        starts, ends = (self._offsets[first + places + more].astype(np.int64) for more in (0, 1))
        if ((ends <= starts) | (starts < self.token_edges[place]) | (ends > self.token_edges[place + 1])).any():
            raise self._damaged()
        return Spans(
            shards=self.numbers[place],
            starts=starts - self.token_edges[place],
            lengths=ends - starts,
            checks=self._checks[first + places],
            docnos=self.docno_bytes(rows),
            places=places,
            n_entries=n_entries,
        )
