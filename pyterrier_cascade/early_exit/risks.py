"""Risks: what a query loses when candidates leave early, against the ranking of the full cascade.

The full cascade drops nothing and asks all heads, so that its ranking is that of the last head. A query with one
candidate can lose nothing.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pyterrier_cascade.checks import is_count, is_number
from pyterrier_cascade.early_exit import grid, ranking
from pyterrier_cascade.early_exit.fates import fates
from pyterrier_cascade.early_exit.groups import places, slabs
from pyterrier_cascade.early_exit.policy import Policy
from pyterrier_cascade.early_exit.rank_measures import Judgements, discounted_gain
from pyterrier_cascade.early_exit.rules.base import exact_fraction

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.trace import Trace


@dataclass(frozen=True)
class Watched:
    """Questions of a trace, and the candidates whose positions decide what a question loses.

    Attributes:
        questions: The numbers of the questions in the trace, ascending ``(n_questions,)``.
        rows: The rows of the watched candidates in the trace, ascending ``(n_relevant,)``.
        judged: Their grades, with the questions numbered as above.
    """

    questions: np.ndarray
    rows: np.ndarray
    judged: Judgements

    def part(self, chosen: np.ndarray) -> "Watched":
        """Returns some of the questions.

        Args:
            chosen: Their places among the questions, ascending.
        """
        queries = self.judged.queries
        inside = np.isin(queries, chosen)
        judged = Judgements(
            np.searchsorted(chosen, queries[inside]),
            self.judged.gains[inside],
            [self.judged.grades[one] for one in chosen],
        )
        return Watched(self.questions[chosen], self.rows[inside], judged)

    def candidates(self, trace: "Trace") -> np.ndarray:
        """Returns the rows of all candidates of the questions, ascending ``(n,)``."""
        asked = np.zeros(len(trace.sizes), dtype=bool)
        asked[self.questions] = True
        return np.flatnonzero(asked[trace.questions])


class Risk(ABC):
    """A loss of each query, from 0 to 1; the risk is its mean. Risks are values: frozen dataclasses.

    ``str()`` names the risk within a sentence.
    """

    binary: ClassVar[bool] = True
    """Whether every loss is 0 or 1."""

    @abstractmethod
    def watched(self, trace: "Trace") -> Watched:
        """Returns the questions that can be tested, and their candidates that matter."""

    @abstractmethod
    def losses(self, positions: np.ndarray, judged: Judgements) -> np.ndarray:
        """Returns the loss of each question under each policy, ``(n_policies, n_questions)``.

        Args:
            positions: The final positions of the watched candidates under each policy, the first of which is that of
                the full cascade ``(n_policies, n_relevant)``.
            judged: Their grades.
        """

    def outcomes(self, trace: "Trace", watched: Watched, policies: Sequence[Policy]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the losses ``(n_policies, n_questions)`` and the mean relative cost of each policy ``(n_policies,)``.

        Args:
            trace: The scores.
            watched: The questions.
            policies: The settings; the first is that of the full cascade.
        """
        sizes = np.asarray(trace.sizes)[watched.questions]
        numbers = np.repeat(np.arange(len(sizes)), sizes)
        losses, costs = [], np.zeros(len(policies))
        for rows in slabs(numbers, max(1, grid.CELLS // len(policies))):
            part = watched.part(np.unique(numbers[rows]))
            candidates = part.candidates(trace)
            found = fates(trace, candidates, np.searchsorted(candidates, part.rows), policies)
            losses.append(self.losses(found.positions, part.judged))
            costs += found.costs
        return np.concatenate(losses, 1), costs / len(watched.questions)


class _AgainstFull(Risk):
    """A risk without judgements: the best candidates of the full cascade are watched."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """How many candidates of each question are watched."""

    def watched(self, trace: "Trace") -> Watched:
        """Returns all questions, and the best candidates of the full cascade with falling grades."""
        order, _, _ = ranking.final(trace.questions, trace.scores)
        place = np.empty_like(order)
        place[order], _ = places(trace.questions)
        rows = np.flatnonzero(place < self.depth)
        grades = [self.depth - np.arange(min(self.depth, size), dtype=float) for size in trace.sizes]
        judged = Judgements(trace.questions[rows], self.depth - place[rows], grades)
        return Watched(np.arange(len(trace.sizes)), rows, judged)


@dataclass(frozen=True)
class FirstAnswerLost(_AgainstFull):
    """A query loses when its first answer is not that of the full cascade."""

    depth = 1

    def losses(self, positions: np.ndarray, judged: Judgements) -> np.ndarray:
        """Returns 1 where the first answer is another one, ``(n_policies, n_questions)``."""
        return (positions > 0).astype(float)

    def __str__(self):
        return "the share of queries that lose the full cascade's first answer"


@dataclass(frozen=True)
class TopLost(_AgainstFull):
    """A query loses when too few of the full cascade's best candidates are among its own best.

    Args:
        k: How many candidates are the best ones; all of them for a query with fewer.
        share: The least share of these that must stay, above 0.
    """

    k: int = 10
    share: float = 0.9

    def __post_init__(self):
        if not is_count(self.k):
            raise ValueError(f"k={self.k!r}: give how many of the best candidates count, 1 or more")
        if not is_number(self.share, above=0, most=1):
            raise ValueError(
                f"share={self.share!r}: give the share of the top {self.k} that must stay, above 0, up to 1"
            )

    @property
    def depth(self) -> int:
        """How many candidates of each question are watched."""
        return self.k

    def losses(self, positions: np.ndarray, judged: Judgements) -> np.ndarray:
        """Returns 1 where too few stay, ``(n_policies, n_questions)``."""
        share = exact_fraction(self.share)
        needed = np.array([math.ceil(share * len(grades)) for grades in judged.grades])
        return (judged.summed(positions < self.k) < needed).astype(float)

    def __str__(self):
        return f"the share of queries that keep less than {100 * self.share:.4g}% of the full cascade's top {self.k}"


@dataclass(frozen=True)
class RankingLoss(_AgainstFull):
    """A query loses 1 - nDCG, where the full cascade's ranking is ideal.

    Args:
        cutoff: How many candidates have gains in the full ranking: the first one this number, the next one 1 less, the
            last one 1. nDCG has the same cutoff.
    """

    cutoff: int = 10
    binary = False

    def __post_init__(self):
        if not is_count(self.cutoff):
            raise ValueError(f"cutoff={self.cutoff!r}: give how many candidates count, 1 or more")

    @property
    def depth(self) -> int:
        """How many candidates of each question are watched."""
        return self.cutoff

    def losses(self, positions: np.ndarray, judged: Judgements) -> np.ndarray:
        """Returns 1 - nDCG ``(n_policies, n_questions)``."""
        return lost(discounted_gain(positions, judged, self.cutoff))

    def __str__(self):
        return f"the mean of 1 - nDCG@{self.cutoff} against the full cascade's ranking"


def lost(values: np.ndarray) -> np.ndarray:
    """Returns how much less each policy has than the first one, that of the full cascade."""
    return np.clip(values[0] - values, 0, 1)
