"""Building a document store from a corpus: shard by shard, and again where it was killed."""

import errno
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyterrier as pt

from pyterrier_cascade.store import publish
from pyterrier_cascade.store.documents import Document, checked, chunks, given_twice
from pyterrier_cascade.store.dtypes import DTYPES
from pyterrier_cascade.store.encoding import Encode, batches
from pyterrier_cascade.store.folder import END, META, StoreFolder, first_difference, shard_name
from pyterrier_cascade.store.indexing import bring_up_to_date
from pyterrier_cascade.store.progress import progress
from pyterrier_cascade.store.shards import ShardWriter, encoded, hashed

Unit = tuple[int, list[Document], bool]
"""A shard to write: its number, its documents, and whether it is the first, before which the size is announced."""


@dataclass(frozen=True)
class Builder:
    """Fills a store with the documents of a corpus; see :meth:`DocumentStore.build`.

    Attributes:
        folder: The folder of the store.
        encode: The model.
        batch_size: The texts that are encoded together.
        shards: The numbers of the shards that this build makes; None for all.
        n_documents: The size of the corpus; None where it is unknown.
        text_field: The field with the text.
        verbose: Whether to say the size and show the progress.
    """

    folder: StoreFolder
    encode: Encode
    batch_size: int
    shards: frozenset[int] | None
    n_documents: int | None
    text_field: str
    verbose: bool

    @property
    def path(self) -> Path:
        """The path of the folder."""
        return self.folder.path

    def run(self, corpus: Iterable[Mapping[str, Any]], pool: Any = None) -> None:
        """Writes the shards that are not there, and compares those that are there to the corpus.

        Args:
            corpus: The documents.
            pool: The pool whose workers write; this process writes unless given.
        """
        there = {path.name for path in self.path.iterdir()} if self.path.exists() else set()
        if META not in there and any(not name.startswith(".") for name in there):
            raise FileExistsError(f"{str(self.path)!r} exists and is no document cache; give another path")
        with self._explaining_full_disk():
            self.path.mkdir(parents=True, exist_ok=True)
            publish.sweep(self.path)
            self._claim()
            with progress("encoding documents", "documents", self.verbose, self._to_do()) as done:
                if pool is None:
                    for unit in self._units(corpus):
                        self._write(unit, pt.tqdm.write if self.verbose else _nothing, done)
                else:
                    for n_documents, announcements in pool.map(self.write_on_worker, self._units(corpus)):
                        done(n_documents)
                        for text in announcements if self.verbose else ():
                            pt.tqdm.write(text)
            bring_up_to_date(self.folder)

    def _explaining_full_disk(self):
        return publish.explaining_full_disk(
            f"the disk with {str(self.path)!r} is full; what was finished is kept: make room, run the same again"
        )

    def _makes(self, number: int) -> bool:
        return self.shards is None or number in self.shards

    def _claim(self) -> None:
        ours = self.folder.meta
        with self.folder.alone():
            if not (self.path / META).is_file():
                publish.publish_file(self.path / META, publish.sealed(dict(ours)))
        there = publish.read_sealed(self.path / META)
        key = first_difference(there, ours)
        if key is not None:
            raise ValueError(
                f"the cache at {str(self.path)!r} has {key} {there.get(key)!r}, this build {ours.get(key)!r}; "
                "build with the same settings, or give another path"
            )

    def _to_do(self) -> int | None:
        """Returns the number of documents that this build encodes; None where the size of the corpus is unknown."""
        if self.n_documents is None:
            return None
        size, there = self.folder.meta["shard_size"], {*self.folder.built(), *self.folder.changes.removed}
        missing = set(range(math.ceil(self.n_documents / size))) - there
        return sum(min(size, self.n_documents - number * size) for number in missing if self._makes(number))

    def _units(self, corpus: Iterable[Mapping[str, Any]]) -> Iterator[Unit]:
        """Yields the shards that are to be written, and compares those that are there on the way."""
        end, removed, seen = self.folder.end, self.folder.changes.removed, SortedRuns()
        n_documents, is_first = 0, True
        for number, documents in enumerate(self._chunks(corpus)):
            if end and documents and number >= end["n_shards"]:
                raise self._other_size(f"{end['n_documents']} documents", "more")
            n_documents += len(documents)
            self._refuse_repeated([docno for docno, _ in documents], number, seen)
            if number in removed:
                continue
            if self._is_there(number):
                self._compare(number, documents)
            elif self._makes(number):
                yield number, documents, is_first
                is_first = False
        self._end(n_documents, number + 1)

    def _chunks(self, corpus: Iterable[Mapping[str, Any]]) -> Iterator[list[Document]]:
        """Yields the documents of each shard. An empty corpus has one empty shard."""
        found = chunks(checked(corpus, self.text_field), self.folder.meta["shard_size"])
        yield next(found, [])
        yield from found

    def _is_there(self, number: int) -> bool:
        return (self.path / shard_name(number)).is_dir()

    def _refuse_repeated(self, docnos: Sequence[str], number: int, seen: "SortedRuns") -> None:
        hashes = hashed(encoded(docnos))
        repeated = [docno for docno, count in Counter(docnos).items() if count > 1]
        if not repeated:
            alike = [docnos[place] for place in np.flatnonzero(seen.have(hashes))]
            # Shards that are still being written elsewhere cannot be compared here; the index refuses them then.
            there = [shard for shard in range(number) if self._is_there(shard)] if alike else ()
            others = {docno for shard in there for docno in self.folder.shard(shard).docnos()}
            repeated = [docno for docno in alike if docno in others]
        if repeated:
            raise given_twice(repeated, "; drop or rename the repeated ones")
        seen.add(hashes)

    def _compare(self, number: int, documents: Sequence[Document]) -> None:
        """Raises unless a shard that is there was made of these documents."""
        shard = self.folder.shard(number)
        if shard.meta.get("corpus") == _digest(documents):
            return
        there, here = shard.docnos(), [docno for docno, _ in documents]
        difference = "the same docnos with other texts"
        if there != here:
            place = next((i for i, pair in enumerate(zip(there, here, strict=False)) if pair[0] != pair[1]), None)
            difference = f"{len(there)} documents where the corpus has {len(here)}"
            if place is not None:
                difference = f"document {there[place]!r} where the corpus has {here[place]!r}"
        raise ValueError(
            f"{shard_name(number)} of {str(self.path)!r} was made from another corpus: it holds {difference}; give the "
            "same corpus in the same order, or another path; add, replace and delete change a finished cache"
        )

    def _write(self, unit: Unit, announce: Callable[[str], Any], progress: Callable[[int], Any]) -> None:
        number, documents, is_first = unit
        meta, path = self.folder.meta, self.path / shard_name(number)
        with (
            publish.publishing_folder(path, keep=True) as folder,
            ShardWriter(folder, meta, corpus=_digest(documents)) as shard,
        ):
            for batch in batches(documents, self.encode, self.batch_size, meta["width"]):
                if is_first:
                    announce(self._announcement(len(batch.states) / len(batch.docnos), len(documents)))
                    is_first = False
                shard.add(*batch)
                progress(len(batch.docnos))

    def write_on_worker(self, unit: Unit) -> tuple[int, list[str]]:
        """Writes a shard on a worker of a pool; returns the number of its documents and the announcements."""
        announcements: list[str] = []
        if not (self.path / META).is_file():
            raise FileNotFoundError(
                f"a worker does not see {str(self.path)!r}; give a path that is the same on all machines"
            )
        with self._explaining_full_disk():
            self._write(unit, announcements.append, _nothing)
        return len(unit[1]), announcements

    def _announcement(self, tokens: float, in_shard: int) -> str:
        to_do = self._to_do()
        whose = "its first shard" if to_do is None else f"{to_do:,} documents of {tokens:.0f} tokens"
        to_do = in_shard if to_do is None else to_do
        dtype = DTYPES[self.folder.meta["dtype"]]
        row = self.folder.meta["width"] * dtype.stored.itemsize + dtype.scale_bytes
        # The small files of a document and its line in the index are about a hundred bytes.
        needed, free = to_do * (tokens * row + 100), shutil.disk_usage(self.path).free
        sizes = f"about {readable(needed)} for {whose} in {dtype.name}; the disk has {readable(free)} free"
        if needed > free:
            raise publish.DiskFull(
                errno.ENOSPC,
                f"{str(self.path)!r} needs {sizes}: make room, or choose another path, dtype='int8' or shorter "
                "documents",
            )
        return f"{self.path}: {sizes}"

    def _end(self, n_documents: int, n_shards: int) -> None:
        there, last = self.folder.end, max(self.folder.built(), default=-1)
        here = f"{n_documents} documents in {n_shards} shards"
        if there and there["n_documents"] != n_documents:
            raise self._other_size(f"{there['n_documents']} documents", here)
        if last >= n_shards:
            raise self._other_size(f"{last + 1} shards or more", here)
        if not there:
            publish.publish_file(self.path / END, publish.sealed({"n_documents": n_documents, "n_shards": n_shards}))

    def _other_size(self, there: str, here: str) -> ValueError:
        return ValueError(
            f"{str(self.path)!r} was made from another corpus: of {there}, where this one has {here}; give the same "
            "corpus, or another path; add, replace and delete change a finished cache"
        )


class SortedRuns:
    """Numbers that grow by many at a time: few sorted arrays, each at least twice as long as the next."""

    def __init__(self):
        self.runs: list[np.ndarray] = []

    def have(self, values: np.ndarray) -> np.ndarray:
        """Returns which of some values were added before ``(n,)``."""
        found = np.zeros(len(values), bool)
        for run in self.runs:
            found |= run[np.searchsorted(run, values).clip(max=len(run) - 1)] == values
        return found

    def add(self, values: np.ndarray) -> None:
        """Adds values, and joins arrays of similar lengths, so that each number is moved a few times only."""
        if len(values):
            self.runs.append(np.sort(values))
        while len(self.runs) > 1 and len(self.runs[-2]) < 2 * len(self.runs[-1]):
            self.runs[-2:] = [np.sort(np.concatenate(self.runs[-2:]), kind="stable")]


def _nothing(*_) -> None:
    pass


def _digest(documents: Sequence[Document]) -> str:
    return publish.seal({"documents": documents})


def readable(n_bytes: float) -> str:
    """Returns a number of bytes as people read it."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"
