"""The bound of a certificate holds on new queries as often as it promises (Angelopoulos et al. 2021)."""

import re
from dataclasses import asdict

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP
from scipy.stats import binom

from pyterrier_cascade import Cascade, CascadeTraining, FirstAnswerLost, RankingLoss, TopLost
from pyterrier_cascade.early_exit.certificate import last_passed, path_of
from pyterrier_cascade.early_exit.certify import default_settings
from pyterrier_cascade.early_exit.policy import Policy, policies_of
from pyterrier_cascade.early_exit.trace import Trace
from tests.drawn_traces import drawn_trace
from tests.lists import candidates

DRAWS = 2_000
EDGE = 13, 203
"""So many may lose, of so many queries: with a risk of .1 the probability is .0495."""


@pytest.fixture(scope="module")
def trace():
    return drawn_trace(np.random.default_rng(0).integers(1, 15, 300), noise=0.7)


def halves(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[n // 2 :]), np.sort(order[: n // 2])


@pytest.mark.parametrize("risk", [FirstAnswerLost(), TopLost(k=3, share=0.5), RankingLoss(5)], ids=repr)
def test_what_it_says_of_the_tested_queries_is_so(trace, risk):
    """The numbers again from the results of the setting itself."""
    found = trace.certify(risk, at_most=0.1, confidence=0.9)
    assert found.settings == asdict(Policy(alpha=found.settings["alpha"]))
    assert (found.learned, found.tested, found.at_most, found.confidence) == (150, 150, 0.1, 0.9)
    assert found.risk == str(risk) and found.fingerprint == "drawn" and found.cost < 0.9 and found.p_value <= 0.1
    _, tested = halves(300)
    results = trace.results(**found.settings)
    results = results[results["qid"].isin(trace.qids[tested])]
    first = results.drop_duplicates("qid").set_index("qid")
    assert found.cost == pytest.approx((first["q_cost"] / first["q_cost_full"]).mean())
    losses, _ = risk.outcomes(trace, risk.watched(trace).part(tested), [Policy(), Policy(**found.settings)])
    assert found.observed == pytest.approx(losses[1].mean())
    if risk == FirstAnswerLost():
        full = trace.results().drop_duplicates("qid").set_index("qid")["docno"]
        assert found.observed == pytest.approx((first["docno"] != full[first.index]).mean())


def test_it_is_the_cheapest_that_passes_in_sequence(trace):
    found = trace.certify(at_most=0.1, confidence=0.9)
    risk = FirstAnswerLost()
    policies = [Policy(), *policies_of(default_settings(2), {})]
    losses, _ = risk.outcomes(trace, risk.watched(trace), policies)
    learned, tested = halves(300)
    _, costs = risk.outcomes(trace, risk.watched(trace).part(learned), policies)
    path = path_of(losses[:, learned].mean(1), costs)
    passes = [binom.cdf(total, 150, 0.1) <= 0.1 for total in losses[path][:, tested].sum(1)]
    last = passes.index(False) - 1
    assert 3 < last < len(path) - 1
    assert Policy(**found.settings) == policies[path[last]]


def test_it_is_the_same_in_parts_and_differs_by_seed(trace, monkeypatch):
    found = trace.certify(RankingLoss())
    assert trace.certify(RankingLoss()) == found != trace.certify(RankingLoss(), seed=1)
    monkeypatch.setattr("pyterrier_cascade.early_exit.grid.CELLS", 2116 * 100)
    assert str(trace.certify(RankingLoss())) == str(found)


def test_settings_of_any_kind_compete(trace):
    settings = [
        {"counts": (9, 4)},
        {"margin": 4.0, "margin_k": 2},
        {"plan": (4, 6), "alpha": 0.5},
        {"alpha": (0.3, 0.0)},
        {"margin": 50.0},
    ]
    found = trace.certify(at_most=0.2, settings=settings, exited="drop")
    assert Policy(**found.settings) in policies_of(settings, {"exited": "drop"})
    every = [trace.certify(at_most=0.2, settings=[one], exited="drop") for one in settings]
    assert sum(one.cost < 1 for one in every) >= 3
    assert trace.certify(at_most=0.2, plan=(4, 6)).settings["plan"] == (4, 6)


def test_a_measure_by_judgements(trace):
    rng = np.random.default_rng(1)
    qrels = pd.DataFrame({"qid": trace.qids[trace.questions], "docno": trace.docnos})
    qrels = qrels.assign(label=rng.random(len(qrels)) < 0.2).astype({"label": int})
    found = trace.certify(AP, at_most=0.1, qrels=qrels[qrels["qid"] != "q0"])
    assert found.tested + found.learned == 299 and found.risk == "the mean loss of AP against the full cascade"
    # As ir-measures computes it, from fewer settings.
    other = trace.certify(AP(rel=1), at_most=0.1, qrels=qrels)
    assert other.cost == pytest.approx(found.cost, abs=0.1)


def test_nothing_cheaper_passes():
    """Heads that know nothing: the full cascade remains, and the certificate says so."""
    found = drawn_trace([10] * 120, noise=99.0).certify()
    assert found.settings == asdict(Policy()) and found.cost == 1.0 and found.observed == 0
    assert str(found).startswith(
        "No setting that drops candidates passed the test on 60 queries: for none is it sure, "
    )


def test_a_model_with_one_head():
    found = drawn_trace([10] * 120, layers=(6,)).certify()
    assert found.settings == asdict(Policy()) and found.cost == 1.0


@pytest.mark.parametrize(
    ("n_drops", "n", "alphas"),
    [(1, 91, [0.0, 0.01, 0.9]), (2, 2116, [0.0, 0.02, 0.9]), (3, 1000, [0.0, 0.1, 0.9]), (4, 2401, [0.0, 0.15, 0.9]),
     (11, 2048, [0.0, 0.9, 0.9])],
)  # fmt: skip
def test_the_default_settings(n_drops, n, alphas):
    found = [one["alpha"] for one in default_settings(n_drops)]
    assert len(set(found)) == n and all(len(alpha) == n_drops for alpha in found)
    values = sorted({alpha[-1] for alpha in found})
    assert [values[0], values[1], values[-1]] == alphas and found[0] == (0.0,) * n_drops


def test_with_very_many_heads_all_have_the_same_alpha():
    assert [one["alpha"] for one in default_settings(23)][:3] == [0.0, 0.01, 0.02]


def population(kind: str) -> tuple[np.ndarray, np.ndarray, bool, float]:
    """Losses of a population under each setting ``(n_settings, n)``, costs, whether they are 0 or 1, and a bound."""
    if kind == "edge":
        # One setting with a risk just above the bound: the exact test passes it as often as it may.
        losses = np.zeros((2, 10_000))
        losses[1, :1_001] = 1
        return losses, np.array([1.0, 0.5]), True, 0.1
    if kind == "lucky":
        # Many settings with one risk, above the bound, that lose on other queries each.
        losses = (np.random.default_rng(1).random((300, 10_000)) < 0.107).astype(float)
        losses[0] = 0
        return losses, np.linspace(1, 0.4, 300), True, 0.1
    trace = drawn_trace([12] * 3_000, noise=0.8, seed=5)
    risk = {"first": FirstAnswerLost(), "ranking": RankingLoss(5)}[kind]
    policies = [Policy(), *policies_of(default_settings(2, 400), {})]
    return *risk.outcomes(trace, risk.watched(trace), policies), risk.binary, 0.1


def violations(losses, costs, binary, at_most, n: int, confidence: float = 0.95, same: bool = False) -> float:
    """How often the certified setting of a drawn trace has a higher risk in the population than the bound says.

    Args:
        losses: Of the population ``(n_settings, n_population)``, like all others.
        costs: Of each setting.
        binary: Whether losses are 0 or 1.
        at_most: The bound.
        n: The number of queries of a trace.
        confidence: The confidence.
        same: Whether the queries that choose test too, which is wrong.
    """
    risks, rng, found = losses.mean(1), np.random.default_rng(0), 0
    for _ in range(DRAWS):
        queries = rng.integers(0, losses.shape[1], n)
        learned, tested = (queries, queries) if same else (queries[n // 2 :], queries[: n // 2])
        path = path_of(losses[:, learned].mean(1), costs)
        place, _ = last_passed(losses[np.ix_(path, tested)], at_most, confidence, binary)
        found += risks[path[place]] > at_most
    return found / DRAWS


def most(confidence: float = 0.95) -> float:
    """The promise, with the error of the test's own sample."""
    return binom.ppf(0.999, DRAWS, 1 - confidence) / DRAWS


@pytest.mark.parametrize(
    ("kind", "n"), [("edge", 2 * EDGE[1]), ("lucky", 200), ("first", 160), ("first", 400), ("ranking", 300)]
)
def test_the_bound_holds_in_thousands_of_traces(kind, n):
    losses, costs, binary, at_most = population(kind)
    share = violations(losses, costs, binary, at_most, n)
    assert share <= most()
    if kind == "edge":
        assert share >= binom.ppf(0.001, DRAWS, binom.cdf(*EDGE, 0.1001)) / DRAWS > 0.03


def test_to_choose_and_test_on_the_same_queries_breaks_the_bound():
    """So that the test above can fail."""
    losses, costs, binary, at_most = population("lucky")
    assert violations(losses, costs, binary, at_most, 200, same=True) > 0.5


@pytest.mark.slow
def test_the_bound_holds_on_real_questions(shared_data, shared_models):
    """A small cascade that learned from WikiQA's training questions; its other questions are the population."""
    train, dev, test = (
        pt.get_dataset(f"as2:wikiqa/{split}", folder=str(shared_data)).get_candidates()
        for split in ("train", "dev", "test")
    )
    training = CascadeTraining(epochs=1)
    cascade = Cascade.from_pretrained(str(shared_models / "bert-tiny"), layers=(1, 2), max_length=64, training=training)
    trace = cascade.fit_candidates(train).trace(pd.concat([dev, test]).drop(columns="label"))
    for risk in (FirstAnswerLost(), RankingLoss(3)):
        policies = [Policy(), *policies_of(default_settings(1), {})]
        losses, costs = risk.outcomes(trace, risk.watched(trace), policies)
        risks = losses.mean(1)
        # Bounds at which settings near the bound are many.
        for at_most in (0.1, float(np.median(risks)) + 1e-3):
            assert (risks > at_most).sum() > 10
            assert violations(losses, costs, risk.binary, at_most, 300) <= most()


def test_seen_questions_certify_nothing():
    message = (
        "the heads learned from 2 of the trace's 120 questions, the first of which is 'q7' ('question 7'); these "
        "certify nothing, so trace candidates of other queries"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        drawn_trace([5] * 120, seen=[99, 7]).certify()


def test_a_trace_asks_the_ranker_what_it_has_seen(cascade, monkeypatch, tmp_path):
    frame = candidates([4, 3, 5, 2])
    frame["query"] = frame["qid"].map({"q0": "a ship", "q1": "a town", "q2": "the ship", "q3": None})
    assert cascade.trace(frame).seen.tolist() == [False] * 4
    monkeypatch.setattr(Cascade, "has_seen", lambda _, queries: np.array([one.endswith("ship") for one in queries]))
    cascade.trace(frame, tmp_path / "trace")
    kept = Trace(tmp_path / "trace")
    assert dict(zip(kept.qids, kept.seen.tolist(), strict=True)) == {"q0": True, "q1": False, "q2": True, "q3": False}


WRONG = [
    ({"confidence": 1}, "confidence=1: give a number between 0 and 1; neither end can be certified"),
    ({"confidence": 0.0}, "confidence=0.0: give a number between 0 and 1; neither end can be certified"),
    ({"confidence": "high"}, "confidence='high': give a number between 0 and 1"),
    ({"at_most": 0}, "at_most=0: give a number between 0 and 1; neither end can be certified"),
    ({"at_most": 1.5}, "at_most=1.5: give a number between 0 and 1"),
    ({"at_most": float("nan")}, "at_most=nan: give a number between 0 and 1"),
    ({"risk": AP}, "risk=AP is a measure; give its qrels too"),
    ({"settings": []}, "settings is empty; give at least one setting"),
    ({"settings": {"alpha": 0.3}}, "settings={'alpha': 0.3}: give a list of dictionaries"),
    ({"settings": [{"alpha": 2}]}, "alpha=2 is not a fraction to drop"),
    ({"settings": [{"plan": (2, 9)}]}, "plan=(2, 9), but there are heads at layers (2, 4, 6) only"),
    ({"settings": [{"alpha": (0.3,)}]}, "alpha=(0.3,) has 1 values, but 2 heads drop candidates"),
    ({"alpha": 0.3}, "alpha=0.3: give settings=[{'alpha': 0.3}] to try this one"),
    ({"at_most": 0.01}, "300 questions are too few for at_most=0.01 and confidence=0.95: give a trace of at least 598 "
                        "(299 choose, and a setting that loses nothing in the other 299 passes)"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[message[:30] for _, message in WRONG])
def test_what_cannot_be_certified(trace, given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        trace.certify(**given)
    if "settings" not in given:
        with pytest.raises(TypeError, match=re.escape("Policy has no setting 'aplha' (did you mean 'alpha'?)")):
            trace.certify(aplha=0.3)


def test_so_many_questions_are_enough():
    with pytest.raises(ValueError, match=r"117 questions are too few .* give a trace of at least 118 "):
        drawn_trace([8] * 117, noise=0.01).certify()
    assert drawn_trace([8] * 118, noise=0.0).certify().cost < 0.6
