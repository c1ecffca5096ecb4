"""Reading token states from the shards of a document store, with a check of every byte."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from pyterrier_cascade.store import publish
from pyterrier_cascade.store.dtypes import DTYPES, unpack
from pyterrier_cascade.store.folder import StoreFolder
from pyterrier_cascade.store.index import Index, Spans
from pyterrier_cascade.store.shards import SCALES, TOKENS, Shard, as_bytes, checksum

Flat = Mapping[str, tuple[np.ndarray, int]]
"""For each flat file of a shard, the bytes that are read from it and the number of bytes of a token."""
REFRESH = "call refresh() or open it again"


@dataclass(frozen=True)
class States:
    """The token states of some entries, end to end.

    Attributes:
        states: The stored numbers ``(n_tokens, width)``, such as fp16 or int8.
        lengths: The tokens of each entry ``(n,)``.
        scales: The factor of each token, in float32 ``(n_tokens,)``; None for a dtype without scales.
    """

    states: np.ndarray
    lengths: np.ndarray
    scales: np.ndarray | None = None

    def fp32(self) -> np.ndarray:
        """Returns the states in float32 ``(n_tokens, width)``."""
        return unpack(self.states, self.scales)


class Reader:
    """Reads the states of entries from the shards that an index lists.

    Args:
        folder: The folder of the store, when the index was made.
        index: Its index.
        trust: Whether to leave out the CRC-32 of what is read.
    """

    def __init__(self, folder: StoreFolder, index: Index, trust: bool):
        self.folder, self.index, self.trust = folder, index, trust
        self._shards: dict[int, Shard] = {}

    def begin(self, entries: np.ndarray) -> Callable[[], States]:
        """Lets the disk begin to fetch entries, and returns a function that waits for them and returns their states.

        Args:
            entries: Their numbers.
        """
        spans, dtype, width = self.index.spans(entries), DTYPES[self.folder.meta["dtype"]], self.folder.meta["width"]
        n_tokens = int(spans.lengths.sum())
        states = np.empty((n_tokens, width), dtype.stored)
        scales = np.empty(n_tokens, "<f4") if dtype.has_scales else None
        flat = {TOKENS: (as_bytes(states), width * states.itemsize)}
        if scales is not None:
            flat[SCALES] = as_bytes(scales), scales.itemsize
        with self._noticing_changes():
            parts = list(self._parts(spans, flat))
            for shard, name, wanted in parts:
                shard.expect(name, wanted)

        def finish() -> States:
            with self._noticing_changes():
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
                folder = self.folder.place(int(spans.shards[number]))
                raise publish.Damaged(
                    f"document {str(docno, 'utf-8', 'replace')!r} in {str(folder)!r} is not what was written; verify() "
                    "says what is damaged: delete that folder and build the cache again, which does this shard only"
                )

    def _shard(self, number: int) -> Shard:
        if number not in self._shards:
            shard = self.folder.shard(number)
            if shard.meta[publish.SEAL] != self.index.seals[number]:
                raise ValueError(f"shard {str(shard.folder)!r} was replaced since this cache looked; {REFRESH}")
            self._shards[number] = shard
        return self._shards[number]

    @contextmanager
    def _noticing_changes(self) -> Iterator[None]:
        """Names the remedy where a shard is gone, or just going, because another process changed the documents."""
        try:
            yield
        except (ValueError, FileNotFoundError):
            if self.folder.is_current:
                raise
            raise ValueError(f"{str(self.folder.path)!r} was changed since this cache looked; {REFRESH}") from None
