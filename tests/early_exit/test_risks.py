"""What questions lose is what the results of the cascade say, for settings of any kind."""

import re

import numpy as np
import pytest

from pyterrier_cascade import FirstAnswerLost, RankingLoss, TopLost
from pyterrier_cascade.early_exit.policy import Policy, policies_of
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


@pytest.mark.parametrize(
    ("risk", "text"),
    [
        (FirstAnswerLost(), "the share of queries that lose the full cascade's first answer"),
        (TopLost(k=5, share=0.825), "the share of queries that keep less than 82.5% of the full cascade's top 5"),
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
