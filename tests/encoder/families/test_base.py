"""The parts that all families share."""

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder.families import Weights, take_apart
from pyterrier_cascade.encoder.families.base import Embeddings, first_of_sequence
from pyterrier_cascade.encoder.layers import Norm
from tests.encoder import spans


def test_embeddings_are_shared_not_copied(encoder):
    model = encoder("bert")
    apart = take_apart(model, Weights(spans.CPU, torch.float32))
    assert apart.embeddings.tables["input_ids"].data_ptr() == model.embeddings.word_embeddings.weight.data_ptr()


def test_several_maps_become_one():
    torch.manual_seed(0)
    first, second, x = nn.Linear(4, 3), nn.Linear(4, 2), torch.randn(5, 4)
    joint = Weights(spans.CPU, torch.float32).linear(first, second, activation="relu")
    torch.testing.assert_close(joint(x), torch.cat([first(x), second(x)], 1).relu())


def test_positions_by_hand():
    """From 0; or from the number behind the padding token's, which is not counted itself."""

    def positions(padding_id):
        tables = {"input_ids": torch.zeros(9, 2), "positions": torch.zeros(9, 2)}
        made = Embeddings(tables, Norm(torch.ones(2), None, 1e-5), nn.Identity(), padding_id)
        pairs = spans.inputs([3, 4])
        pairs.columns["input_ids"][:] = [5, 1, 6, 7, 8, 1, 5]
        return made.positions(pairs.columns["input_ids"][[3, 4, 5, 6, 0, 1, 2]], np.array([4, 3])).tolist()

    assert positions(None) == [0, 1, 2, 3, 0, 1, 2]
    assert positions(1) == [2, 3, 1, 4, 2, 1, 3]


def test_modules_that_read_the_first_of_a_sequence_get_one():
    assert first_of_sequence()(torch.tensor([[-2.0, 0.0]] * 3)).tolist() == [[[-2.0, 0.0]]] * 3
