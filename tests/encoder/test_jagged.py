"""The layout of GPUs, computed on the CPU; ``tests/gpu`` has whole models on a simulated device."""

import numpy as np
import pytest
import torch

from pyterrier_cascade.encoder.jagged import Jagged
from pyterrier_cascade.encoder.layout import Padded
from tests.encoder.spans import CPU


def jagged(lengths, dtype=torch.float32) -> Jagged:
    return Jagged(np.array(lengths), CPU, dtype, varlen=False)


def test_places_by_hand():
    layout, tokens = jagged([2, 3]), torch.arange(5)
    assert layout.offsets.tolist() == [0, 2, 5] and layout.offsets.dtype == torch.int32
    assert layout.owners.tolist() == [0, 0, 1, 1, 1] and layout.positions.tolist() == [0, 1, 0, 1, 2]
    assert layout.block(tokens).tolist() == [[0, 1, 1, 1, 1, 1, 1, 1], [2, 3, 4, 4, 4, 4, 4, 4]]
    assert layout.pads[:, 0, 0].isinf().tolist() == [[False] * 2 + [True] * 6, [False] * 3 + [True] * 5]
    assert layout.spread(tokens) is layout.pack(tokens) is tokens
    full = jagged([2, 2])
    assert full.block(tokens[:4]).tolist() == [[0, 1], [2, 3]] and full.pads is None


@pytest.mark.parametrize("lengths", [[5], [4, 4, 4], [1, 3, 5, 5], [40, 2, 1, 17, 9, 16]], ids=str)
@pytest.mark.parametrize("window", [None, 1, 2, 8, 100])
def test_attention_equals_that_of_a_padded_block(lengths, window):
    """Of every token, and of the first symbols alone; a window hides what is farther away."""
    states = torch.randn(3, sum(lengths), 8, generator=torch.Generator().manual_seed(0))
    layout, padded = jagged(lengths), Padded.of(np.array(lengths), CPU)
    expected = padded.pack(padded.attend(*map(padded.spread, states), n_heads=2, window=window))
    torch.testing.assert_close(layout.attend(*states, n_heads=2, window=window), expected)
    first = layout.attend(layout.first(states[0]), *states[1:], n_heads=2, window=window)
    torch.testing.assert_close(first, expected[layout.starts.long()])


def test_the_mask_of_a_window_grows_with_the_tokens_alone():
    layout = jagged([300, 20, 7])
    layout.attend(*torch.randn(3, 327, 8), n_heads=2, window=16)
    ((mask,),) = [tuple(layout._windows.values())]
    assert mask.shape == (21, 1, 16, 48) and mask.numel() < 3 * 300 * 300


def test_means_of_half_precision_are_summed_in_fp32():
    """A mean of 400 numbers near 300: in fp16 their sum would be infinite, and in bf16 far off."""
    states = 300 + torch.randn(400, 4, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float16, torch.bfloat16):
        low, lengths = states.to(dtype), np.array([400])
        for pooling, expected in (("mean", low.double().mean(0)), ("mean_nocls", low[1:].double().mean(0))):
            for layout in (jagged([400], dtype), Padded.of(lengths, CPU)):
                found = layout.pooled(layout.spread(low), pooling)
                assert found.dtype == torch.float32
                torch.testing.assert_close(found[0].double(), expected, atol=1e-3, rtol=0)
