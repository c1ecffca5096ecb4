"""The layouts of a chunk's tokens."""

import numpy as np
import pytest
import torch

from pyterrier_cascade.encoder.jagged import Jagged
from pyterrier_cascade.encoder.layout import POOLINGS, Packed, Padded
from tests.encoder.spans import CPU


def test_layouts_spread_and_pack():
    lengths = np.array([1, 2, 2])
    tokens = torch.arange(5)
    padded = Padded.of(lengths, CPU)
    assert padded.spread(tokens).tolist() == [[0, 0], [1, 2], [3, 4]]
    assert padded.pack(padded.spread(tokens)).tolist() == [0, 1, 2, 3, 4]
    packed = Packed(lengths)
    assert packed.spread(tokens + 1).tolist() == [1, 2, 3, 4, 5] + 11 * [0]
    assert packed.pack(packed.spread(tokens)).tolist() == [0, 1, 2, 3, 4]
    assert packed.positions[:5].tolist() == [0, 0, 1, 0, 1]
    assert [(inputs, tokens, block.real.shape[1]) for inputs, tokens, block in packed.blocks] == [
        (slice(0, 1), slice(0, 1), 1),
        (slice(1, 3), slice(1, 5), 2),
    ]
    ((inputs, _, block),) = Packed(lengths, merge=0.5).blocks
    assert (inputs, block.real.shape[1]) == (slice(0, 3), 8)


def test_pooling_by_hand():
    """CT-10: the mean of all symbols but the first, of all, or the first; and the last two side by side."""
    states = torch.tensor([[1.0], [5.0], [2.0], [4.0], [9.0]])
    lengths = np.array([2, 3])
    jagged = Jagged(lengths, CPU, torch.float32, varlen=False)
    for layout in (Packed(lengths), Padded.of(lengths, CPU), jagged):
        hidden = layout.spread(states)
        got = {pooling: layout.pooled(hidden, pooling).flatten().tolist() for pooling in POOLINGS}
        assert got == {"mean_nocls": [5, 6.5], "mean": [3, 5], "cls": [1, 2], "mean_cls": [3, 1, 5, 2]}


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("merge", [1.0, 0.5])
def test_attention_is_the_same_in_both_layouts(merge, window):
    """Of every token, and of the first symbols alone; a window hides what is farther away."""
    lengths, states = np.array([1, 3, 5, 5]), torch.randn(3, 14, 8, generator=torch.Generator().manual_seed(0))
    padded, packed = Padded.of(lengths, CPU), Packed(lengths, merge)
    expected = padded.pack(padded.attend(*map(padded.spread, states), n_heads=2, window=window))
    got = packed.pack(packed.attend(*map(packed.spread, states), n_heads=2, window=window))
    torch.testing.assert_close(got, expected)
    first = [layout.attend(layout.first(layout.spread(states[0])), *map(layout.spread, states[1:]), n_heads=2,
                           window=window) for layout in (padded, packed)]  # fmt: skip
    for found in first:
        torch.testing.assert_close(found, expected[packed.starts])


def test_a_mask_by_hand():
    """Pads are hidden, and so is what lies outside the window; every token sees itself, even a pad."""
    mask = Padded.of(np.array([2, 4]), CPU).mask(4, window=1)
    assert mask[:, 0].int().tolist() == [
        [[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]],
        [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]],
    ]
