"""The rule that keeps what is close enough to the best."""

import re

import numpy as np
import pytest

from pyterrier_cascade.early_exit.policy import Policy
from pyterrier_cascade.early_exit.rules.margin import KeepWithin

GROUPS = np.array([0, 0, 0, 0, 7, 7, 3])
SCORES = np.array([5.0, 4.0, 3.0, -1.0, 2.0, -9.0, 0.0], np.float32)


@pytest.mark.parametrize(
    ("margin", "k", "kept"),
    [
        (1.0, 1, [1, 1, 0, 0, 1, 0, 1]),
        (1.0, 2, [1, 1, 1, 0, 1, 1, 1]),
        (0.0, 1, [1, 0, 0, 0, 1, 0, 1]),
        (0.0, 3, [1, 1, 1, 0, 1, 1, 1]),
        (0.0, 9, [1, 1, 1, 1, 1, 1, 1]),
        (11.0, 1, [1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_who_is_within_the_margin(margin, k, kept):
    assert KeepWithin(margin, k).survivors(GROUPS, SCORES).tolist() == [bool(one) for one in kept]


def test_equal_scores_go_on_together():
    """CT-2: the rule never parts candidates that are equal."""
    scores = np.array([2.0, 2.0, 1.5, 1.5, 1.0])
    assert KeepWithin(0.5).survivors(np.zeros(5, int), scores).tolist() == [True] * 4 + [False]
    assert KeepWithin(0.0).survivors(np.zeros(5, int), scores).tolist() == [True] * 2 + [False] * 3


def test_the_edge_is_the_same_in_both_types_of_scores():
    """The engine has float32, a trace float64: 16777216 - .3 is 16777216 in float32."""
    scores = np.array([16777216.0, 16777215.0], np.float32)
    kept = [KeepWithin(0.3).survivors(np.zeros(2, int), values).tolist() for values in (scores, scores.astype(float))]
    assert kept == [[True, False]] * 2
    scores = np.array([0.3, 0.0], np.float32)  # 0.30000001192092896
    assert not KeepWithin(0.3).survivors(np.zeros(2, int), scores)[1]


def test_scores_that_are_nan_go_on_to_where_they_are_an_error():
    assert KeepWithin(1.0).survivors(np.zeros(3, int), np.array([1.0, -9.0, np.nan])).tolist() == [True, False, True]


@pytest.mark.parametrize("margin", [-0.1, float("nan"), float("inf"), True, "4"], ids=repr)
def test_what_is_no_margin(margin):
    with pytest.raises(ValueError, match=re.escape(f"margin={margin!r} is not a distance between scores; give a num")):
        Policy(margin=margin)
