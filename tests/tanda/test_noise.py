"""Wrong labels by number, and what they cost."""

import numpy as np
import pandas as pd
import pytest

from pyterrier_cascade.tanda.noise import drops, flipped


@pytest.mark.parametrize(
    ("rows", "share", "n"),
    [(8672, 0.1, 867), (8672, 0.2, 1734), (53417, 0.1, 5341), (53417, 0.2, 10683), (100, 0.29, 29)],
)
def test_exact_counts_of_noise(rows, share, n):
    """TA-23."""
    frame = pd.DataFrame({"label": np.arange(rows) % 2})
    noisy = flipped(frame, share, seed=1)
    assert (noisy["label"] != frame["label"]).sum() == n
    assert (flipped(frame, share, seed=1) == noisy).all().all() and (flipped(frame, share, seed=2) != noisy).any().any()


def test_noise_is_a_uniform_sample():
    """Any two of eight labels are turned together as often as any other two: 50 times in 1,400."""
    frame = pd.DataFrame({"label": [0, 1] * 4})
    turned = [np.flatnonzero(flipped(frame, 0.25, seed)["label"] != frame["label"]) for seed in range(1_400)]
    pairs = pd.Series([tuple(two) for two in turned]).value_counts()
    assert len(pairs) == 28 and pairs.between(25, 80).all()
    assert frame["label"].tolist() == [0, 1] * 4


def test_drops():
    """TA-23: .813 falls to .775 and .629."""
    table = drops(pd.DataFrame({"AP": [0.813, 0.775, 0.629], "RR": [0.828, 0.793, 0.645]}, index=[0, 0.1, 0.2]))
    assert table.round(2).to_numpy().tolist() == [[0, 0], [4.67, 4.23], [22.63, 22.10]]


@pytest.mark.parametrize(
    ("labels", "share", "message"),
    [
        ([0, 1], 2, "share=2: give a share of the labels from 0 to 1"),
        ([0, 1], -0.1, "share=-0.1: give a share of the labels from 0 to 1"),
        ([0, 1, 0.4], 0.5, "labels of the clean data must be whole numbers, but 1 are not"),
        ([0, 0], 0.5, "no positive among the 2 candidates of the clean data"),
    ],
)
def test_noise_that_cannot_be(labels, share, message):
    with pytest.raises(ValueError, match=message):
        flipped(pd.DataFrame({"label": labels}), share)


def test_grades_become_labels_first():
    assert flipped(pd.DataFrame({"label": [0, 1, 4]}), 0)["label"].tolist() == [0, 1, 1]
