"""A question's states and its documents' become scores (DC-1)."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_cascade.dcbert import loaded
from pyterrier_cascade.dcbert.cache import States
from pyterrier_cascade.dcbert.sources import Documents
from pyterrier_cascade.encoder.device import device_of
from pyterrier_cascade.pair_ranker import ROWS

if TYPE_CHECKING:
    from pyterrier_cascade.dcbert.ranker import DCBERT

PASSAGES = {"first": np.add, "max": np.maximum, "mean": np.add}


@dataclasses.dataclass
class Joined:
    """What came of joining queries and documents, for each row ``(n,)``.

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
    def empty(cls, n: int) -> "Joined":
        """Returns room for so many rows."""
        return cls(*np.empty((4, n)))

    @classmethod
    def of(cls, parts: Sequence["Joined"]) -> "Joined":
        """Returns parts one after the other."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def put(self, rows: np.ndarray, part: "Joined") -> None:
        """Takes over what is known of some rows."""
        for field in dataclasses.fields(self):
            getattr(self, field.name)[rows] = getattr(part, field.name)


def join(
    dcbert: "DCBERT",
    questions: list,
    documents: Documents,
    numbers: Sequence[np.ndarray],
    progress: Callable[[int], object] = lambda n_done: None,
) -> list[Joined]:
    """Returns what comes of each question with its documents.

    Args:
        dcbert: What joins them, and how passages are put together.
        questions: The states of each question.
        documents: Where documents' states are read.
        numbers: The numbers of each question's documents there.
        progress: Called with the number of documents that are done, as they are.
    """
    scorer, whole = dcbert.scorer(), PASSAGES[dcbert.passages]

    def begin(question: int, part: slice) -> Callable[[], Joined]:
        fetched = documents.begin(numbers[question][part])
        return lambda: work(question, *fetched())

    def work(question: int, states: States, sizes: np.ndarray) -> Joined:
        starts = np.cumsum(sizes) - sizes
        value = whole.reduceat(scorer(questions[question], states).numpy().astype(np.float64), starts)
        if dcbert.passages == "mean":
            value = value / sizes
        n_words = np.full(len(sizes), len(questions[question]))
        return Joined(value, sizes, np.add.reduceat(states.lengths, starts), n_words)

    found = loaded.in_parts(begin, list(map(len, numbers)), device_of(dcbert.device), progress)
    return [Joined.of(parts) for parts in found]


def slabs(blocks: list[np.ndarray], shares: np.ndarray) -> Iterable[list[np.ndarray]]:
    """Yields blocks together, so many that memory stays bounded.

    Args:
        blocks: The rows of each.
        shares: Of the memory that may be taken, what each row takes ``(n_rows,)``.
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
