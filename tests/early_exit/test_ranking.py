"""The final order of a cascade and its scores (CT-28)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_cascade.early_exit.ranking import final


def test_tiers_lie_below_each_other():
    """CT-28: who came further ranks above; inside a tier by its own head's score."""
    nan = np.nan
    scores = np.array([[9, 8, -2], [7, 9, nan], [3, nan, nan], [8, 8.5, nan], [5, 5, 3], [4, nan, nan], [0, 0, 0]])
    questions = np.array([0, 0, 0, 0, 0, 0, 1])
    order, exits, falling = final(questions, scores)
    assert order.tolist() == [4, 0, 1, 3, 5, 2, 6]
    assert exits.tolist() == [2, 1, 0, 1, 2, 0, 2]
    assert falling[order].tolist() == [3, -2, -3, -3.5, -4.5, -5.5, 0]


def test_equal_scores_stand_as_at_the_head_before():
    scores = np.array([[1, 2, 5], [3, 2, 5], [2, 2, 5], [0, 9, 5]], dtype=np.float32)
    order, _, falling = final(np.zeros(4, dtype=int), scores)
    assert order.tolist() == [3, 1, 2, 0]
    values = falling[order].astype(np.float32)
    assert values[0] == 5 and (np.diff(values) < 0).all() and 5 - values[-1] < 2e-6


def test_without_candidates_there_is_no_order():
    order, exits, falling = final(np.zeros(0, dtype=int), np.zeros((0, 3)))
    assert len(order) == len(exits) == len(falling) == 0


@given(st.data())
def test_final_scores_fall_in_float32_and_say_the_order(data):
    n, heads = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 4))
    value = st.one_of(st.sampled_from([0.0, -0.0, 1.0]), st.floats(-50, 50, width=32), st.floats(-1e-30, 1e-30))
    scores = np.array(data.draw(st.lists(value, min_size=n * heads, max_size=n * heads))).reshape(n, heads)
    exits = np.array(data.draw(st.lists(st.integers(0, heads - 1), min_size=n, max_size=n)))
    scores[np.arange(heads) > exits[:, None]] = np.nan
    questions = np.sort(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    order, found, falling = final(questions, scores)
    assert found.tolist() == exits.tolist()

    def key(row):
        chain = [-scores[row, head] for head in range(exits[row], -1, -1)]
        return (questions[row], -exits[row], *chain, row)

    assert order.tolist() == sorted(range(n), key=key)
    for question in np.unique(questions):
        values = falling[order][questions[order] == question].astype(np.float32)
        assert (np.diff(values) < 0).all()
