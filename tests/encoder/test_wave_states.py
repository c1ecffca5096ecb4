"""States between heads: they lie where they lay, whoever leaves and however chunks are made."""

import numpy as np
import pytest
import torch

from pyterrier_cascade.encoder.layout import Packed, Padded
from pyterrier_cascade.encoder.wave_states import WaveStates
from tests.encoder import spans

LENGTHS = [3, 1, 2, 4]


def values(rows, start: float = 0.0) -> torch.Tensor:
    """A state for each token of some inputs: the input's number and the token's place."""
    return torch.tensor([[row + start, place] for row in rows for place in range(LENGTHS[row])], dtype=torch.float32)


@pytest.mark.parametrize("layout", [Packed, lambda lengths: Padded.of(lengths, spans.CPU)], ids=["packed", "padded"])
def test_inputs_keep_their_states_when_others_leave(layout):
    pairs, wave = spans.inputs(LENGTHS), np.array([3, 0, 1])
    states = WaveStates(pairs, wave, 2, torch.float32, spans.CPU)
    # Chunks in order of length: what is written lies end to end.
    for rows in ([1, 0], [3]):
        chunk = layout(pairs.lengths[rows])
        states.write(np.array(rows), chunk, chunk.spread(values(rows)))
    # The first input leaves; the others are neighbours no longer, and get new states.
    for start in (0.0, 10.0):
        for rows in ([1, 3], [0], [3]):
            chunk = layout(pairs.lengths[rows])
            read = chunk.pack(states.read(np.array(rows), chunk))
            assert read.tolist() == values(rows, start).tolist()
        chunk = layout(pairs.lengths[[1, 3]])
        states.write(np.array([1, 3]), chunk, chunk.spread(values([1, 3], 10.0)))
        chunk = layout(pairs.lengths[[0]])
        states.write(np.array([0]), chunk, chunk.spread(values([0], 10.0)))
