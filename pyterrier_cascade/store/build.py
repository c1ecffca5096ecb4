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
from pyterrier_cascade.store.documents import Document, checked, chunks
from pyterrier_cascade.store.dtypes import DTYPES
from pyterrier_cascade.store.encoding import Encode, encode_into
from pyterrier_cascade.store.folder import END, META, Changes, StoreFolder, shard_name
from pyterrier_cascade.store.indexing import bring_up_to_date
from pyterrier_cascade.store.progress import progress
from pyterrier_cascade.store.shards import ShardWriter, encoded, hashed

NOT_COMPARED = {publish.SEAL, "model", "parts"}
"""These fields of ``pt_meta.json`` may differ. The fingerprint says which encoder it was, the name may be a path, and
the parts describe the layers that join states."""


@dataclass(frozen=True)
class Builder:
    """Fills a store with the documents of a corpus; see :meth:`DocumentStore.build`.

    Attributes:
        path: The folder of the store.
        encode: The model.
        meta: The content of ``pt_meta.json``.
        read_meta: Reads ``pt_meta.json`` and checks its kind.
        batch_size: The texts that are encoded together.
        shards: The numbers of the shards that this build makes; None for all.
        n_documents: The size of the corpus; None where it is unknown.
        text_field: The field with the text.
        verbose: Whether to say the size and show the progress.
    """

    path: Path
    encode: Encode
    meta: Mapping[str, Any]
    read_meta: Callable[[Path], Mapping[str, Any]]
    batch_size: int
    shards: frozenset[int] | None
    n_documents: int | None
    text_field: str
    verbose: bool

    @property
    def folder(self) -> StoreFolder:
        """The folder with its shards."""
        return StoreFolder(self.path, self.meta)

    def run(self, corpus: Iterable[Mapping[str, Any]], pool: Any = None) -> None:
        """Writes the shards that are not there, and compares those that are there to the corpus.

        Args:
            corpus: The documents.
            pool: The pool whose workers write; this process writes unless given.
        """
        there = {path.name for path in self.path.iterdir()} if self.path.exists() else set()
        if META not in there and any(not name.startswith(".") for name in there):
            raise FileExistsError(f"{str(self.path)!r} exists and is no document cache; give another path")
        with self.explaining_full_disk():
            self.path.mkdir(parents=True, exist_ok=True)
            publish.sweep(self.path)
            self._claim()
            total = None if self.n_documents is None or not self.verbose else self._to_do()
            with progress("encoding documents", "documents", self.verbose, total) as done:
                units = Units(self, corpus)
                if pool is None:
                    for unit in units:
                        self.write(unit, pt.tqdm.write if self.verbose else _nothing, done)
                else:
                    for n_documents, announcements in pool.map(Writing(self), units):
                        done(n_documents)
                        for text in announcements if self.verbose else ():
                            pt.tqdm.write(text)
            self._end({"n_documents": units.n_documents, "n_shards": units.n_shards})
            bring_up_to_date(self.folder)

    def explaining_full_disk(self):
        """Explains an error about a full disk."""
        return publish.explaining_full_disk(
            f"the disk with {str(self.path)!r} is full; what was finished is kept: make room, run the same again"
        )

    def makes(self, number: int) -> bool:
        """Returns whether this build makes a shard."""
        return self.shards is None or number in self.shards

    def _claim(self) -> None:
        with self.folder.alone():
            if not (self.path / META).is_file():
                publish.publish_file(self.path / META, publish.sealed(dict(self.meta)))
        there = self.read_meta(self.path)
        for key in sorted((self.meta.keys() | there.keys()) - NOT_COMPARED):
            old, new = there.get(key), self.meta.get(key)
            if old != new:
                raise ValueError(
                    f"the cache at {str(self.path)!r} has {key} {old!r}, this build {new!r}; "
                    "build with the same settings, or give another path"
                )

    def _to_do(self) -> int:
        size, there = self.meta["shard_size"], {*self.folder.built(), *self.folder.changes.removed}
        missing = set(range(math.ceil(self.n_documents / size))) - there
        return sum(min(size, self.n_documents - number * size) for number in missing if self.makes(number))

    def chunks(self, corpus: Iterable[Mapping[str, Any]]) -> Iterator[list[Document]]:
        """Yields the documents of each shard. An empty corpus has one empty shard."""
        found = chunks(checked(corpus, self.text_field), self.meta["shard_size"])
        yield next(found, [])
        yield from found

    def compare(self, number: int, documents: Sequence[Document]) -> None:
        """Raises unless a shard that is there was made of these documents."""
        shard = self.folder.shard(number, Changes())
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

    def write(self, unit: "Unit", announce: Callable[[str], Any], progress: Callable[[int], Any]) -> None:
        """Writes a shard.

        Args:
            unit: Its number, its documents, and whether it is the first, before which the size is announced.
            announce: Called with the announcement.
            progress: Called with the number of documents of each batch.
        """
        number, documents, is_first = unit

        def check_size(n_tokens: float) -> None:
            announce(self._announcement(n_tokens, len(documents)))

        first = check_size if is_first else _nothing
        with (
            publish.publishing_folder(self.path / shard_name(number), keep=True) as folder,
            ShardWriter(folder, self.meta) as shard,
        ):
            encode_into(shard, documents, self.encode, self.batch_size, progress, first)
            shard.finish(corpus=_digest(documents))

    def _announcement(self, tokens: float, in_shard: int) -> str:
        if self.n_documents is None:
            to_do, whose = in_shard, "its first shard"
        else:
            to_do = self._to_do()
            whose = f"{to_do:,} documents of {tokens:.0f} tokens"
        dtype = DTYPES[self.meta["dtype"]]
        row = self.meta["width"] * dtype.stored.itemsize + dtype.scale_bytes
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

    def _end(self, fields: dict[str, int]) -> None:
        there, beyond = self.folder.end, self.folder.built()[-1:]
        here = f"{fields['n_documents']} documents in {fields['n_shards']} shards"
        if there and there["n_documents"] != fields["n_documents"]:
            raise self.other_size(f"{there['n_documents']} documents", here)
        if beyond and beyond[0] >= fields["n_shards"]:
            raise self.other_size(f"{beyond[0] + 1} shards or more", here)
        if not there:
            publish.publish_file(self.path / END, publish.sealed(fields))

    def other_size(self, there: str, here: str) -> ValueError:
        """Returns the error for a corpus of another size."""
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


