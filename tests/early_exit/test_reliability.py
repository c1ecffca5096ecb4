"""Bins of probabilities beside the share of relevant candidates."""

import re

import matplotlib
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from pyterrier_cascade import reliability

matplotlib.use("Agg")

RESULTS = pd.DataFrame(
    {
        "qid": ["1", "1", "1", "1", "2", "2", "3"],
        "docno": ["a", "b", "c", "d", "a", "b", "a"],
        "probability": [0.0, 0.1, 0.3, 1.0, 0.4, float("nan"), 0.9],
    }
)
QRELS = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["d", "c", "b"], "label": [2, 1, 1]})


def test_bins_by_hand():
    found = reliability(RESULTS, QRELS, bins=4)
    expected = pd.DataFrame(
        {
            "low": [0, 0.25, 0.75],
            "high": [0.25, 0.5, 1],
            "probability": [0.05, 0.35, 1],
            "relevant": [0, 0.5, 1],
            "count": [2, 2, 1],
        }
    )
    assert_frame_equal(found.frame, expected, check_dtype=False)
    assert found.error == pytest.approx((2 * 0.05 + 2 * 0.15 + 0) / 5)
    assert repr(found) == "<Reliability of 5 candidates in 3 bins, error 0.080>"
    assert reliability(RESULTS, QRELS, bins=4, relevant_from=2).frame["relevant"].tolist() == [0, 0, 1]


@pytest.mark.parametrize("bins", [0, 2.5, True])
def test_bins_that_cannot_be(bins):
    with pytest.raises(ValueError, match=re.escape(f"bins={bins!r}: give a whole number, 1 or more")):
        reliability(RESULTS, QRELS, bins=bins)


def test_results_that_say_nothing():
    with pytest.raises(ValueError, match="none of 7 rows has a probability and a judged query; are the qrels their"):
        reliability(RESULTS, QRELS.assign(qid="9"))
    with pytest.raises(Exception, match="probability"):
        reliability(RESULTS.drop(columns="probability"), QRELS)


def test_several_curves_on_one_picture():
    one = reliability(RESULTS, QRELS, bins=4)
    ax = one.plot("one")
    assert one.plot("two", ax) is ax
    diagonal, *curves = ax.lines
    assert diagonal.get_xydata().tolist() == [[0, 0], [1, 1]]
    expected = one.frame[["probability", "relevant"]].to_numpy().tolist()
    assert [line.get_xydata().tolist() for line in curves] == [expected, expected]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "two"]
