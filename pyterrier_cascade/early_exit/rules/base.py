"""The base of pruning rules, which decide which candidates go on to the next head."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pyterrier_cascade.early_exit.groups import places

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.policy import Policy


class Rule(ABC):
    """Decides which candidates of a group go on after a head. Rules are values: frozen dataclasses.

    A new rule is a file beside this one, with a subclass, and a line in
    :class:`~pyterrier_cascade.early_exit.policy.Policy`, which names the setting that users write. Every rule keeps at
    least one candidate of a group.
    """

    one_for_all: ClassVar[bool] = True
    """Whether a single value may stand for all heads."""

    @property
    def keeps_all(self) -> bool:
        """Whether every candidate goes on, whatever its score is."""
        return False

    @classmethod
    @abstractmethod
    def from_setting(cls, name: str, value: Any, policy: "Policy") -> "Rule":
        """Returns the rule of one head, or raises where the value cannot be.

        Args:
            name: The setting, for the error.
            value: The value that the user gave for this head.
            policy: All settings, for those that go with this one.
        """

    @classmethod
    def check_all(cls, name: str, value: Any, rules: Sequence["Rule"]) -> None:
        """Raises where the rules of all heads, each valid by itself, do not fit together; any rules fit by default."""
        return

    @abstractmethod
    def survivors(self, groups: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Returns which candidates go on, boolean ``(n,)``.

        Args:
            groups: The group of each candidate as a number; a group's candidates stand together, best first ``(n,)``.
            scores: Their scores at this head ``(n,)``.
        """


class SizeRule(Rule):
    """A rule that keeps a number of candidates which depends on their number alone, whatever their scores are."""

    @abstractmethod
    def n_kept(self, sizes: np.ndarray) -> np.ndarray:
        """Returns how many candidates of each group go on, from 1 to all of them ``(n_groups,)``.

        Args:
            sizes: The number of candidates of each group, 1 or more ``(n_groups,)``.
        """

    def survivors(self, groups: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Returns which candidates go on, boolean ``(n,)``: the first ones of each group."""
        place, sizes = places(groups)
        return place < self.n_kept(sizes)


def exact_fraction(number: float) -> Fraction:
    """Returns the fraction that a float stands for: ``0.29 * 100`` is 28.999... in floats, and should be 29 (CT-25)."""
    return Fraction(str(number)).limit_denominator(10**9)
