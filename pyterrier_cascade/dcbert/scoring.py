"""The scores of candidates (DC-1): one loop, whether documents come from a store, from texts, or from both."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt
import torch

from pyterrier_cascade import frames
from pyterrier_cascade.encoder.device import device_of
from pyterrier_cascade.encoder.pairs import TokenPairs, runs
from pyterrier_cascade.encoder.workers import calling_thread, workers
from pyterrier_cascade.pair_ranker import ROWS
from pyterrier_cascade.store.dtypes import dtype_of
from pyterrier_cascade.store.states import States
from pyterrier_cascade.store.store import DocumentStore

if TYPE_CHECKING:
    from pyterrier_cascade.dcbert.ranker import DCBERT

PASSAGES = {"first": np.add, "max": np.maximum, "mean": np.add}
"""How the scores of a document's passages become its score; the mean divides the sum afterwards."""


@dataclasses.dataclass(frozen=True)
class DocumentStates:
    """Documents in memory, end to end.

    Attributes:
        entries: The states of their entries.
        sizes: The number of entries of each document ``(n,)``; a long document may be several passages.
    """

    entries: States
    sizes: np.ndarray

    @classmethod
    def of_texts(cls, states: torch.Tensor, pairs: TokenPairs) -> "DocumentStates":
        """Returns texts that were encoded.

        Args:
            states: The states of all tokens end to end, ``(n_tokens, width)``.
            pairs: The tokenised texts; several inputs of one owner are its passages.
        """
        return cls(States(states, pairs.lengths), np.bincount(pairs.owner))

    def take(self, numbers: np.ndarray) -> "DocumentStates":
        """Returns some of the documents, in this order."""
        entries = runs((np.cumsum(self.sizes) - self.sizes)[numbers], self.sizes[numbers])
        lengths = self.entries.lengths
        tokens = runs((np.cumsum(lengths) - lengths)[entries], lengths[entries])
        scales = None if self.entries.scales is None else self.entries.scales[tokens]
        return DocumentStates(States(self.entries.states[tokens], lengths[entries], scales), self.sizes[numbers])

    def followed_by(self, other: "DocumentStates") -> "DocumentStates":
        """Returns these documents and then others of the same dtype."""
        ours, theirs = self.entries, other.entries
        scales = None if ours.scales is None else np.concatenate([ours.scales, theirs.scales])
        states, lengths = (
            np.concatenate([getattr(one, name) for one in (ours, theirs)]) for name in ("states", "lengths")
        )
        return DocumentStates(States(states, lengths, scales), np.concatenate([self.sizes, other.sizes]))

    def stored_as(self, dtype: str) -> "DocumentStates":
        """Returns the documents as a store of this dtype would keep them, so that they get the same scores."""
        states, scales = dtype_of(dtype).pack(self.entries.states.numpy())
        return DocumentStates(States(states, self.entries.lengths, scales), self.sizes)


@dataclasses.dataclass(frozen=True)
class Documents:
    """Documents by number: from 0 on they are those of a store; -1 is the first in memory, -2 the second.

    Attributes:
        store: The store, if there is one.
        memory: The documents in memory, if there are any.
    """

    store: DocumentStore | None
    memory: DocumentStates | None

    def begin(self, numbers: np.ndarray) -> Callable[[], DocumentStates]:
        """Lets the disk begin to fetch some documents, and returns a function that waits for them and returns them.

        Args:
            numbers: Their numbers ``(n,)``.
        """
        stored = numbers >= 0
        if not stored.any():
            return lambda: self.memory.take(-1 - numbers)
        entries, sizes = self.store.entries(numbers[stored])
        fetched = self.store.begin(entries)
        if stored.all():
            return lambda: DocumentStates(fetched(), sizes)

        def finish() -> DocumentStates:
            both = DocumentStates(fetched(), sizes).followed_by(self.memory.take(-1 - numbers[~stored]))
            return both.take(np.where(stored, np.cumsum(stored), len(sizes) + np.cumsum(~stored)) - 1)

        return finish


