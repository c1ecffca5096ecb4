"""The paper's rule: after each head a fixed fraction of the candidates is dropped (CT-24 to CT-27)."""

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_cascade.checks import is_number
from pyterrier_cascade.early_exit.rules.base import SizeRule, exact_fraction

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.policy import Policy

ROUNDINGS = ("floor", "nearest")


@dataclass(frozen=True)
class KeepFraction(SizeRule):
    """Keeps a fraction of each group, and at least one candidate.

    128 candidates at alpha=.3 become 90, 63, 45 and 32 with the floor of the discards, which the paper prints. They
    become 90, 63, 44 and 31 with the number kept rounded to the nearest, halves up, which its example follows (CT-25).

    Attributes:
        kept: The fraction that goes on.
        rounding: ``"floor"`` of the discards, or ``"nearest"``.
    """

    kept: Fraction
    rounding: str = "floor"

    @property
    def keeps_all(self) -> bool:
        """Whether the fraction is 1."""
        return self.kept == 1

    @classmethod
    def from_setting(cls, name: str, value: float, policy: "Policy") -> "KeepFraction":
        """Returns the rule that drops the fraction ``value``, from 0 to below 1."""
        if not (is_number(value, least=0) and value < 1):
            raise ValueError(f"{name}={value!r} is not a fraction to drop; give one from 0 up to, but not including, 1")
        return cls(1 - exact_fraction(value), policy.rounding)

    @classmethod
    def of_kept(cls, value: float, rounding: str = "floor") -> "KeepFraction | None":
        """Returns the rule that keeps the fraction ``value``; None where it is no number between 0 and 1."""
        if not isinstance(value, Real) or isinstance(value, Integral) or not 0 < value < 1:
            return None
        return cls(exact_fraction(value), rounding)

    def n_kept(self, sizes: np.ndarray) -> np.ndarray:
        """Returns how many candidates of each group go on ``(n_groups,)``."""
        distinct, which = np.unique(sizes, return_inverse=True)
        extra = Fraction(1, 2) if self.rounding == "nearest" else 1 - Fraction(1, self.kept.denominator)
        kept = [min(n, max(1, math.floor(n * self.kept + extra))) for n in distinct.tolist()]
        return np.array(kept, dtype=np.int64)[which]
