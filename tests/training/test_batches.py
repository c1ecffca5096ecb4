"""Batches of a training: by tokens, every row once, reproducible."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_cascade.training.batches import epoch_batches, sampled, token_budget


def test_token_budget_by_hand():
    lengths = np.array([5, 3, 9, 3, 4])
    batches = token_budget(lengths, 10)
    assert [b.tolist() for b in batches] == [[1, 3], [4, 0], [2]]
    assert [b.tolist() for b in token_budget(lengths, 1)] == [[1], [3], [4], [0], [2]]
    assert token_budget(np.array([], dtype=int), 10) == []


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 200))
def test_a_budget_is_kept_and_every_row_is_there_once(lengths, budget):
    lengths = np.array(lengths, dtype=int)
    batches = token_budget(lengths, budget)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or lengths[batch].max() * len(batch) <= budget


def case(n=400):
    rng = np.random.default_rng(3)
    return rng.integers(10, 60, n), (rng.random(n) < 0.1).astype(int), rng.integers(0, 20, n)


def test_an_epoch_has_every_row_once_and_little_padding():
    lengths, labels, questions = case()
    batches = epoch_batches(lengths, labels, questions, budget=400, negatives=None, seed=1)
    assert sorted(row for batch in batches for row in batch) == list(range(400))
    padded = sum(lengths[batch].max() * len(batch) for batch in batches)
    assert padded / lengths.sum() < 1.1
    again = epoch_batches(lengths, labels, questions, budget=400, negatives=None, seed=1)
    assert batches == again
    assert batches != epoch_batches(lengths, labels, questions, budget=400, negatives=None, seed=2)


def test_negatives_are_drawn_per_question():
    lengths, labels, questions = case()
    kept = [
        {row for batch in epoch_batches(lengths, labels, questions, budget=400, negatives=3, seed=s) for row in batch}
        for s in (1, 2)
    ]
    for rows in kept:
        rows = np.array(sorted(rows))
        assert set(np.flatnonzero(labels)) <= set(rows)
        negatives = np.bincount(questions[rows][labels[rows] == 0], minlength=20)
        assert (negatives == np.minimum(3, np.bincount(questions[labels == 0], minlength=20))).all()
    assert kept[0] != kept[1]


def test_sampled_by_hand():
    labels = np.array([0, 1, 0, 0, 1, 0])
    questions = np.array([1, 1, 0, 1, 0, 1])
    assert sampled(labels, questions, 1).tolist() == [True, True, True, False, True, False]
