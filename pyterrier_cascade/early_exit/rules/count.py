"""A rule with absolute numbers: after each head so many candidates go on."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_cascade.checks import is_count
from pyterrier_cascade.early_exit.rules.base import SizeRule

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.policy import Policy


@dataclass(frozen=True)
class KeepCount(SizeRule):
    """Keeps the best candidates of each group, at most a given number of them.

    Attributes:
        count: How many go on.
    """

    count: int

    one_for_all = False

    @classmethod
    def from_setting(cls, name: str, value: int, policy: "Policy") -> "KeepCount":
        """Returns the rule that keeps ``value`` candidates, a whole number from 1."""
        if not is_count(value):
            raise ValueError(
                f"{name}={value!r}: give whole numbers of candidates to keep, 1 or more, for each head but the last"
            )
        return cls(int(value))

    @classmethod
    def check_all(cls, name: str, value: Sequence[int], rules: Sequence["KeepCount"]) -> None:
        """Raises where a head would keep more candidates than the head before it lets through (CT-2)."""
        for before, after in itertools.pairwise(rules):
            if after.count > before.count:
                raise ValueError(
                    f"{name}={value!r}: a head cannot keep {after.count} candidates where the one before it keeps "
                    f"{before.count}; give numbers that do not grow"
                )

    def n_kept(self, sizes: np.ndarray) -> np.ndarray:
        """Returns how many candidates of each group go on ``(n_groups,)``."""
        return np.minimum(sizes, self.count)
