"""Inputs as token ids: selected, in another order, and padded."""

import numpy as np

from pyterrier_cascade.encoder.token_pairs import TokenPairs, runs
from tests.encoder import spans


def test_runs_by_hand():
    assert runs(np.array([5, 0, 7]), np.array([2, 3, 0])).tolist() == [5, 6, 0, 1, 2]
    assert runs(np.array([], int), np.array([], int)).tolist() == []


def test_some_inputs_in_another_order():
    pairs = spans.inputs([2, 3, 1])
    pairs.columns["input_ids"][:] = [10, 11, 20, 21, 22, 30]
    some = pairs.select(np.array([2, 0]))
    assert some.columns["input_ids"].tolist() == [30, 10, 11] and some.lengths.tolist() == [1, 2]
    assert some.owner.tolist() == [2, 0]


def test_a_batch_is_padded_with_the_values_of_each_column():
    pairs = TokenPairs(
        {"input_ids": np.array([4, 5, 6, 7]), "token_type_ids": np.array([1, 1, 1, 1])},
        np.array([1, 3]),
        np.arange(2),
        {"input_ids": 9, "token_type_ids": 0},
    )
    batch = {name: tensor.tolist() for name, tensor in pairs.batch([1, 0]).items()}
    assert batch == {
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
        "input_ids": [[5, 6, 7], [4, 9, 9]],
        "token_type_ids": [[1, 1, 1], [1, 0, 0]],
    }
