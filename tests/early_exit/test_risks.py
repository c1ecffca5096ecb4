"""What questions lose is what the results of the cascade say, for settings of any kind."""

import re

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP, RR, NumRet, P, R, Success, nDCG

from pyterrier_cascade import FirstAnswerLost, RankingLoss, RelativeCost, TopLost
from pyterrier_cascade.early_exit.policy import Policy, policies_of
from pyterrier_cascade.early_exit.risks import risk_of
from tests.drawn_traces import drawn_trace

SIZES = [7, 1, 12, 3, 20, 2, 9]
SETTINGS = [
    {"alpha": 0.0},
    {"alpha": 0.4},
    {"alpha": (0.7, 0.2)},
    {"alpha": (0.7, 0.2), "exited": "drop"},
    {"counts": (8, 3)},
    {"margin": 2.0},
    {"margin": (1.0, 0.0), "margin_k": 3, "exited": "drop"},
    {"plan": (2, 6), "alpha": 0.5, "batch_size": 4},
    {"plan": (4,)},
    {"alpha": (0.6, 0.3), "batch_size": 5, "rounding": "nearest"},
]
POLICIES = [Policy(), *policies_of(SETTINGS, {})]


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


def rankings(trace, settings) -> dict[str, list[str]]:
    return trace.results(**settings).groupby("qid")["docno"].agg(list).to_dict()


def top_kept(found, full, k):
    return len(set(found[:k]) & set(full[:k])) / min(k, len(full))


def ndcg(found, full, cutoff):
    gains = {docno: cutoff - place for place, docno in enumerate(full[:cutoff])}
    dcg = [sum(gains.get(docno, 0) / np.log2(place + 2) for place, docno in enumerate(one[:cutoff]))
           for one in (found, full)]  # fmt: skip
    return dcg[0] / dcg[1]


BY_HAND = [
    (FirstAnswerLost(), lambda found, full: found[0] != full[0]),
    (TopLost(), lambda found, full: top_kept(found, full, 10) < 0.9),
    (TopLost(k=5, share=0.6), lambda found, full: top_kept(found, full, 5) < 0.6),
    (TopLost(k=1, share=1), lambda found, full: found[0] != full[0]),
    (RankingLoss(), lambda found, full: 1 - ndcg(found, full, 10)),
    (RankingLoss(cutoff=3), lambda found, full: 1 - ndcg(found, full, 3)),
]


@pytest.mark.parametrize(("risk", "loss"), BY_HAND, ids=lambda value: repr(value) if not callable(value) else "")
@pytest.mark.parametrize("cells", [10_000_000, 100])
def test_risks_without_labels_by_hand(trace, risk, loss, cells, monkeypatch):
    monkeypatch.setattr("pyterrier_cascade.early_exit.grid.CELLS", cells)
    losses, _ = risk.outcomes(trace, risk.watched(trace), POLICIES)
    full = rankings(trace, {})
    for row, settings in zip(losses[1:], SETTINGS, strict=True):
        found = rankings(trace, settings)
        np.testing.assert_allclose(row, [float(loss(found[qid], full[qid])) for qid in trace.qids], atol=1e-12)
    assert not losses[0].any() and losses.sum(1).min() == 0 < losses.sum(1).max()
    assert not losses[:, 1].any(), "one candidate cannot lose"


def test_some_of_the_top_may_be_lost():
    """Of 100 and .29, in floats 28.999999999999996, 29 must stay: 71 may be lost."""
    risk = TopLost(k=100, share=0.29)
    watched = risk.watched(drawn_trace([120]))
    for n_lost, lost in ((71, 0), (72, 1)):
        positions = np.arange(100)[None] + np.where(np.arange(100) < n_lost, 100, 0)
        assert risk.losses(positions, watched.judged).tolist() == [[lost]]


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


@pytest.mark.parametrize(
    ("risk", "text"),
    [
        (FirstAnswerLost(), "the share that loses the full cascade's first answer"),
        (TopLost(k=5, share=0.825), "the share that keeps less than 82.5% of the full cascade's top 5"),
        (RankingLoss(20), "the mean of 1 - nDCG@20 against the full cascade's ranking"),
    ],
)
def test_a_risk_is_a_value_with_a_name(risk, text):
    assert str(risk) == text and eval(repr(risk)) == risk and hash(eval(repr(risk))) == hash(risk)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopLost(k=0), "k=0: give how many of the best candidates count, 1 or more"),
        (lambda: TopLost(share=0), "share=0: give the share of the top 10 that must stay, above 0, up to 1"),
        (lambda: TopLost(share=1.1), "share=1.1: give the share"),
        (lambda: TopLost(share=True), "share=True: give the share"),
        (lambda: RankingLoss(cutoff=2.5), "cutoff=2.5: give how many candidates count, 1 or more"),
    ],
    ids=["k", "none", "more", "bool", "cutoff"],
)
def test_risks_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


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