Unit = tuple[int, list[Document], bool]


class Units:
    """The shards that are to be written, each with its documents; those that are there are compared on the way.

    Args:
        builder: The builder that writes them.
        corpus: The documents.
    """

    def __init__(self, builder: Builder, corpus: Iterable[Mapping[str, Any]]):
        self.builder, self.corpus = builder, corpus
        self.n_documents = self.n_shards = 0
        self._seen, self._unwritten = SortedRuns(), {}

    def __iter__(self) -> Iterator[Unit]:
        first, end = True, self.builder.folder.end
        removed = frozenset(self.builder.folder.changes.removed)
        for number, documents in enumerate(self.builder.chunks(self.corpus)):
            if end and documents and number >= end["n_shards"]:
                raise self.builder.other_size(f"{end['n_documents']} documents", "more")
            self.n_documents, self.n_shards = self.n_documents + len(documents), number + 1
            self._refuse_repeated([docno for docno, _ in documents], number)
            if number in removed:
                continue
            if self._there(number):
                self.builder.compare(number, documents)
            elif self.builder.makes(number):
                self._unwritten[number] = [docno for docno, _ in documents]
                yield number, documents, first
                first = False

    def _there(self, number: int) -> bool:
        return (self.builder.path / shard_name(number)).is_dir()

    def _refuse_repeated(self, docnos: Sequence[str], number: int) -> None:
        hashes = hashed(encoded(docnos))
        counts = Counter(docnos)
        repeated = [docno for docno, count in counts.items() if count > 1]
        if not repeated:
            alike = [docnos[place] for place in np.flatnonzero(self._seen.have(hashes))]
            # Shards that another process is still writing cannot be compared here; the index refuses them then.
            others = {docno for shard in range(number) for docno in self._docnos(shard)} if alike else ()
            repeated = [docno for docno in alike if docno in others]
        if repeated:
            more = f" and {len(repeated) - 1} more docnos" * (len(repeated) > 1)
            raise ValueError(
                f"docno {repeated[0]!r}{more} given to more than one document; drop or rename the repeated ones"
            )
        self._seen.add(hashes)
        self._unwritten = {one: docnos for one, docnos in self._unwritten.items() if not self._there(one)}

    def _docnos(self, number: int) -> Sequence[str]:
        if self._there(number):
            return self.builder.folder.shard(number, Changes()).docnos()
        return self._unwritten.get(number, ())


@dataclass(frozen=True)
class Writing:
    """The work of a pool's worker on a shard.

    Attributes:
        builder: The builder.
    """

    builder: Builder

    def __call__(self, unit: Unit) -> tuple[int, list[str]]:
        """Writes a shard and returns the number of its documents and the announcements."""
        announcements: list[str] = []
        if not (self.builder.path / META).is_file():
            raise FileNotFoundError(
                f"a worker does not see {str(self.builder.path)!r}; give a path that is the same on all machines"
            )
        with self.builder.explaining_full_disk():
            self.builder.write(unit, announcements.append, _nothing)
        return len(unit[1]), announcements


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
