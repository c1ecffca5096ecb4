"""The one rule of who goes on, as the engine and traces ask it (CT-24)."""

from fractions import Fraction

import numpy as np

from pyterrier_cascade.early_exit.policy import Plan, Policy
from pyterrier_cascade.early_exit.pruning import keep_of, scores_in_turn, survivors
from pyterrier_cascade.early_exit.rules.count import KeepCount
from pyterrier_cascade.early_exit.rules.fraction import KeepFraction

HALF = KeepFraction(Fraction(1, 2))


def test_the_best_of_each_question_go_on_and_ties_keep_their_order():
    groups = np.array([0, 0, 0, 1, 1, 1, 1])
    keep = keep_of(Plan((1, 2, 3), ((HALF,), (KeepCount(2), KeepCount(1)), ())), groups)
    scores = np.array([1, 3, 3, 0, 5, 5, 5], dtype=np.float32)
    rows = keep(0, np.arange(7), scores)
    assert rows.tolist() == [1, 2, 4, 5]
    # Equal scores at the second head keep the order of the first. Rules follow each other.
    assert keep(1, np.array([2, 1, 5, 4]), np.zeros(4)).tolist() == [2, 5]
    assert keep(1, np.array([2, 1, 5, 4]), np.array([0, 1, 0, 1])).tolist() == [1, 4]


def test_rules_follow_each_other():
    groups = np.repeat([0, 1], [10, 3])
    assert survivors([HALF, KeepCount(2)], groups, np.zeros(13)).tolist() == [0, 1, 10, 11]
    assert survivors([], groups, np.zeros(13)).tolist() == list(range(13))


def test_scores_stop_where_a_candidate_leaves():
    given = np.array([[3.0, 1, 9], [2, 5, 9], [1, 7, 9], [0, 8, 9]])
    plan = Policy(alpha=(0.5, 0.5)).resolve((2, 4, 6))
    found = scores_in_turn(plan, np.zeros(4, dtype=int), lambda head, alive: given[alive, head])
    nan = np.nan
    np.testing.assert_array_equal(found, [[3, 1, nan], [2, 5, 9], [1, nan, nan], [0, nan, nan]])
    everything = scores_in_turn(plan, np.zeros(4, dtype=int), lambda head, alive: given[alive, head], prune=False)
    np.testing.assert_array_equal(everything, given)
