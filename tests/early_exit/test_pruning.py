"""Who goes on, and how scores stand in the end (CT-24 to CT-28)."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_cascade.early_exit import pruning


def course(n: int, alpha: float, heads: int, rounding: str = "floor") -> list[int]:
    """The candidates that come to each head."""
    sizes = [n]
    for _ in range(heads - 1):
        sizes.append(int(pruning.n_kept(np.array(sizes[-1:]), pruning.share(alpha), rounding)[0]))
    return sizes


def test_the_worked_example():
    """CT-25: the printed formula, and the rounding that its text follows."""
    assert course(128, 0.3, 5) == [128, 90, 63, 45, 32]
    assert course(128, 0.3, 5, "nearest") == [128, 90, 63, 44, 31]
    # Weighted by the layers: the average batch, below the 84 that CT-29 says fit at once without dropping.
    weights = np.diff([0, 4, 6, 8, 10, 12])
    assert (weights * course(128, 0.3, 5)).sum() / 12 == pytest.approx(81.0, abs=0.01)
    assert (weights * course(128, 0.3, 5, "nearest")).sum() / 12 == pytest.approx(80.67, abs=0.01)


@pytest.mark.parametrize("rounding", pruning.ROUNDINGS)
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
    assert pruning.cutoff(0.1 * 3) == Fraction(3, 10)


@given(st.integers(1, 3_000), st.integers(0, 999))
def test_the_floor_of_the_discards(n, per_mille):
    alpha = per_mille / 1_000
    assert course(n, alpha, 2) == [n, n - n * per_mille // 1_000]
    nearest = (2 * n * (1_000 - per_mille) + 1_000) // 2_000
    assert course(n, alpha, 2, "nearest") == [n, max(1, nearest)]


def test_counts_keep_what_there_is():
    assert pruning.n_kept(np.array([1, 5, 9]), 5).tolist() == [1, 5, 5]


def test_share_and_cutoff_read_numbers():
    assert pruning.share(0.3) == Fraction(7, 10) == pruning.cutoff(0.7)
    assert pruning.cutoff(np.int64(20)) == 20 and isinstance(pruning.cutoff(np.int64(20)), int)
    for alpha in (1, 1.0, -0.1, 1.5, float("nan"), True, "0.4", None):
        with pytest.raises(ValueError, match=re.escape(f"alpha={alpha!r} is not a fraction to drop")):
            pruning.share(alpha)
    for kept in (0, -1, 0.0, 1.0, 2.5, True, float("nan"), "20"):
        with pytest.raises(ValueError, match=re.escape(f"cutoff {kept!r}: give how many candidates to keep")):
            pruning.cutoff(kept)


def test_the_best_of_each_question_go_on_and_ties_keep_their_order():
    groups = np.array([0, 0, 0, 1, 1, 1, 1])
    keep = pruning.rule(groups, ((Fraction(1, 2),), (2, 1)), "floor")
    scores = np.array([1, 3, 3, 0, 5, 5, 5], dtype=np.float32)
    rows = keep(0, np.arange(7), scores)
    assert rows.tolist() == [1, 2, 4, 5]
    # Equal scores at the second head: as they stood at the first. Cutoffs follow each other.
    assert keep(1, np.array([2, 1, 5, 4]), np.zeros(4)).tolist() == [2, 5]
    assert keep(1, np.array([2, 1, 5, 4]), np.array([0, 1, 0, 1])).tolist() == [1, 4]


def test_batches_are_of_a_question():
    """CT-26: in order, so many at a time."""
    questions = np.array([0, 0, 0, 0, 0, 1, 1, 2])
    assert pruning.batches(questions, 2).tolist() == [1, 1, 2, 2, 3, 4, 4, 5]
    assert pruning.batches(questions, None).tolist() == questions.tolist()


def test_slabs_hold_whole_groups():
    groups = np.repeat([3, 4, 7, 8], [5, 1, 20, 2])
    assert pruning.slabs(groups, 6) == [slice(0, 6), slice(6, 26), slice(26, 28)]
    assert pruning.slabs(groups, 1_000) == [slice(0, 28)]


def test_tiers_lie_below_each_other():
    """CT-28: who came further ranks above; inside a tier by its own head's score."""
    nan = np.nan
    scores = np.array([[9, 8, -2], [7, 9, nan], [3, nan, nan], [8, 8.5, nan], [5, 5, 3], [4, nan, nan], [0, 0, 0]])
    questions = np.array([0, 0, 0, 0, 0, 0, 1])
    order, exits, falling = pruning.final(questions, scores)
    assert order.tolist() == [4, 0, 1, 3, 5, 2, 6]
    assert exits.tolist() == [2, 1, 0, 1, 2, 0, 2]
    assert falling[order].tolist() == [3, -2, -3, -3.5, -4.5, -5.5, 0]


def test_equal_scores_stand_as_at_the_head_before():
    scores = np.array([[1, 2, 5], [3, 2, 5], [2, 2, 5], [0, 9, 5]], dtype=np.float32)
    order, _, falling = pruning.final(np.zeros(4, dtype=int), scores)
    assert order.tolist() == [3, 1, 2, 0]
    values = falling[order].astype(np.float32)
    assert values[0] == 5 and (np.diff(values) < 0).all() and 5 - values[-1] < 2e-6


def test_without_candidates_there_is_no_order():
    order, exits, falling = pruning.final(np.zeros(0, dtype=int), np.zeros((0, 3)))
    assert len(order) == len(exits) == len(falling) == 0


@given(st.data())
def test_final_scores_fall_in_float32_and_say_the_order(data):
    n, heads = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 4))
    value = st.one_of(st.sampled_from([0.0, -0.0, 1.0]), st.floats(-50, 50, width=32), st.floats(-1e-30, 1e-30))
    scores = np.array(data.draw(st.lists(value, min_size=n * heads, max_size=n * heads))).reshape(n, heads)
    exits = np.array(data.draw(st.lists(st.integers(0, heads - 1), min_size=n, max_size=n)))
    scores[np.arange(heads) > exits[:, None]] = np.nan
    questions = np.sort(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    order, found, falling = pruning.final(questions, scores)
    assert found.tolist() == exits.tolist()

    def key(row):
        chain = [-scores[row, head] for head in range(exits[row], -1, -1)]
        return (questions[row], -exits[row], *chain, row)

    assert order.tolist() == sorted(range(n), key=key)
    for question in np.unique(questions):
        values = falling[order][questions[order] == question].astype(np.float32)
        assert (np.diff(values) < 0).all()
