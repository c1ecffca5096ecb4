"""Margins between stages: the same candidates as the cascade with this margin, fused or not."""

import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_cascade import FractionCutoff, MarginCutoff
from tests import lists

DOCNOS = ["d1", "d2", "d3", "d4", "d5"]


@pytest.fixture
def ranked() -> pd.DataFrame:
    """Two interleaved queries; scores 5, 4, 3.5, 1 and 7, by rank."""
    return pd.DataFrame(
        {
            "qid": ["1", "2", "1", "1", "1"],
            "query": ["a", "b", "a", "a", "a"],
            "docno": DOCNOS,
            "score": [4.0, 7.0, 5.0, 1.0, 3.5],
            "rank": [1, 0, 0, 3, 2],
        }
    )


@pytest.mark.parametrize(
    ("cutoff", "kept"),
    [
        (MarginCutoff(0), ["d2", "d3"]),
        (MarginCutoff(1), ["d1", "d2", "d3"]),
        (MarginCutoff(1.5), ["d1", "d2", "d3", "d5"]),
        (MarginCutoff(0, k=2), ["d1", "d2", "d3"]),
        (MarginCutoff(2.5, k=3), DOCNOS),
        (MarginCutoff(0, k=9), DOCNOS),
    ],
)
def test_who_is_close_enough(ranked, cutoff, kept):
    found = cutoff(ranked)
    assert found["docno"].tolist() == kept
    pd.testing.assert_frame_equal(found, ranked[ranked["docno"].isin(kept)].reset_index(drop=True))
    assert len(cutoff(ranked.iloc[:0])) == 0


@pytest.mark.parametrize("k", [1, 3])
def test_margins_in_stages_are_those_of_the_cascade(cascade, k):
    frame = lists.candidates([9, 4, 1, 12])
    margin = float(cascade[4](frame)["score"].std())
    wanted = cascade(plan=(2, 4, 6), margin=margin, margin_k=k, exited="drop")(frame)
    cut = MarginCutoff(margin, k=k)
    stages = cascade[2] >> cut >> cascade[4] >> cut >> cascade[6]
    assert type(stages).__name__ == "FusedStages"
    pd.testing.assert_frame_equal(stages(frame), wanted)
    assert 4 < len(wanted) < len(frame)
    apart = pt.Transformer.identity() >> cascade[2] >> cut >> cascade[4] >> cut >> cascade[6]
    found = apart(frame)
    pd.testing.assert_frame_equal(found[wanted.columns], wanted, atol=1e-5)
    pd.testing.assert_frame_equal(apart.compile()(frame), wanted)


@pytest.mark.parametrize("cut", [FractionCutoff(0.5), MarginCutoff(1.5)])
def test_ranks_and_scores_that_are_strings_are_numbers(cut):
    numbers = pd.DataFrame(
        {
            "qid": ["1"] * 12,
            "query": ["a"] * 12,
            "docno": [f"d{number}" for number in range(12)],
            "score": 12.0 - np.arange(12.0) / 4,
            "rank": range(12),
        }
    )
    strings = numbers.astype({"score": str, "rank": str})
    assert (
        cut(strings)["docno"].tolist()
        == cut(numbers)["docno"].tolist()
        == [f"d{number}" for number in range(len(cut(numbers)))]
    )
    assert 5 < len(cut(numbers)) < 12
    with pytest.raises(ValueError, match=r"^'rank' must hold numbers, but row 0 holds 'first'$"):
        cut(numbers.assign(rank="first"))


def test_values(cascade):
    cut = MarginCutoff(2.0, k=10)
    assert eval(repr(cut)) == cut and hash(eval(repr(cut))) == hash(cut)
    assert repr(MarginCutoff(2.0)) == "MarginCutoff(2.0)"
    assert cut != MarginCutoff(2.0) and cut != FractionCutoff(0.5)
    assert cut.schematic()["label"] == "within 2.0"
    stages = cascade[2] >> cut >> cascade[6]
    cut.margin = 0.0
    cut.k = 1
    frame = lists.candidates([9])
    assert len(stages(frame)) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"margin": -1}, "margin=-1 is not a distance between scores; give a number in log-odds, 0 or more"),
        ({"margin": True}, "margin=True is not a distance"),
        ({"margin": 1.0, "k": 0}, "margin_k=0"),
    ],
)
def test_bad_values(given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        MarginCutoff(**given)
