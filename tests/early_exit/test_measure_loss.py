"""The loss of a measure is what ir-measures says of the results of the cascade."""

import re

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP, RR, NumRet, P, R, Success, nDCG

from pyterrier_cascade import FirstAnswerLost, RelativeCost, TopLost
from pyterrier_cascade.early_exit.measure_loss import risk_of
from tests.drawn_traces import drawn_trace
from tests.early_exit.test_risks import POLICIES, SETTINGS, SIZES


@pytest.fixture(params=[False, True], ids=["", "ties"])
def trace(request):
    return drawn_trace(SIZES, noise=2.0, ties=request.param, seed=6)


@pytest.fixture
def qrels(trace):
    """Grades up to 2; q3 is not judged, q5 has no positive, and one positive was not retrieved."""
    # The last head's first ones, so that there is something to lose.
    frame = trace.results()[["qid", "docno", "rank"]]
    frame = frame.assign(label=frame.pop("rank").map({0: 2, 3: 1}).fillna(0).astype(int))
    frame.loc[frame["qid"] == "q5", "label"] = 0
    more = pd.DataFrame({"qid": ["q0", "elsewhere"], "docno": ["gone", "gone"], "label": [1, 1]})
    return pd.concat([frame[frame["qid"] != "q3"], more], ignore_index=True)


@pytest.mark.parametrize("measure", [AP, AP @ 2, RR, P @ 1, P @ 5, R @ 3, Success @ 2, nDCG @ 10, AP(rel=2)], ids=str)
def test_the_loss_of_a_measure_is_what_ir_measures_says(trace, qrels, measure):
    risk = risk_of(measure, qrels)
    watched = risk.watched(trace)
    chosen = np.array([0, 2, 3, 4, 5])
    assert trace.qids[watched.questions].tolist() == ["q0", "q1", "q2", "q4", "q5", "q6"]
    losses, _ = risk.outcomes(trace, watched.part(chosen), POLICIES)
    judged, values = pt.model.to_ir_measures(qrels), []
    for settings in [{}, *SETTINGS]:
        run = pt.model.to_ir_measures(trace.results(**settings))
        values.append({one.query_id: one.value for one in ir_measures.iter_calc([measure], judged, run)})
    expected = [[max(0.0, values[0][qid] - own[qid]) for qid in ("q0", "q2", "q4", "q5", "q6")] for own in values]
    np.testing.assert_allclose(losses, expected, atol=1e-12)
    assert losses.max() > 0
    assert risk.binary == (measure in (P @ 1, Success @ 2)) and str(measure) in str(risk)


@pytest.mark.parametrize("measure", [None, AP, AP(rel=2)], ids=str)
def test_costs_are_relative_costs(trace, qrels, measure):
    risk = FirstAnswerLost() if measure is None else risk_of(measure, qrels)
    watched = risk.watched(trace).part(np.array([0, 2, 4]))
    _, costs = risk.outcomes(trace, watched, POLICIES)
    asked = pd.DataFrame({"qid": trace.qids[watched.questions], "docno": "d", "label": 0})
    asked = pt.model.to_ir_measures(asked)
    for cost, settings in zip(costs[1:], SETTINGS, strict=True):
        run = pt.model.to_ir_measures(trace.results(**settings | {"exited": "below"}))
        assert cost == pytest.approx(ir_measures.calc_aggregate([RelativeCost], asked, run)[RelativeCost])


NO_RISKS = [
    (FirstAnswerLost, False, "risk=FirstAnswerLost is a class; give FirstAnswerLost()"),
    (TopLost(), True, "TopLost(k=10, share=0.9) needs no qrels; leave them out, or give a measure as the risk"),
    (AP, False, "risk=AP is a measure; give its qrels too, or a risk without labels, FirstAnswerLost()"),
    ([AP, RR], True, "risk=[AP, RR] is several measures; give one"),
    ("mapp", True, "there is no measure 'mapp'"),
    (NumRet, True, "NumRet is not known to go from 0 to 1, as a risk must; there are AP, Bpref, "),
    (RelativeCost, True, "RelativeCost is not known to go from 0 to 1"),
]


@pytest.mark.parametrize(("risk", "judged", "message"), NO_RISKS, ids=[message[:25] for *_, message in NO_RISKS])
def test_what_is_no_risk(qrels, risk, judged, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        risk_of(risk, qrels if judged else None)


def test_a_measure_by_its_name(qrels):
    assert risk_of("map", qrels).measure == AP and risk_of("Success@1", qrels).binary
