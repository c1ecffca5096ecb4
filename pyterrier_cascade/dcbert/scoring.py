"""The scores of candidates (DC-1): one loop, whether documents come from a store, from texts, or from both."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import pyterrier as pt
import torch

from pyterrier_cascade import frames
from pyterrier_cascade.checks import check_scores
from pyterrier_cascade.encoder.device import device_of
from pyterrier_cascade.encoder.pairs import runs
from pyterrier_cascade.encoder.passages import over_passages
from pyterrier_cascade.encoder.workers import calling_thread, workers
from pyterrier_cascade.pair_ranker import ROWS
from pyterrier_cascade.store.dtypes import dtype_of
from pyterrier_cascade.store.states import States
from pyterrier_cascade.store.store import DocumentStore

if TYPE_CHECKING:
    from pyterrier_cascade.dcbert.ranker import DCBERT


TOGETHER = 1_024
"""How many documents of a question go to a GPU at once."""


@dataclasses.dataclass(frozen=True)
class DocumentStates:
    """Documents in memory, end to end.

    Attributes:
        entries: The states of their entries.
        sizes: The number of entries of each document ``(n,)``; a long document may be several passages.
    """

    entries: States
    sizes: np.ndarray

    def take(self, numbers: np.ndarray) -> "DocumentStates":
        """Returns some of the documents, in this order."""
        entries = runs((np.cumsum(self.sizes) - self.sizes)[numbers], self.sizes[numbers])
        lengths = self.entries.lengths
        tokens = runs((np.cumsum(lengths) - lengths)[entries], lengths[entries])
        scales = None if self.entries.scales is None else self.entries.scales[tokens]
        return DocumentStates(States(self.entries.states[tokens], lengths[entries], scales), self.sizes[numbers])

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
            numbers: Their numbers ``(n,)``, all of the store or all in memory.
        """
        if numbers[0] < 0:
            return lambda: self.memory.take(-1 - numbers)
        entries, sizes = self.store.entries(numbers)
        fetched = self.store.begin(entries)
        return lambda: DocumentStates(fetched(), sizes)


class PairScores(NamedTuple):
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


def score_candidates(
    dcbert: "DCBERT",
    frame: pd.DataFrame,
    blocks: frames.Blocks,
    texts: list[str],
    *,
    store: DocumentStore | None = None,
    found: np.ndarray | None = None,
    label: str = "DCBERT",
) -> dict[str, np.ndarray]:
    """Returns the column ``score`` and the cost columns of candidates; memory stays bounded.

    Args:
        dcbert: The ranker.
        frame: The candidates.
        blocks: Their blocks.
        texts: The text of each candidate that is not in the store ``(n_rows,)``; empty texts for the others.
        store: The documents that are encoded already.
        found: The number of each candidate's document in the store, -1 where it is not there ``(n_rows,)``.
        label: The name of the progress bar.
    """
    queries, values = frames.texts(frame, "query"), np.empty((4, len(frame)))
    found = np.full(len(frame), -1) if found is None else found
    numbers = found.copy()
    with pt.tqdm(total=len(frame), desc=label, unit="pair", disable=not dcbert.verbose) as bar:
        for part in _slabs(list(blocks), dcbert.room(texts)):
            rows = np.concatenate(part)
            unknown, memory = rows[numbers[rows] < 0], None
            if len(unknown):
                memory, codes = dcbert.encoded_texts([texts[row] for row in unknown])
                memory = memory if store is None else memory.stored_as(store.dtype)
                numbers[unknown] = -1 - codes
            questions = dcbert.questions([queries[block[0]] for block in part])
            join(dcbert, questions, part, Documents(store, memory), numbers, values, bar.update)
    scores = PairScores(*values)
    return {"score": scores.scores, **dcbert.costs(frame, blocks, scores, found >= 0)}


def join(
    dcbert: "DCBERT",
    questions: list[torch.Tensor],
    blocks: Sequence[np.ndarray],
    documents: Documents,
    numbers: np.ndarray,
    values: np.ndarray,
    progress: Callable[[int], object] = lambda n_done: None,
) -> None:
    """Scores each question's documents; a thread works on some documents of one question at a time.

    Args:
        dcbert: The ranker, which says how to join and how the scores of passages become one.
        questions: The states of each question, ``(n_tokens, width)``.
        blocks: The rows of each question's documents.
        documents: The documents.
        numbers: The number of each row's document among them ``(n_rows,)``.
        values: The columns of :class:`PairScores` to fill in these rows ``(4, n_rows)``.
        progress: Called with the number of documents of each part when it is done.
    """
    scorer, device = dcbert.scorer(), device_of(dcbert.device)

    def begin(question: int, rows: np.ndarray) -> Callable[[], np.ndarray]:
        fetched = documents.begin(numbers[rows])
        return lambda: work(questions[question], fetched())

    def work(question: torch.Tensor, found: DocumentStates) -> np.ndarray:
        starts = np.cumsum(found.sizes) - found.sizes
        score = over_passages(scorer(question, found.entries).numpy().astype(np.float64), starts, dcbert.passages)
        query_tokens = np.full(len(found.sizes), len(question))
        return np.stack([score, found.sizes, np.add.reduceat(found.entries.lengths, starts), query_tokens])

    groups = []
    for question, rows in enumerate(blocks):
        stored = numbers[rows] >= 0
        groups += [(question, some) for some in (rows[stored], rows[~stored]) if len(some)]
    with (workers if device.type == "cpu" else calling_thread)() as pool:
        # A few questions would leave threads idle: their documents are divided.
        on_cpu, least = device.type == "cpu", math.ceil(2 * pool.n_threads / len(groups))
        shares = [max(1, least if on_cpu else math.ceil(len(rows) / TOGETHER)) for _, rows in groups]
        each = zip(groups, shares, strict=True)
        parts = [(one, part) for (one, rows), n in each for part in np.array_split(rows, min(n, len(rows)))]
        # The calling thread lets the disk begin with the next parts while other threads work.
        answered = pool.map(lambda work: work(), (begin(*part) for part in parts))
        for (_, rows), answer in zip(parts, answered, strict=True):
            check_scores(answer[0], "scores", dcbert.computed_precision)
            values[:, rows] = answer
            progress(len(rows))


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
