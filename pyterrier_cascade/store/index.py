"""The index of a document store: where each docno, each entry and each token is. Opening it maps files and reads none.

The look-up is an array of sorted hashes and no database. ``benchmarks/dcbert_cache.py`` compares it with sqlite3, which
does not notice most flipped bits that make a document look missing or give it another number.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyterrier_cascade.store import publish
from pyterrier_cascade.store.publish import Damaged
from pyterrier_cascade.store.shards import DOCNOS, encoded, hashed
from pyterrier_cascade.store.strings import Strings

META = "index.json"
PREFIX = "index-"
DTYPES = {
    f"{DOCNOS}.bytes": "|u1",
    f"{DOCNOS}.ends": "<i8",
    "entries": "<u8",
    "offsets": "<u8",
    "checks": "<u4",
    "hashes": "<u8",
    "order": "<u4",
    "blocks": "<u4",
    "dead": "<u4",
}
"""First come the arrays of all shards, end to end. ``hashes``, ``order`` and ``blocks`` are of documents that count:
their sorted hashes, the row of each, the checksum of each block of hashes. ``dead`` has the rows that do not count."""
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


def mapped(folder: Path, name: str) -> np.ndarray:
    """Returns an array of an index, memory-mapped."""
    path = folder / f"{name}.bin"
    return np.asarray(np.memmap(path, DTYPES[name], "r")) if path.stat().st_size else np.empty(0, DTYPES[name])


def mapped_docnos(folder: Path) -> Strings:
    """Returns the names of all rows, memory-mapped."""
    return Strings(mapped(folder, f"{DOCNOS}.bytes"), mapped(folder, f"{DOCNOS}.ends"))


class Index:
    """The index in a folder, memory-mapped.

    A document is found by the hash of its docno, and its docno is compared to the letter. A document that is not found
    is proved to be missing by the checksums of the hashes beside its place.

    Documents and entries have numbers that stay the same when shards are added: the number of the shard, the place of
    the document in it and, in the last 16 bits, the place of the entry in the document. A row is the place of a
    document among those of all shards; some rows do not count, because they were deleted or replaced.

    Args:
        folder: The folder.

    Attributes:
        numbers: The numbers of the shards, ascending ``(n_shards,)``.
        seals: The hash of each shard's ``shard.json``, by the shard's number.
        changes: The hash of the changes that the index takes into account.
        counts: The ``n_documents``, ``n_entries`` and ``n_tokens`` that count.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        try:
            fields = publish.read_sealed(folder / META)
        except ValueError:
            raise self._damaged() from None
        if any((folder / name).stat().st_size != size for name, size in fields["files"].items()):
            raise self._damaged()
        shards = fields["shards"]
        self.numbers = np.array([shard["number"] for shard in shards], np.int64)
        self.seals = {shard["number"]: shard[publish.SEAL] for shard in shards}
        self.changes, self.counts = fields["changes"], fields["counts"]
        self._row_edges, self._entry_edges, self._token_edges = (
            np.cumsum([0] + [shard[name] for shard in shards]) for name in ("n_documents", "n_entries", "n_tokens")
        )
        self._docnos = mapped_docnos(folder)
        self._entries, self._offsets, self._checks = (mapped(folder, name) for name in ("entries", "offsets", "checks"))
        self._hashes, self._order, self._blocks = (mapped(folder, name) for name in ("hashes", "order", "blocks"))
        self._dead = mapped(folder, "dead")
        if zlib.crc32(self._dead) != fields["dead"]:
            raise self._damaged()

    def _damaged(self) -> Damaged:
        return Damaged(f"{str(self.folder)!r} is damaged; delete that folder, it is made again from the shards")

    def __len__(self):
        """Returns the number of documents that count."""
        return len(self._hashes)

    def documents(self) -> np.ndarray:
        """Returns the numbers of the documents that count, ascending ``(n_documents,)``."""
        return self._numbered(np.delete(np.arange(self._row_edges[-1]), self._dead))

    def _numbered(self, rows: np.ndarray) -> np.ndarray:
        place = np.searchsorted(self._row_edges, rows, "right") - 1
        return self.numbers[place] << 40 | (rows - self._row_edges[place]) << 16

    def _located(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the place among the shards and the row of each document or entry ``(n,)``, by their numbers."""
        if not len(numbers):
            return numbers, numbers
        if not len(self):
            raise self._unknown(numbers[0])
        shards, documents = numbers >> 40, numbers >> 16 & 0xFFFFFF
        place = np.searchsorted(self.numbers, shards).clip(max=len(self.numbers) - 1)
        rows = self._row_edges[place] + documents
        known = (self.numbers[place] == shards) & (rows < self._row_edges[place + 1])
        if len(self._dead):
            known &= self._dead[np.searchsorted(self._dead, rows).clip(max=len(self._dead) - 1)] != rows
        if not known.all():
            raise self._unknown(numbers[~known][0])
        return place, rows

    def _unknown(self, number: int) -> IndexError:
        return IndexError(f"there is no {number} in the cache; use the numbers that find returns, without its -1")

    def docnos(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the names of documents ``(n,)``, by their numbers."""
        return self._docnos.take(self._located(numbers)[1])

    def find(self, docnos: Sequence[str]) -> np.ndarray:
        """Returns the numbers of the documents with these names, -1 where there is none ``(n,)``."""
        names = encoded(docnos)
        hashes, rows = hashed(names), np.full(len(names), -1)
        if not len(self):
            return rows
        firsts = np.searchsorted(self._hashes, hashes)
        asked, places = np.arange(len(names)), firsts
        # Names of one hash stand side by side: a name that is not at its place is looked for at the next one.
        while len(asked):
            alike = (places < len(self)) & (self._hashes[places.clip(max=len(self) - 1)] == hashes[asked])
            asked, places = asked[alike], places[alike]
            candidates, others = self._order[places].astype(np.int64), []
            if (candidates >= self._row_edges[-1]).any():
                raise self._damaged()
            stored = self._docnos.parts(candidates)
            for number, (name, row, docno) in enumerate(zip(asked.tolist(), candidates.tolist(), stored, strict=True)):
                if docno == names[name]:
                    rows[name] = row
                elif hashed([docno])[0] == hashes[name]:
                    others.append(number)
                else:
                    raise self._damaged()
            asked, places = asked[others], places[others] + 1
        gone = rows < 0
        self._prove_missing(hashes[gone], firsts[gone], np.searchsorted(self._hashes, hashes[gone], "right"))
        rows[~gone] = self._numbered(rows[~gone])
        return rows

    def _prove_missing(self, wanted: np.ndarray, firsts: np.ndarray, afters: np.ndarray) -> None:
        # A flipped bit among the sorted hashes must not make a document look missing.
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
        if ((last <= first) | (first < self._entry_edges[place]) | (last > self._entry_edges[place + 1])).any():
            raise self._damaged()
        return first, last - first

    def entries(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the entries of documents, one after the other, and how many each has ``(n,)``."""
        _, n_entries = self._within(*self._located(numbers))
        places = np.arange(n_entries.sum()) - np.repeat(np.cumsum(n_entries) - n_entries, n_entries)
        return np.repeat(numbers, n_entries) + places, n_entries

    def spans(self, numbers: np.ndarray) -> Spans:
        """Returns where the tokens of entries are."""
        place, rows = self._located(numbers)
        first, n_entries = self._within(place, rows)
        places = numbers & 0xFFFF
        if (places >= n_entries).any():
            raise self._unknown(numbers[places >= n_entries][0])
        starts, ends = (self._offsets[first + places + more].astype(np.int64) for more in (0, 1))
        if ((ends <= starts) | (starts < self._token_edges[place]) | (ends > self._token_edges[place + 1])).any():
            raise self._damaged()
        return Spans(
            shards=self.numbers[place],
            starts=starts - self._token_edges[place],
            lengths=ends - starts,
            checks=self._checks[first + places],
            docnos=self._docnos.parts(rows),
            places=places,
            n_entries=n_entries,
        )
