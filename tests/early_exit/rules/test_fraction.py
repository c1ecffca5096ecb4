"""The rules: how many candidates go on after a head (CT-25)."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_cascade.early_exit.policy import Policy
from pyterrier_cascade.early_exit.rules.fraction import ROUNDINGS, KeepFraction


def course(n: int, alpha: float, heads: int, rounding: str = "floor") -> list[int]:
    """The number of candidates that come to each head."""
    rule, sizes = KeepFraction.from_setting("alpha", alpha, Policy(rounding=rounding)), [n]
    for _ in range(heads - 1):
        sizes.append(int(rule.n_kept(np.array(sizes[-1:]))[0]))
    return sizes


def test_the_worked_example():
    """CT-25: the printed formula, and the rounding that its text follows."""
    assert course(128, 0.3, 5) == [128, 90, 63, 45, 32]
    assert course(128, 0.3, 5, "nearest") == [128, 90, 63, 44, 31]
    # Weighted by the layers: the average batch, below the 84 that CT-29 says fit at once without dropping.
    weights = np.diff([0, 4, 6, 8, 10, 12])
    assert (weights * course(128, 0.3, 5)).sum() / 12 == pytest.approx(81.0, abs=0.01)
    assert (weights * course(128, 0.3, 5, "nearest")).sum() / 12 == pytest.approx(80.67, abs=0.01)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("alpha", [0, 0.1, 0.5, 0.9, 0.999])
def test_one_candidate_is_never_dropped(alpha, rounding):
    assert course(1, alpha, 5, rounding) == [1] * 5


def test_figure_one():
    """CT-25, Fig. 1: three candidates, alpha=.4: one is dropped."""
    assert course(3, 0.4, 2) == [3, 2]


@pytest.mark.parametrize(("alpha", "n", "dropped"), [(0.29, 100, 29), (0.35, 180, 63), (0.07, 100, 7), (0.57, 100, 57)])
def test_no_binary_fractions(alpha, n, dropped):
    """CT-25: in floats 0.29 * 100 is 28.999999999999996."""
    assert course(n, alpha, 2) == [n, n - dropped]
    assert course(n, np.float64(alpha), 2) == [n, n - dropped]


@pytest.mark.parametrize(
    ("alpha", "n", "dropped"),
    [(1 - 0.9, 10, 1), (0.7 - 0.4, 10, 3), (1 / 3, 9, 3), (np.float32(0.3), 10, 3), (Fraction(1, 7), 7, 1)],
)
def test_fractions_that_were_computed_are_what_was_meant(alpha, n, dropped):
    """In floats 1 - 0.9 is 0.09999999999999998, of which the floor of ten would be none."""
    assert course(n, alpha, 2) == [n, n - dropped]
    assert KeepFraction.of_kept(0.1 * 3).kept == Fraction(3, 10)


@given(st.integers(1, 3_000), st.integers(0, 999))
def test_the_floor_of_the_discards(n, per_mille):
    alpha = per_mille / 1_000
    assert course(n, alpha, 2) == [n, n - n * per_mille // 1_000]
    nearest = (2 * n * (1_000 - per_mille) + 1_000) // 2_000
    assert course(n, alpha, 2, "nearest") == [n, max(1, nearest)]


@pytest.mark.parametrize("alpha", [1, 1.0, -0.1, 1.5, float("nan"), True, "0.4", None], ids=repr)
def test_what_is_no_fraction_to_drop(alpha):
    with pytest.raises(ValueError, match=re.escape(f"alpha={alpha!r} is not a fraction to drop")):
        KeepFraction.from_setting("alpha", alpha, Policy())


@pytest.mark.parametrize("kept", [0, 1, 20, 0.0, 1.0, 2.5, True, float("nan"), "0.6"], ids=repr)
def test_what_is_no_fraction_to_keep(kept):
    assert KeepFraction.of_kept(kept) is None


def test_the_first_of_each_group_go_on():
    groups, nothing = np.array([0, 0, 0, 4, 4, 2]), np.full(6, np.nan)
    kept = KeepFraction(Fraction(1, 2)).survivors(groups, nothing)
    assert kept.tolist() == [True, True, False, True, False, True]
