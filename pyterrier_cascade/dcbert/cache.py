"""The document cache of DC-BERT (DC-1): the token states of all documents, encoded once."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyterrier as pt

from pyterrier_cascade.dcbert.building import Builder, Encode
from pyterrier_cascade.dcbert.catalog import Catalog, Spans
from pyterrier_cascade.dcbert.layout import KIND, open_catalog, opened, read_end, read_meta
from pyterrier_cascade.dcbert.quantise import DTYPES, check_dtype, restore
from pyterrier_cascade.dcbert.shards import (
    MOST_DOCUMENTS,
    SCALES,
    TOKENS,
    Shard,
    as_bytes,
    checksum,
    shard_name,
)
from pyterrier_cascade.store import publish

if TYPE_CHECKING:
    from pyterrier_cascade.dcbert.cached_ranker import CachedRanker
    from pyterrier_cascade.dcbert.ranker import DCBERT

# Of each flat file of a shard, the bytes that are read from it and how many a token has.
Flat = Mapping[str, tuple[np.ndarray, int]]


@dataclass(frozen=True)
class States:
    """The token states of some entries, end to end.

    Attributes:
        states: In fp16 or int8 ``(n_tokens, width)``.
        lengths: The tokens of each entry ``(n,)``.
        scales: What each token of int8 states is multiplied by, in float32 ``(n_tokens,)``; None for fp16.
    """

    states: np.ndarray
    lengths: np.ndarray
    scales: np.ndarray | None = None

    def fp32(self) -> np.ndarray:
        """Returns the states in float32 ``(n_tokens, width)``."""
        return restore(self.states, self.scales)


class DocumentCache(pt.Artifact):
    """The token states of documents, encoded once and read instead of their texts::

        cache = model.encode(dataset.get_corpus_iter(), "wikiqa.dc")
        bm25 >> cache.reranker()

    It is a folder of shards, each there whole or not at all. A build that is killed loses the shard under way; the
    same call completes it. Several processes may do different shards at once, and readers see what was there when they
    first looked, until :meth:`refresh`.

    A wrong state is never returned. A wrong size, a shard of another model and a changed ``shard.json`` are refused
    when a shard is first used; a changed byte in a document's states, scales, lengths or docno when it is read, by its
    CRC-32; a changed byte anywhere by :meth:`verify`, by SHA-256. Opening costs the same whatever the size, and next to
    no memory.

    Args:
        path: The folder.
        trust: Leave out the CRC-32 of what is read.
    """

    ARTIFACT_TYPE = KIND["type"]
    ARTIFACT_FORMAT = KIND["format"]
    ARTIFACT_PACKAGE_HINT = KIND["package_hint"]

    def __init__(self, path: str | Path, *, trust: bool = False):
        super().__init__(path)
        self.trust = trust
        self.meta = read_meta(self.path)
        self._shards: dict[int, Shard] = {}

    @classmethod
    def build(
        cls,
        path: str | Path,
        corpus: Iterable[Mapping[str, Any]],
        encode: Encode,
        *,
        meta: Mapping[str, Any],
        dtype: str = "fp16",
        shard_size: int = 5000,
        batch_size: int = 256,
        shards: Iterable[int] | None = None,
        n_documents: int | None = None,
        text_field: str = "text",
        verbose: bool = False,
        pool: Any = None,
    ) -> "DocumentCache":
        """Encodes a corpus, or what is missing of it, and returns the cache.

        Shard k holds documents ``k * shard_size`` and following of the corpus. The same input gives the same bytes,
        whoever writes them. Shards that are there are compared to the corpus and not encoded again.

        Args:
            path: The folder of the cache, new or one that the same call began.
            corpus: Dictionaries with ``docno`` and the text.
            encode: Gives for texts their token states ``(n_tokens, width)`` end to end in float32, the tokens of each
                entry ``(n_entries,)`` and the text of each entry as an ascending number ``(n_entries,)``. An entry is
                a text, or a passage of a long one.
            meta: What a reader must know of the model: ``model`` (its name), ``fingerprint``, ``width`` and further
                settings, all that JSON knows.
            dtype: ``"fp16"``, or ``"int8"`` with a scale per token: half the disk.
            shard_size: Documents in a shard.
            batch_size: Texts that are encoded together.
            shards: The numbers of the shards that this process does; all by default.
            n_documents: The size of the corpus, for the time left and the room needed; known of lists.
            text_field: The field with the text.
            verbose: Whether to say the size and show the progress.
            pool: Whose workers encode, a shard each at a time (:class:`~pyterrier_cascade.RayPool`); this process
                unless given. They must see the folder.
        """
        check_dtype(dtype)
        for name, value in (("shard_size", shard_size), ("batch_size", batch_size), ("width", meta.get("width"))):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; give a whole number of 1 or more")
        if shard_size > MOST_DOCUMENTS:
            raise ValueError(f"shard_size is {shard_size}; at most {MOST_DOCUMENTS}")
        if missing := [name for name in ("model", "fingerprint") if name not in meta]:
            raise ValueError(f"meta has no {', '.join(missing)}; a reader must know them")
        Builder(
            # Workers elsewhere have other current folders.
            folder=Path(path).expanduser().absolute(),
            encode=encode,
            meta=json.loads(json.dumps(dict(meta) | KIND | {"dtype": dtype, "shard_size": shard_size})),
            batch_size=batch_size,
            shards=None if shards is None else frozenset(shards),
            n_documents=len(corpus) if n_documents is None and hasattr(corpus, "__len__") else n_documents,
            text_field=text_field,
            verbose=verbose,
        ).run(corpus, pool)
        return cls(path)

    @cached_property
    def _catalog(self) -> Catalog:
        catalog, self._aside = open_catalog(self.path, self.meta)
        return catalog

    def refresh(self) -> "DocumentCache":
        """Sees the shards that were added since it first looked, and returns itself."""
        self.__dict__.pop("_catalog", None)
        self._shards = {}
        return self

    @property
    def dtype(self) -> str:
        """How the states are stored: ``"fp16"`` or ``"int8"``."""
        return self.meta["dtype"]

    @property
    def width(self) -> int:
        """The numbers in a token's state."""
        return self.meta["width"]

    def __len__(self):
        """Returns the number of documents."""
        return len(self._catalog)

    @property
    def n_tokens(self) -> int:
        """The tokens of all documents."""
        return int(self._catalog.token_edges[-1])

    @property
    def n_entries(self) -> int:
        """The entries of all documents: as many as documents, and more where long ones are kept as passages."""
        return int(self._catalog.entry_edges[-1])

    @property
    def missing(self) -> list[int]:
        """The numbers of the shards that are known to be missing."""
        there = self._catalog.numbers.tolist()
        end = read_end(self.path)
        n_shards = end["n_shards"] if end else max(there, default=-1) + 1
        return sorted(set(range(n_shards)) - set(there))

    @property
    def complete(self) -> bool:
        """Whether the whole corpus is in it."""
        end = read_end(self.path)
        return end is not None and self._catalog.numbers.tolist() == list(range(end["n_shards"]))

    @property
    def documents(self) -> np.ndarray:
        """The numbers of all documents, in the order of the corpus ``(n_documents,)``."""
        return self._catalog.numbered(np.arange(len(self)))

    def find(self, docnos: Sequence[str]) -> np.ndarray:
        """Returns the numbers of documents, -1 for those that are not here ``(n,)``.

        They stay the same when shards are added. A document that is one entry has the number of that entry.
        """
        rows = self._catalog.find(list(docnos))
        there = rows >= 0
        rows[there] = self._catalog.numbered(rows[there])
        return rows

    def docnos(self, documents: Sequence[int]) -> np.ndarray:
        """Returns the names of documents, by their numbers ``(n,)``."""
        return self._catalog.docnos(self._catalog.located(np.asarray(documents, np.int64))[1])

    def entries(self, documents: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the entries of documents, one document after the other, and how many each has ``(n,)``.

        A document is one entry, or one for each of its passages.

        Args:
            documents: Their numbers.
        """
        return self._catalog.entries(np.asarray(documents, np.int64))

    def read(self, entries: Sequence[int]) -> States:
        """Returns the states of entries, in this order.

        Args:
            entries: Their numbers.

        Raises:
            ValueError: If what is on disk is not what was written.
        """
        return self.begin(entries)()

    def begin(self, entries: Sequence[int]) -> Callable[[], States]:
        """Lets the disk begin to fetch entries, and returns what waits for them and gives what :meth:`read` gives.

        Args:
            entries: Their numbers.
        """
        spans = self._catalog.spans(np.asarray(entries, np.int64))
        n_tokens = int(spans.lengths.sum())
        states = np.empty((n_tokens, self.width), DTYPES[self.dtype])
        scales = np.empty(n_tokens, "<f4") if self.dtype == "int8" else None
        flat = {TOKENS: (as_bytes(states), self.width * states.itemsize)}
        if scales is not None:
            flat[SCALES] = as_bytes(scales), scales.itemsize
        parts = list(self._parts(spans, flat))
        for shard, name, wanted in parts:
            shard.expect(name, wanted)

        def finish() -> States:
            for shard, name, wanted in parts:
                shard.read(name, wanted)
            if not self.trust:
                self._check(spans, flat)
            return States(states, spans.lengths, scales)

        return finish

    def _parts(self, spans: Spans, flat: Flat) -> Iterator[tuple[Shard, str, list[tuple[int, np.ndarray]]]]:
        # In the order of the disk.
        order = np.lexsort([spans.starts, spans.shards])
        ends = np.cumsum(spans.lengths)
        for part in np.split(order, np.flatnonzero(np.diff(spans.shards[order])) + 1) if len(order) else ():
            shard = self._shard(int(spans.shards[part[0]]))
            for name, (content, size) in flat.items():
                rows = ((size * bound[part]).tolist() for bound in (spans.starts, ends - spans.lengths, ends))
                yield shard, name, [(start, content[here:end]) for start, here, end in zip(*rows, strict=True)]

    def _check(self, spans: Spans, flat: Flat) -> None:
        each = zip(spans.docnos, spans.places.tolist(), spans.n_entries.tolist(), spans.checks.tolist(), strict=True)
        edges = [0, *np.cumsum(spans.lengths).tolist()]
        for number, (docno, place, n_entries, check) in enumerate(each):
            contents = [content[edges[number] * size : edges[number + 1] * size] for content, size in flat.values()]
            if checksum(docno, place, n_entries, contents) != check:
                name, folder = str(docno, "utf-8", "replace"), self.path / shard_name(int(spans.shards[number]))
                raise ValueError(
                    f"document {name!r} in {str(folder)!r} is not what was written; verify() says what is damaged: "
                    "delete that folder and build the cache again, which does this shard only"
                )

    def _shard(self, number: int) -> Shard:
        if number not in self._shards:
            shard = opened(self.path, number, self.meta)
            if shard.meta[publish.SEAL] != self._catalog.seals[number]:
                raise ValueError(
                    f"shard {str(shard.folder)!r} was replaced since this cache looked; call refresh() or open it again"
                )
            self._shards[number] = shard
        return self._shards[number]

    def check(self, fingerprint: str, name: str) -> None:
        """Raises unless the cache was made by the model with this fingerprint.

        Args:
            fingerprint: The model's fingerprint.
            name: What it is called in the error.
        """
        if fingerprint != self.meta["fingerprint"]:
            raise ValueError(
                f"the cache at {str(self.path)!r} was made by {self.meta['model']} (fingerprint "
                f"{self.meta['fingerprint'][:12]}), not by {name} ({fingerprint[:12]}), whose states would mean "
                "something else; encode the corpus with this model, or load the other one"
            )

    def verify(self, verbose: bool = False) -> None:
        """Reads everything and raises unless it is what was written, whole and without a docno twice.

        Args:
            verbose: Whether to show the progress.
        """
        from pyterrier_cascade.dcbert.checking import faults

        if found := faults(self.path, verbose):
            raise ValueError(f"the cache at {str(self.path)!r} is not sound: " + "; ".join(found))

    @classmethod
    def merge(cls, paths: Iterable[str | Path], out: str | Path) -> "DocumentCache":
        """Joins caches of one model in a new folder and returns it; shards are linked where the disk allows.

        Complete caches follow one another. Caches of which none is complete are taken for parts of one corpus: their
        shards keep their numbers.

        Args:
            paths: The folders of the caches.
            out: The new folder.
        """
        from pyterrier_cascade.dcbert.merging import merge

        merge([cls(path) for path in paths], Path(out))
        return cls(out)

    def reranker(self, model: "DCBERT | None" = None, **settings) -> "CachedRanker":
        """Returns a reranker that reads documents here.

        Args:
            model: The DC-BERT whose joint layers are used; the one that made the cache unless given.
            **settings: Those of :class:`~pyterrier_cascade.CachedRanker`.
        """
        from pyterrier_cascade.dcbert.cached_ranker import CachedRanker

        return CachedRanker(self, model, **settings)

    def __repr__(self):
        """Returns what can be typed back in."""
        return f"DocumentCache({str(self.path)!r}{', trust=True' * self.trust})"

    def __eq__(self, other):
        """Whether both are the same folder, used in the same way."""
        if not isinstance(other, DocumentCache):
            return NotImplemented
        return (self.path.resolve(), self.trust) == (other.path.resolve(), other.trust)

    def __hash__(self):
        """Equal caches hash alike."""
        return hash((self.path.resolve(), self.trust))

    def __getstate__(self):
        """It pickles as its path, with when its shards changed: what was opened before knows that it is out of date."""
        path = os.path.abspath(self.path)
        return {"path": path, "trust": self.trust, "changed": os.stat(path).st_mtime_ns}

    def __setstate__(self, state):
        """Opens it again."""
        self.__init__(state["path"], trust=state["trust"])
