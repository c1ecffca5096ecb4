"""Filling a document cache: shard by shard, as often as it takes."""

import errno
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyterrier as pt

from pyterrier_cascade.dcbert.layout import END, META, opened, read_end, read_meta, shard_numbers, up_to_date
from pyterrier_cascade.dcbert.quantise import DTYPES
from pyterrier_cascade.dcbert.shards import Shard, ShardWriter, encoded, hashed, shard_name
from pyterrier_cascade.store import publish

Encode = Callable[[list[str]], tuple[np.ndarray, np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Builder:
    """Fills a cache with the documents of a corpus; see :meth:`DocumentCache.build`.

    Attributes:
        folder: The folder of the cache.
        encode: Gives the token states of texts.
        meta: What ``pt_meta.json`` says of the cache.
        batch_size: How many texts are encoded together.
        shards: The numbers of the shards that are done; None for all.
        n_documents: The size of the corpus, where it is known.
        text_field: The field with the text.
        verbose: Whether it says what it does.
    """

    folder: Path
    encode: Encode
    meta: Mapping[str, Any]
    batch_size: int
    shards: frozenset[int] | None
    n_documents: int | None
    text_field: str
    verbose: bool

    def run(self, corpus: Iterable[Mapping[str, Any]], pool: Any = None) -> None:
        """Writes the shards that are not there, and compares those that are to the corpus.

        Args:
            corpus: The documents.
            pool: Whose workers write; this process unless given.
        """
        there = {path.name for path in self.folder.iterdir()} if self.folder.exists() else set()
        if META not in there and any(not name.startswith(".") for name in there):
            raise FileExistsError(f"{str(self.folder)!r} exists and is no document cache; give another path")
        with self.full_disk_named(), publish.Writer(self.folder) as writer:
            self._claim(writer)
            with self._bar() as bar:
                units = Units(self, corpus)
                if pool is None:
                    for unit in units:
                        self.write(writer, unit, pt.tqdm.write if self.verbose else _nothing, bar.update)
                else:
                    for n_documents, said in pool.map(Writing(self), units):
                        bar.update(n_documents)
                        for text in said if self.verbose else ():
                            pt.tqdm.write(text)
            self._end(writer, {"n_documents": units.n_documents, "n_shards": units.n_shards})
            up_to_date(self.folder, self.meta, writer)

    def full_disk_named(self):
        """Says what a full disk means for the work inside."""
        return publish.full_disk_named(
            f"the disk with {str(self.folder)!r} is full; what was finished is kept: make room, run the same again"
        )

    def mine(self, number: int) -> bool:
        """Whether a shard is to be done."""
        return self.shards is None or number in self.shards

    def _claim(self, writer: publish.Writer) -> None:
        with writer.alone():
            if not (self.folder / META).is_file():
                writer.publish(META, publish.sealed(dict(self.meta)))
        there = read_meta(self.folder)
        # The fingerprint says which encoder it is; its name may be a path, and what joins its states another one.
        for key in sorted((self.meta.keys() | there.keys()) - {publish.SEAL, "model", "parts"}):
            old, new = there.get(key), self.meta.get(key)
            if old != new:
                raise ValueError(
                    f"the cache at {str(self.folder)!r} has {key} {old!r}, this build {new!r}; "
                    "build with the same settings, or give another path"
                )

    def _bar(self):
        total = None if self.n_documents is None else self._to_do()
        return pt.tqdm(total=total, desc="encoding documents", unit=" documents", disable=not self.verbose)

    def _to_do(self) -> int:
        size, there = self.meta["shard_size"], set(shard_numbers(self.folder))
        missing = set(range(math.ceil(self.n_documents / size))) - there
        return sum(min(size, self.n_documents - number * size) for number in missing if self.mine(number))

    def chunks(self, corpus: Iterable[Mapping[str, Any]]) -> Iterator[list[tuple[str, str]]]:
        """Yields docno and text of the documents of each shard."""
        documents = (self._document(number, document) for number, document in enumerate(corpus))
        chunk = list(islice(documents, self.meta["shard_size"]))
        while True:
            yield chunk
            if not (chunk := list(islice(documents, self.meta["shard_size"]))):
                return

    def _document(self, number: int, document: Mapping[str, Any]) -> tuple[str, str]:
        if not isinstance(document, Mapping):
            raise ValueError(f"document {number} is {document!r}, not a dictionary")
        values = []
        for field in ("docno", self.text_field):
            if field not in document:
                raise KeyError(f"document {number} has no {field!r}, only {', '.join(map(repr, document))}")
            if not isinstance(document[field], str):
                value = document[field]
                raise ValueError(f"the {field} of document {number} is {value!r} ({type(value).__name__}), not a str")
            values.append(document[field])
        if not values[0]:
            raise ValueError(f"document {number} has an empty docno")
        return values[0], values[1]

    def shard(self, number: int) -> Shard:
        """Returns a shard that is there."""
        return opened(self.folder, number, self.meta)

    def compare(self, number: int, documents: Sequence[tuple[str, str]]) -> None:
        """Raises unless a shard that is there was made of these documents."""
        shard = self.shard(number)
        if shard.meta["corpus"] == _digest(documents):
            return
        there, here = shard.docnos(), [docno for docno, _ in documents]
        what = "the same docnos with other texts"
        if there != here:
            place = next((i for i, pair in enumerate(zip(there, here, strict=False)) if pair[0] != pair[1]), None)
            what = f"{len(there)} documents where the corpus has {len(here)}"
            if place is not None:
                what = f"document {there[place]!r} where the corpus has {here[place]!r}"
        raise ValueError(
            f"{shard_name(number)} of {str(self.folder)!r} was made from another corpus: it holds {what}; give the "
            "same corpus in the same order, or another path"
        )

    def write(
        self, writer: publish.Writer, unit: "Unit", say: Callable[[str], Any], progress: Callable[[int], Any]
    ) -> None:
        """Writes a shard.

        Args:
            writer: This process's, in the folder.
            unit: Its number, its documents, and whether it is the first, before which the size is announced.
            say: Told the announcement.
            progress: Told how many documents were encoded.
        """
        number, documents, first = unit
        settings = {key: self.meta[key] for key in ("dtype", "width", "fingerprint")}
        with writer.publishing(shard_name(number)) as folder, ShardWriter(folder, settings) as shard:
            for start in range(0, len(documents), self.batch_size):
                docnos, texts = (list(part) for part in zip(*documents[start : start + self.batch_size], strict=True))
                states, lengths, owner = self._checked(docnos, *self.encode(texts))
                if first and not start:
                    say(self._announcement(len(states) / len(docnos), len(documents)))
                shard.add(docnos, states, lengths, owner)
                progress(len(docnos))
            shard.finish(corpus=_digest(documents))

    def _checked(self, docnos: Sequence[str], states, lengths, owner) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        states, lengths, owner = np.ascontiguousarray(states, np.float32), np.asarray(lengths), np.asarray(owner)
        if states.ndim != 2 or states.shape[1] != self.meta["width"]:
            raise ValueError(f"encode returned states of shape {states.shape}, not (n_tokens, {self.meta['width']})")
        if len(lengths) != len(owner) or lengths.sum() != len(states):
            raise ValueError(
                f"encode returned {len(lengths)} lengths that sum to {lengths.sum()} for {len(states)} tokens, and "
                f"{len(owner)} owners; they must agree"
            )
        if not np.array_equal(np.unique(owner), np.arange(len(docnos))) or (np.diff(owner) < 0).any():
            raise ValueError(f"the owners that encode returns must ascend and name each of the {len(docnos)} documents")
        if (lengths < 1).any():
            raise ValueError(
                f"encode returned an entry without tokens for document {docnos[owner[lengths.argmin()]]!r}"
            )
        return states, lengths.astype(np.int64), owner.astype(np.int64)

    def _announcement(self, tokens: float, in_shard: int) -> str:
        if self.n_documents is None:
            to_do, who = in_shard, "its first shard"
        else:
            to_do = self._to_do()
            who = f"{to_do:,} documents of {tokens:.0f} tokens"
        row = self.meta["width"] * DTYPES[self.meta["dtype"]].itemsize + 4 * (self.meta["dtype"] == "int8")
        # The small files of a document and its line in the catalog are about a hundred bytes.
        needed, free = to_do * (tokens * row + 100), shutil.disk_usage(self.folder).free
        sizes = f"about {readable(needed)} for {who} in {self.meta['dtype']}; the disk has {readable(free)} free"
        if needed > free:
            raise publish.DiskFull(
                errno.ENOSPC,
                f"{str(self.folder)!r} needs {sizes}: make room, or choose another path, dtype='int8' or shorter "
                "documents",
            )
        return f"{self.folder}: {sizes}"

    def _end(self, writer: publish.Writer, fields: dict[str, int]) -> None:
        there, beyond = read_end(self.folder), shard_numbers(self.folder)[-1:]
        here = f"{fields['n_documents']} documents in {fields['n_shards']} shards"
        if there and there["n_documents"] != fields["n_documents"]:
            raise self.other_size(f"{there['n_documents']} documents", here)
        if beyond and beyond[0] >= fields["n_shards"]:
            raise self.other_size(f"{beyond[0] + 1} shards or more", here)
        if not there:
            writer.publish(END, publish.sealed(fields))

    def other_size(self, there: str, here: str) -> ValueError:
        """Returns the error for a corpus of another size."""
        return ValueError(
            f"{str(self.folder)!r} was made from another corpus: of {there}, where this one has {here}; give the same "
            "corpus, or another path"
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


Unit = tuple[int, list[tuple[str, str]], bool]


class Units:
    """The shards that are to be written, each with its documents; those that are there are compared on the way.

    Args:
        builder: What writes them.
        corpus: The documents.
    """

    def __init__(self, builder: Builder, corpus: Iterable[Mapping[str, Any]]):
        self.builder, self.corpus = builder, corpus
        self.n_documents = self.n_shards = 0
        self._seen, self._unwritten = SortedRuns(), {}

    def __iter__(self) -> Iterator[Unit]:
        first, end = True, read_end(self.builder.folder)
        for number, documents in enumerate(self.builder.chunks(self.corpus)):
            if end and documents and number >= end["n_shards"]:
                raise self.builder.other_size(f"{end['n_documents']} documents", "more")
            self.n_documents, self.n_shards = self.n_documents + len(documents), number + 1
            self._refuse_repeated([docno for docno, _ in documents], number)
            if self._there(number):
                self.builder.compare(number, documents)
            elif self.builder.mine(number):
                self._unwritten[number] = [docno for docno, _ in documents]
                yield number, documents, first
                first = False

    def _there(self, number: int) -> bool:
        return (self.builder.folder / shard_name(number)).is_dir()

    def _refuse_repeated(self, docnos: Sequence[str], number: int) -> None:
        hashes = hashed(encoded(docnos))
        counts = Counter(docnos)
        repeated = [docno for docno, count in counts.items() if count > 1]
        if not repeated:
            alike = [docnos[place] for place in np.flatnonzero(self._seen.have(hashes))]
            # Only what another process is still writing cannot be compared here; the catalog refuses it then.
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
        return self.builder.shard(number).docnos() if self._there(number) else self._unwritten.get(number, ())


@dataclass(frozen=True)
class Writing:
    """What a worker does with a shard.

    Attributes:
        builder: What writes.
    """

    builder: Builder

    def __call__(self, unit: Unit) -> tuple[int, list[str]]:
        """Writes a shard and returns how many documents it has, and what is to be said."""
        said: list[str] = []
        if not (self.builder.folder / META).is_file():
            raise FileNotFoundError(
                f"a worker does not see {str(self.builder.folder)!r}; give a path that is the same on all machines"
            )
        with self.builder.full_disk_named(), publish.Writer(self.builder.folder) as writer:
            self.builder.write(writer, unit, said.append, _nothing)
        return len(unit[1]), said


def _nothing(*_) -> None:
    pass


def _digest(documents: Sequence[tuple[str, str]]) -> str:
    return publish.seal({"documents": documents})


def readable(n_bytes: float) -> str:
    """Returns a number of bytes as people read it."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"
