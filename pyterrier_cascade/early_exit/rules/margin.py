"""A rule by scores: a candidate goes on if its score is close enough to that of the best ones at the head."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_cascade.checks import is_number
from pyterrier_cascade.early_exit.groups import group_starts
from pyterrier_cascade.early_exit.rules.base import Rule

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.policy import Policy


@dataclass(frozen=True)
class KeepWithin(Rule):
    """Keeps the candidates whose score is at most ``margin`` below the k-th best of their group, at least k of them.

    An extension: the paper sets thresholds aside, because the size of its batches must be known beforehand (CT-27).
    Chunks of many queries need no such size.

    Attributes:
        margin: The largest distance from the k-th best score, in log-odds.
        k: The place of the candidate from whose score the distance is measured, from 1.
    """

    margin: float
    k: int = 1

    @classmethod
    def from_setting(cls, name: str, value: float, policy: "Policy") -> "KeepWithin":
        """Returns the rule with the margin ``value``, 0 or more, and the policy's ``margin_k``."""
        if not is_number(value, least=0):
            raise ValueError(f"{name}={value!r} is not a distance between scores; give a number in log-odds, 0 or more")
        return cls(float(value), policy.margin_k)

    def survivors(self, groups: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Returns which candidates go on, boolean ``(n,)``."""
        starts = group_starts(groups)
        sizes = np.diff(starts, append=len(groups))
        # In the type in which a trace computes too, so that both agree at the very edge of a margin.
        scores = scores.astype(np.float64)
        least = scores[starts + np.minimum(self.k, sizes) - 1] - self.margin
        # Not ">=": scores that are NaN go on to the end, where they are an error.
        return ~(scores < np.repeat(least, sizes))
