"""Relative cost on small frames."""

import ir_measures
import numpy as np
import pandas as pd
import pytest

from pyterrier_cascade import RelativeCost, RelativeTokenCost

QRELS = pd.DataFrame({"query_id": ["1", "2"], "doc_id": ["d", "d"], "relevance": [1, 1]})


def run(**columns) -> pd.DataFrame:
    return pd.DataFrame({"query_id": ["1", "2", "3"], "doc_id": "d", "score": 1.0, **columns})


@pytest.mark.parametrize(
    ("measure", "names"),
    [(RelativeCost, ("q_cost", "q_cost_full")), (RelativeTokenCost, ("q_token_cost", "q_token_cost_full"))],
    ids=str,
)
@pytest.mark.parametrize(
    ("spent", "full", "expected"),
    [
        ([1.0, 3.0, 9.0], [4.0, 4.0, 4.0], 0.5),
        ([1.0, np.nan, 9.0], [4.0, np.nan, 4.0], 0.125),
        ([1.0, np.nan, 9.0], [4.0, 4.0, 4.0], np.nan),
        ([np.nan] * 3, [0.0] * 3, np.nan),
    ],
    ids=["counted", "a-query-of-the-retriever", "unknown-for-a-query", "unknown"],
)
def test_relative_cost(measure, names, spent, full, expected):
    """The mean over the judged queries 1 and 2; the cost is 0 where none is stated, NaN where it is unknown."""
    found = ir_measures.calc_aggregate([measure], QRELS, run(**{names[0]: spent, names[1]: full}))[measure]
    assert found == pytest.approx(expected, nan_ok=True)


def test_a_retriever_costs_nothing():
    assert ir_measures.calc_aggregate([RelativeCost], QRELS, run())[RelativeCost] == 0
