"""Real questions through a real encoder: a trace says what the live model says, ties included (CT-61)."""

import warnings

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP, RR, P, nDCG
from pandas.testing import assert_frame_equal

from pyterrier_cascade import Cascade, RelativeCost
from tests.early_exit.test_trace import COLUMNS

LAYERS = (4, 6, 8, 10, 12)


@pytest.fixture(scope="module")
def questions(shared_data):
    """Four of WikiQA, with some sentences twice under other names, and their labels."""
    candidates = pt.get_dataset("as2:wikiqa/dev", folder=str(shared_data)).get_candidates()
    candidates = candidates[candidates["qid"].isin(candidates["qid"].unique()[:4])]
    twice = candidates.iloc[::4].assign(docno=lambda frame: "again-" + frame["docno"])
    return pd.concat([candidates, twice, twice.assign(docno="a" + twice["docno"])], ignore_index=True)


@pytest.fixture(scope="module")
def cascade(shared_models):
    return Cascade.from_pretrained(str(shared_models / "e5-small"), max_length=32)


@pytest.mark.slow
def test_fifty_settings(cascade, questions):
    rng, frame = np.random.default_rng(0), questions.drop(columns="label")
    qrels = questions[["qid", "docno", "label"]]
    measures = [AP, RR, P @ 1, nDCG @ 10, RelativeCost]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = cascade.trace(frame)
        n_tied = sum(
            len(block) - block["score"].nunique() for _, block in cascade.explain(frame).groupby(["qid", "layer"])
        )
        assert n_tied >= 5 * 14
        for number in range(50):
            alpha = tuple(rng.choice([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 4).tolist())
            how = {"rounding": str(rng.choice(["floor", "nearest"])), "exited": str(rng.choice(["below", "drop"]))}
            if number % 5 == 0:
                how["batch_size"] = int(rng.integers(2, 8))
            live = cascade(alpha=alpha, **how)(frame)
            assert_frame_equal(trace.results(alpha, **how), live[COLUMNS], atol=1e-5, rtol=0)
            expected = ir_measures.calc_aggregate(
                measures, pt.model.to_ir_measures(qrels), pt.model.to_ir_measures(live)
            )
            swept = trace.sweep(qrels, measures, [alpha], **how).frame.iloc[0]
            assert {m: swept[str(m)] for m in measures} == pytest.approx(expected, abs=1e-9)