@dataclasses.dataclass
class PairScores:
    """The scores of rows and the numbers that their costs follow from, each ``(n,)``.

    Attributes:
        scores: The scores.
        n_inputs: The passages of the document.
        tokens: Their tokens.
        query_tokens: The tokens of the query.
    """

    scores: np.ndarray
    n_inputs: np.ndarray
    tokens: np.ndarray
    query_tokens: np.ndarray

    @classmethod
    def empty(cls, n: int) -> "PairScores":
        """Returns room for so many rows."""
        return cls(*np.empty((4, n)))

    @classmethod
    def of(cls, parts: Sequence["PairScores"]) -> "PairScores":
        """Returns parts one after the other."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def put(self, rows: np.ndarray, part: "PairScores") -> None:
        """Writes the scores of some rows."""
        for field in dataclasses.fields(self):
            getattr(self, field.name)[rows] = getattr(part, field.name)


def score_candidates(
    dcbert: "DCBERT",
    frame: pd.DataFrame,
    blocks: frames.Blocks,
    texts: list[str],
    *,
    store: DocumentStore | None = None,
    found: np.ndarray | None = None,
    label: str = "DCBERT",
) -> PairScores:
    """Returns the scores of candidates; memory stays bounded.

    Args:
        dcbert: The ranker.
        frame: The candidates.
        blocks: Their blocks.
        texts: The text of each candidate that is not in the store ``(n_rows,)``; empty texts for the others.
        store: The documents that are encoded already.
        found: The number of each candidate's document in the store, -1 where it is not there ``(n_rows,)``.
        label: The name of the progress bar.
    """
    queries, scores = frames.texts(frame, "query"), PairScores.empty(len(frame))
    numbers = np.full(len(frame), -1) if found is None else found.copy()
    with pt.tqdm(total=len(frame), desc=label, unit="pair", disable=not dcbert.verbose) as bar:
        for part in _slabs(list(blocks), dcbert.room(texts)):
            rows = np.concatenate(part)
            unknown, memory = rows[numbers[rows] < 0], None
            if len(unknown):
                memory, codes = dcbert.encoded_texts([texts[row] for row in unknown])
                memory = memory if store is None else memory.stored_as(store.dtype)
                numbers[unknown] = -1 - codes
            questions = dcbert.questions([queries[block[0]] for block in part])
            of_blocks = [numbers[block] for block in part]
            answered = join(dcbert, questions, Documents(store, memory), of_blocks, bar.update)
            for block, one in zip(part, answered, strict=True):
                scores.put(block, one)
    return scores


def join(
    dcbert: "DCBERT",
    questions: list[torch.Tensor],
    documents: Documents,
    numbers: Sequence[np.ndarray],
    progress: Callable[[int], object] = lambda n_done: None,
) -> list[PairScores]:
    """Returns the scores of each question's documents.

    Args:
        dcbert: The ranker, which says how to join and how the scores of passages become one.
        questions: The states of each question, ``(n_tokens, width)``.
        documents: The documents.
        numbers: The numbers of each question's documents among them.
        progress: Called with the number of documents of each part when it is done.
    """
    scorer, whole = dcbert.scorer(), PASSAGES[dcbert.passages]

    def begin(question: int, part: slice) -> Callable[[], PairScores]:
        fetched = documents.begin(numbers[question][part])
        return lambda: work(question, fetched())

    def work(question: int, found: DocumentStates) -> PairScores:
        starts = np.cumsum(found.sizes) - found.sizes
        value = whole.reduceat(scorer(questions[question], found.entries).numpy().astype(np.float64), starts)
        if dcbert.passages == "mean":
            value = value / found.sizes
        query_tokens = np.full(len(found.sizes), len(questions[question]))
        return PairScores(value, found.sizes, np.add.reduceat(found.entries.lengths, starts), query_tokens)

    found = _in_parts(begin, list(map(len, numbers)), device_of(dcbert.device), progress)
    return [PairScores.of(parts) for parts in found]


def _slabs(blocks: list[np.ndarray], shares: np.ndarray) -> Iterator[list[np.ndarray]]:
    """Yields as many blocks together as memory allows.

    Args:
        blocks: The rows of each block.
        shares: The share of the memory that each row takes ``(n_rows,)``.
    """
    part, taken = [], 0.0
    for block in blocks:
        share = float(np.maximum(shares[block], 1 / ROWS).sum())
        if part and taken + share > 1:
            yield part
            part, taken = [], 0.0
        part.append(block)
        taken += share
    if part:
        yield part


def _in_parts(
    begin: Callable[[int, slice], Callable[[], Any]],
    counts: Sequence[int],
    device: torch.device,
    progress: Callable[[int], object],
) -> list[list[Any]]:
    """Returns the results of each question, part by part; a thread works on one part at a time.

    Args:
        begin: Given the number of a question and a part of its documents, lets the disk begin and returns the work. The
            calling thread begins the next parts while other threads work.
        counts: The number of each question's documents, at least one.
        device: Where the work is done.
        progress: Called with the number of documents of each part when it is done.
    """
    found = [[] for _ in counts]
    with (workers if device.type == "cpu" else calling_thread)() as pool:
        # A few questions would leave threads idle: their documents are divided.
        shares = -(-2 * pool.n_threads // len(counts)) if len(counts) < 2 * pool.n_threads else 1
        parts = []
        for number, count in enumerate(counts):
            edges = np.unique(np.linspace(0, count, shares + 1).astype(int)).tolist()
            parts += [(number, slice(start, end)) for start, end in itertools.pairwise(edges)]
        results = pool.map(lambda work: work(), (begin(*one) for one in parts))
        for (number, part), result in zip(parts, results, strict=True):
            found[number].append(result)
            progress(part.stop - part.start)
    return found
