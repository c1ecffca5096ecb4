"""Which inputs are computed together: everyone once, few pads, all workers busy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_cascade.encoder.chunks import ANY_SIZE, SIZES, chunks, waves

LENGTHS = st.lists(st.integers(1, 512), max_size=300).map(lambda lengths: np.array(lengths, dtype=np.int64))


@given(LENGTHS, st.integers(1, 2_000), st.integers(1, 5), st.sampled_from([None, 0.0, 0.08, 0.5]))
def test_every_input_is_in_one_chunk(lengths, budget, workers, padding):
    parts = chunks(lengths, budget, workers, padding)
    assert sorted(np.concatenate([[], *parts])) == list(range(len(lengths)))
    for part in parts:
        assert len(part) and (np.diff(lengths[part]) >= 0).all()


@given(LENGTHS, st.integers(1, 2_000), st.floats(0, 0.49))
def test_padded_chunks_keep_the_limits(lengths, budget, padding):
    for part in chunks(lengths, budget, padding=padding):
        block = len(part) * lengths[part].max()
        assert len(part) in SIZES
        assert len(part) == 1 or (block <= budget and lengths[part].sum() >= block * (1 - padding))


@pytest.mark.parametrize("n_inputs", [100, 99, 37, 8])
def test_workers_are_equally_busy(n_inputs):
    """As many chunks as make whole rounds, and none is larger than the mean by more than its last input."""
    lengths = np.random.default_rng(n_inputs).integers(12, 128, n_inputs)
    for workers in (1, 2, 3):
        parts = chunks(lengths, 512, workers)
        sizes = [lengths[part].sum() for part in parts]
        assert len(parts) % workers == 0
        assert max(sizes) <= lengths.sum() / len(parts) + 128
        padded = chunks(lengths, 100_000, workers, padding=0.49)
        assert max(lengths[part].sum() for part in padded) <= lengths.sum() / workers + 1


def test_chunks_of_gpus_have_any_size():
    """100 inputs of 12 to 68 tokens are one block, of which 40% are pads; the budget alone divides it."""
    lengths = np.random.default_rng(0).integers(12, 69, 100)
    (part,) = chunks(lengths, 65_536, padding=ANY_SIZE)
    assert len(part) == 100 and len(part) not in SIZES
    parts = chunks(lengths, 2_000, padding=ANY_SIZE)
    assert len(parts) == 3 and max(len(part) * lengths[part].max() for part in parts) <= 2_000
    assert len(chunks(np.array([2, 2, 2, 500]), 65_536, padding=ANY_SIZE)) == 2


def test_one_candidate_is_one_chunk():
    assert [part.tolist() for part in chunks(np.array([7]), 512, 2)] == [[0]]
    assert chunks(np.array([], dtype=np.int64), 512, 2) == []
    assert chunks(np.array([], dtype=np.int64), 512, 2, 0.08) == []


def test_waves_are_whole_groups_within_the_limit():
    lengths = np.array([4, 3, 4, 3, 9, 1, 1])
    groups = np.array([0, 1, 0, 1, 2, 3, 3])
    assert [wave.tolist() for wave in waves(lengths, groups, 14)] == [[0, 2, 1, 3], [4, 5, 6]]
    assert [wave.tolist() for wave in waves(lengths, groups, 8)] == [[0, 2], [1, 3], [4], [5, 6]]
    assert [wave.tolist() for wave in waves(lengths, groups, 1)] == [[0, 2], [1, 3], [4], [5, 6]]
    assert waves(lengths[:0], groups[:0], 8) == []
