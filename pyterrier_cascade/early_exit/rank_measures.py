"""Measures computed from the positions of relevant candidates, for many settings at once; equal to ir-measures.

Each function takes positions from 0 ``(n_settings, n_relevant)`` (:data:`NOWHERE` for a candidate that is not in the
result), a :class:`Judgements`, and a cutoff or None. It returns the value of each judged query
``(n_settings, n_queries)``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pyterrier_cascade.forks import cached_property

NOWHERE = 2**30


@dataclass(frozen=True)
class Judgements:
    """The relevant candidates of each judged query.

    Attributes:
        queries: The query of each relevant candidate as a number, ascending ``(n_relevant,)``.
        gains: Its grade ``(n_relevant,)``.
        grades: For each judged query the grades above 0 of all its relevant documents, retrieved or not, falling.
    """

    queries: np.ndarray
    gains: np.ndarray
    grades: list[np.ndarray]

    @property
    def n_queries(self) -> int:
        """The number of judged queries."""
        return len(self.grades)

    @cached_property
    def totals(self) -> np.ndarray:
        """The number of relevant documents of the query of each relevant candidate ``(n_relevant,)``."""
        return np.array([len(grades) for grades in self.grades], dtype=float)[self.queries]

    @cached_property
    def starts(self) -> np.ndarray:
        """The place where each query's relevant candidates begin."""
        return np.flatnonzero(np.diff(self.queries, prepend=-1))

    def summed(self, values: np.ndarray) -> np.ndarray:
        """Returns the sums of a value of the relevant candidates over each judged query, ``(n_settings, n_queries)``.

        Args:
            values: ``(n_settings, n_relevant)``.
        """
        found = np.zeros((len(values), self.n_queries))
        found[:, self.queries[self.starts]] = np.add.reduceat(values, self.starts, axis=1, dtype=float)
        return found

    def ideal(self, cutoff: int | None) -> np.ndarray:
        """Returns the best possible discounted gain for the query of each relevant candidate ``(n_relevant,)``."""
        best = [(grades[:cutoff] / np.log2(np.arange(len(grades[:cutoff])) + 2)).sum() for grades in self.grades]
        return np.array(best)[self.queries]


def average_precision(positions: np.ndarray, judged: Judgements, cutoff: int | None) -> np.ndarray:
    """Returns average precision."""
    # In order of position within each query; the j-th of them has j relevant ones up to itself.
    ordered = np.sort(positions + judged.queries * np.int64(2 * NOWHERE), axis=1) - judged.queries * 2 * NOWHERE
    sizes = np.diff(judged.starts, append=len(judged.queries))
    number = np.arange(len(judged.queries)) - np.repeat(judged.starts, sizes) + 1
    precision = number / (ordered + 1) / judged.totals
    return judged.summed(np.where(ordered < _limit(cutoff), precision, 0))


def reciprocal_rank(positions: np.ndarray, judged: Judgements, cutoff: int | None) -> np.ndarray:
    """Returns the reciprocal rank of the first relevant candidate."""
    first = _first(positions, judged)
    return np.where(first < _limit(cutoff), 1 / (first + 1), 0)


def success(positions: np.ndarray, judged: Judgements, cutoff: int | None) -> np.ndarray:
    """Returns 1 where anything relevant is among the first."""
    return (_first(positions, judged) < _limit(cutoff)).astype(float)


def precision(positions: np.ndarray, judged: Judgements, cutoff: int) -> np.ndarray:
    """Returns precision at a cutoff."""
    return judged.summed(positions < cutoff) / cutoff


def recall(positions: np.ndarray, judged: Judgements, cutoff: int | None) -> np.ndarray:
    """Returns recall at a cutoff."""
    return judged.summed(np.where(positions < _limit(cutoff), 1 / judged.totals, 0))


def discounted_gain(positions: np.ndarray, judged: Judgements, cutoff: int | None) -> np.ndarray:
    """Returns nDCG with the grades themselves as gains."""
    gains = judged.gains / np.log2(positions + 2.0) / judged.ideal(cutoff)
    return judged.summed(np.where(positions < _limit(cutoff), gains, 0))


def _limit(cutoff: int | None) -> int:
    return NOWHERE if cutoff is None else cutoff


def _first(positions: np.ndarray, judged: Judgements) -> np.ndarray:
    found = np.full((len(positions), judged.n_queries), NOWHERE)
    found[:, judged.queries[judged.starts]] = np.minimum.reduceat(positions, judged.starts, axis=1)
    return found


MEASURES: dict[str, Callable[[np.ndarray, Judgements, int | None], np.ndarray]] = {
    "AP": average_precision,
    "RR": reciprocal_rank,
    "P": precision,
    "R": recall,
    "Success": success,
    "nDCG": discounted_gain,
}
"""By the names of ir-measures."""
