"""A trace of a whole pipeline says what ``front % k >> cascade`` says, at every cut and every setting."""

import json
import re
import subprocess
import sys
import warnings
from dataclasses import asdict

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP, RR, Judged, P, nDCG
from pandas.testing import assert_frame_equal

from pyterrier_cascade import (
    DCBERT,
    Cascade,
    Certificate,
    CrossEncoder,
    FirstAnswerLost,
    FractionCutoff,
    HierarchicalRanker,
    RankingLoss,
    RelativeCost,
    RelativeTokenCost,
    SequentialReranker,
    Survival,
    TopLost,
    Trace,
)
from pyterrier_cascade.early_exit.certify import default_settings
from pyterrier_cascade.early_exit.fates import fates
from pyterrier_cascade.early_exit.front import default_cuts, identity_of
from pyterrier_cascade.early_exit.policy import CutPolicy, Policy, policies_of, policy_of
from pyterrier_cascade.early_exit.rank_measures import NOWHERE
from pyterrier_cascade.early_exit.sweep import with_cuts
from pyterrier_cascade.model import TrainedOn
from tests import tiny
from tests.drawn_traces import drawn_trace
from tests.early_exit.test_certify import halves, most, violations
from tests.early_exit.test_trace import COLUMNS, SIZES, drawn, qrels_of
from tests.hierarchical.questions import TRAIN
from tests.hierarchical.questions import ranker as small
from tests.lists import candidates

pytestmark = pytest.mark.filterwarnings("ignore:.* is fresh", "ignore:.* are fresh")


@pytest.fixture(scope="module")
def frame():
    return candidates(SIZES)


@pytest.fixture(scope="module")
def models(encoder, tmp_path_factory) -> dict[str, str]:
    """A shallower cross-encoder that is twice as wide, one of the same width, and a trained DC-BERT."""
    folder = tmp_path_factory.mktemp("fronts")
    wide = {"hidden_size": 64, "intermediate_size": 128}
    dcbert = DCBERT.from_pretrained(tiny.save(folder / "bare", layers=3, outputs=None, seed=4), joint_layers=1)
    dcbert.model.loaded.mark_trained(TrainedOn(1, 2, 1, "-"))
    dcbert.save_pretrained(folder / "dcbert")
    return {
        "wide": tiny.save(folder / "wide", layers=2, seed=7, **wide),
        "same": tiny.save(folder / "same", layers=2, seed=8),
        "dcbert": str(folder / "dcbert"),
    }


@pytest.fixture(scope="module")
def cache(models, frame, tmp_path_factory):
    return DCBERT.from_pretrained(models["dcbert"]).encode(
        frame[["docno", "text"]], tmp_path_factory.mktemp("cache") / "documents.dc"
    )


@pytest.fixture(scope="module")
def words() -> HierarchicalRanker:
    """A hierarchical ranker that knows some words."""
    return small().fit_candidates(TRAIN)


@pytest.fixture
def fronts(models, cache, saved, words) -> dict[str, pt.Transformer]:
    """All kinds of rerankers."""
    shallow = Cascade.from_pretrained(saved)
    return {
        "cached": cache.reranker(),
        "late": cache.reranker(interaction="late"),
        "cross-encoder": CrossEncoder.from_pretrained(models["wide"]),
        "hierarchical": words,
        "cascade": shallow(plan=(2, 3), alpha=0.4),
        "stage": shallow[3] % 8,
        "two": cache.reranker(interaction="late") % 0.7 >> cache.reranker(),
        "lengths": pt.apply.doc_score(lambda row: len(row["text"]) % 7),
    }


def live(front, k, cascade, frame) -> pd.DataFrame:
    """The results of the pipeline itself, question by question in the order of the frame."""
    cut = FractionCutoff(k) if isinstance(k, float) else pt.RankCutoff(k)
    out = (front >> cut >> cascade)(frame)
    order = {qid: number for number, qid in enumerate(frame["qid"].unique())}
    return out.sort_values(["qid", "rank"], key=lambda one: one.map(order) if one.name == "qid" else one)


NAMES = ["cached", "late", "cross-encoder", "hierarchical", "cascade", "stage", "two"]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "lengths"])
def test_it_says_what_the_pipeline_says(cascade, fronts, frame, name, ties):
    """Rank for rank, with scores and costs; questions have 1 to 30 candidates."""
    if ties:
        # Few different texts, but the documents of the cache have each its own.
        frame = candidates(SIZES, ties=True)
    front, rng = fronts[name], np.random.default_rng(1)
    trace = cascade.trace(frame, front=front)
    for k in (1, 2, 5, 9, 14, 30, 100, 0.3, 0.01):
        for settings in (drawn(rng), {"alpha": 0.4}):
            expected = live(front, k, cascade(**settings), frame)
            found = trace.results(k=k, **settings)
            columns = [c for c in COLUMNS if name != "lengths" or c not in ("q_cost_full", "q_token_cost_full")]
            assert_frame_equal(
                found[columns], expected[columns].reset_index(drop=True), atol=4e-6, rtol=1e-12, check_exact=False
            )
            assert found["docno"].tolist() == expected["docno"].tolist()
    # Without the front it is the cascade alone.
    assert_frame_equal(trace.results(0.4), cascade.trace(frame).results(0.4), atol=4e-6, rtol=0)


def test_costs_by_hand(cascade, cache, models, frame):
    """10 candidates, 4 of which go on.

    The cached front reads its question with 3 layers and joins it in 1 layer with each. All layers have 8,192
    multiply-adds for a token. A cross-encoder of 2 layers of twice the width has 4 times as many in each.
    """
    ten = frame[(frame["qid"] == "q0") & (frame["rank"] < 10)]
    wide = CrossEncoder.from_pretrained(models["wide"])
    for front, spent in ((cache.reranker(), 3 + 10), (wide, 10 * 2 * 4), (cache.reranker(interaction="late"), 3)):
        out = (front % 4 >> cascade)(ten)
        assert out["q_cost"].unique().tolist() == [spent + 4 * 6] and out["q_cost_full"].unique().tolist() == [10 * 6]
        assert out["q_full_layers"].unique().tolist() == [6] and out["q_layer_size"].unique().tolist() == [8192]
        qrels = ten[["qid", "docno"]].assign(label=1)
        sweep = cascade.trace(ten, front=front).sweep(qrels, [AP], alphas=[0.0, 0.5], ks=[None, 4, 10])
        # Of 4 candidates 2, 1, 1 and 1 go on, of 10 candidates 5, 3, 2 and 1.
        half = (4 * 2 + 2 + 1 + 1 + 1, 10 * 2 + 5 + 3 + 2 + 1)
        expected = [60, half[1], spent + 24, spent + half[0], spent + 60, spent + half[1]]
        assert sweep.frame["k"].tolist() == [None, None, 4, 4, 10, 10]
        assert sweep.frame["RelativeCost"].tolist() == pytest.approx([one / 60 for one in expected])
        assert sweep.full["RelativeCost"] == pytest.approx(1) and sweep.full["k"] is None


def test_a_front_that_states_no_costs_counts_as_nothing(cascade, fronts, frame):
    """Against all candidates that entered it, which the pipeline itself does not know."""
    ten = frame[(frame["qid"] == "q0") & (frame["rank"] < 10)]
    found = cascade.trace(ten, front=fronts["lengths"]).results(k=4)
    assert (found["q_cost"] == 4 * 6).all() and (found["q_cost_full"] == 10 * 6).all()
    assert (found["q_full_layers"] == 6).all() and (found["q_layer_size"] == 8192).all()
    alone = (fronts["lengths"] % 4 >> cascade)(ten)
    assert (alone["q_cost"] == 4 * 6).all() and (alone["q_cost_full"] == 4 * 6).all()


MEASURES = [AP, RR, P @ 5, nDCG @ 10, Survival @ 6, Judged @ 10, RelativeCost, RelativeTokenCost]


@pytest.mark.parametrize("exited", ["below", "drop"])
@pytest.mark.parametrize("name", ["cached", "two", "cross-encoder", "hierarchical"])
def test_a_sweep_measures_the_pipelines(cascade, fronts, frame, name, exited):
    """As ir-measures measures the results of each pipeline that is run."""
    front, qrels = fronts[name], qrels_of(frame)
    trace = cascade.trace(frame, front=front)
    alphas = [0.0, 0.3, (0.5, 0.0, 0.9, 0.1)]
    sweep = trace.sweep(qrels, MEASURES, alphas, ks=[2, 7, None, 0.5], exited=exited)
    assert sweep.frame["k"].tolist() == [k for k in (2, 7, None, 0.5) for _ in alphas]
    assert sweep.frame["alpha"].tolist() == alphas * 4
    assert repr(sweep) == f"<Sweep of 12 settings: {', '.join(map(str, MEASURES))}>"
    judged = pt.model.to_ir_measures(qrels)
    for row in sweep.frame.to_dict("records"):
        ranker = cascade(alpha=row["alpha"], exited=exited)
        results = ranker(frame) if row["k"] is None else live(front, row["k"], ranker, frame)
        expected = ir_measures.calc_aggregate(MEASURES, judged, pt.model.to_ir_measures(results))
        assert {str(m): row[str(m)] for m in MEASURES} == pytest.approx(
            {str(m): expected[m] for m in MEASURES}, abs=1e-7
        )
    best = sweep.best(max_cost=0.9)
    assert set(best.index) >= {"k", "alpha", "AP", "RelativeCost"}


def test_a_sweep_of_settings_with_cuts_of_their_own(cascade, fronts, frame):
    trace, qrels = cascade.trace(frame, front=fronts["cached"]), qrels_of(frame)
    settings = [{"k": 5, "margin": 1.0}, {"counts": (5, 4, 3, 2)}, {"k": 0.5, "plan": (4, 6), "alpha": 0.5}]
    sweep = trace.sweep(qrels, [AP], settings=settings)
    assert sweep.frame["k"].tolist() == [5, None, 0.5]
    assert sweep.frame["settings"].tolist() == [{"margin": 1.0}, settings[1], {"plan": (4, 6), "alpha": 0.5}]
    for given, row in zip(settings, sweep.frame.to_dict("records"), strict=True):
        results = pt.model.to_ir_measures(trace.results(**given))
        expected = ir_measures.calc_aggregate([AP], pt.model.to_ir_measures(qrels), results)
        assert row["AP"] == pytest.approx(expected[AP])
    by_default = trace.sweep(qrels, [AP], alphas=[0.0])
    assert by_default.frame["k"].tolist() == [None, 5, 10, 20]
    pytest.importorskip("matplotlib").use("Agg")
    assert len(by_default.plot().collections[0].get_offsets()) == 4


def test_it_is_kept_on_disk_and_goes_on(cascade, fronts, frame, tmp_path, monkeypatch):
    monkeypatch.setattr("pyterrier_cascade.early_exit.trace.ROWS", 10)
    front, whole = fronts["cached"], cascade.trace(frame, front=fronts["cached"])
    cascade.trace(frame[frame["qid"].isin(["q0", "q1"])], tmp_path / "trace", front=front)
    kept = cascade.trace(frame, tmp_path / "trace", front=front)
    assert len(kept.parts) > 2
    opened = Trace(tmp_path / "trace")
    order = ["qid", "rank"]
    for k in (3, 0.4):
        assert_frame_equal(
            *(one.results(0.4, k=k).sort_values(order, ignore_index=True) for one in (opened, whole)), atol=4e-6, rtol=0
        )
    assert opened.front == str(front) == opened.describe()["front"]
    assert repr(opened).endswith(f"heads at layers (2, 3, 4, 5, 6), behind {front}>")
    assert sorted(opened.front_scores) == pytest.approx(sorted(whole.front_scores), abs=1e-6)
    message = (
        f"the trace at {str(tmp_path / 'trace')!r} has the front {front}, which is not {{}}; give another path, or "
        "delete it"
    )
    with pytest.raises(ValueError, match=re.escape(message.format("no front"))):
        cascade.trace(frame, tmp_path / "trace")
    with pytest.raises(ValueError, match=re.escape(message.format(f"the front {fronts['late']}"))):
        cascade.trace(frame, tmp_path / "trace", front=fronts["late"])
    cascade.trace(frame, tmp_path / "plain")
    message = (
        f"the trace at {str(tmp_path / 'plain')!r} has no front, which is not the front {front}; give another path"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        cascade.trace(frame, tmp_path / "plain", front=front)


def test_workers_run_the_front_too(cascade, fronts, frame):
    class Pool:
        def map(self, work, units):
            import pickle

            return [pickle.loads(pickle.dumps(work))(unit) for unit in units]

    front = fronts["cached"]
    assert_frame_equal(
        *(cascade.trace(frame, pool=pool, front=front).results(0.3, k=4) for pool in (None, Pool())), atol=4e-6, rtol=0
    )


def test_a_sequential_reranker_behind_a_front(models, cache, frame):
    """One model alone has one head: the cut is all that there is to choose."""
    sequential = SequentialReranker([CrossEncoder.from_pretrained(models["wide"])])
    front = cache.reranker()
    trace = sequential.trace(frame, front=front)
    for k in (1, 6):
        expected = live(front, k, sequential, frame)[COLUMNS].reset_index(drop=True)
        assert_frame_equal(trace.results(k=k), expected, atol=4e-6, rtol=1e-12)


def test_models_of_two_widths_one_after_the_other(models, frame):
    """The layers of each by its multiply-adds: 2 of 8,192 and then 2 of 32,768 for half of them."""
    two = [CrossEncoder.from_pretrained(tiny.save(models["same"] + "-1", layers=1)), models["wide"]]
    sequential = SequentialReranker([two[0], CrossEncoder.from_pretrained(two[1])], alpha=0.5)
    ten = frame[(frame["qid"] == "q0") & (frame["rank"] < 10)]
    out = sequential(ten)
    assert out["q_cost"].unique().tolist() == [10 / 4 + 5 * 2] and out["q_cost_full"].unique().tolist() == [20]
    assert_frame_equal(sequential.trace(ten).results(0.5), out[COLUMNS], atol=4e-6, rtol=0)


@pytest.mark.parametrize("front", [0.0, 0.5])
def test_fates_are_those_of_the_results(front):
    """Of drawn fronts: one that ranks as the last head does, and one that errs."""
    trace = drawn_trace([3, 12, 1, 14, 9], front=front)
    policies = [
        CutPolicy(alpha=0.4, k=5),
        CutPolicy(margin=2.0, k=0.5),
        Policy(alpha=0.4),
        CutPolicy(counts=(6, 2), exited="drop", k=7),
        CutPolicy(plan=(6,), k=1),
        CutPolicy(alpha=(0.5, 0.1), batch_size=4, k=100),
    ]
    rows = np.arange(30)
    relevant = np.array([1, 3, 7, 8, 14, 15, 16, 23, 29])
    found = fates(trace, rows, relevant, policies)
    for number, policy in enumerate(policies):
        results = trace.results(**asdict(policy)).set_index("docno")
        ranks = results["rank"].reindex(trace.docnos[rows][relevant]).fillna(NOWHERE).astype(int)
        assert found.positions[number].tolist() == ranks.tolist()
        first = trace.results(**asdict(policy) | {"exited": "below"}).drop_duplicates("qid").set_index("qid")
        first = first.loc[["q0", "q1", "q2", "q3"]]
        assert found.costs[number] == pytest.approx((first["q_cost"] / first["q_cost_full"]).sum())
        assert found.token_costs[number] == pytest.approx((first["q_token_cost"] / first["q_token_cost_full"]).sum())


@pytest.fixture(scope="module")
def trace():
    return drawn_trace(np.random.default_rng(0).integers(1, 40, 300), noise=0.7, front=0.3)


@pytest.mark.parametrize("risk", [FirstAnswerLost(), TopLost(k=3, share=0.5), RankingLoss(5)], ids=repr)
def test_a_certificate_over_both(trace, risk):
    """What it says of the tested questions, again from the results of the setting itself."""
    found = trace.certify(risk, at_most=0.1, confidence=0.9)
    assert found.k in (5, 10, 20) and found.front == found.front_fingerprint == "drawn front"
    assert "k" not in found.settings and found.fingerprint == "drawn"
    _, tested = halves(300)
    results = trace.results(k=found.k, **found.settings)
    first = results[results["qid"].isin(trace.qids[tested])].drop_duplicates("qid").set_index("qid")
    assert found.cost == pytest.approx((first["q_cost"] / first["q_cost_full"]).mean())
    setting = policy_of(found.k, **found.settings)
    losses, _ = risk.outcomes(trace, risk.watched(trace).part(tested), [Policy(), setting])
    assert found.observed == pytest.approx(losses[1].mean()) and found.observed < 0.1
    if risk == FirstAnswerLost():
        # The first answer of the full cascade over all candidates, which the front may have cut.
        full = trace.results().drop_duplicates("qid").set_index("qid")["docno"]
        assert found.observed == pytest.approx((first["docno"] != full[first.index]).mean())
        assert found.cost < drawn_trace(trace.sizes, noise=0.7).certify(at_most=0.1, confidence=0.9).cost
    assert str(found).startswith(f"With 90% confidence, {risk} is at most 10% on new queries of the same kind, at ")
    assert f" of the layers with k={found.k}, alpha=(" in str(found) and " behind drawn front (on 150 " in str(found)
    config = json.loads(json.dumps(found.to_config()))
    assert config["k"] == found.k and Certificate.from_config(config) == found


def test_cuts_that_compete(trace):
    one = trace.certify(at_most=0.1, ks=[20], settings=[{"alpha": 0.3}])
    assert one.k == 20 and one.setting == "k=20, alpha=0.3"
    plain = drawn_trace([9] * 200)
    assert plain.certify(at_most=0.2, ks=[None]) == plain.certify(at_most=0.2)
    without = trace.certify(at_most=0.1, ks=[None])
    assert without.k is None is without.front and without == trace.certify(at_most=0.1, ks=[None])
    nothing = trace.certify(at_most=0.05, ks=[1])
    assert nothing.k is None and nothing.cost == 1.0
    assert str(nothing).startswith("No setting that drops candidates passed the test on 150 queries")
    own = trace.certify(at_most=0.1, settings=[{"k": 20, "alpha": 0.3}, {"k": 0.6}])
    assert own.k == 20
    assert len(with_cuts(trace, default_settings(2, 3_000 // 4), None)) <= 3_000


def test_a_measure_that_ir_measures_computes(trace):
    rng = np.random.default_rng(1)
    qrels = pd.DataFrame({"qid": trace.qids[trace.questions], "docno": trace.docnos})
    qrels = qrels.assign(label=rng.random(len(qrels)) < 0.2).astype({"label": int})
    fast, slow = (
        trace.certify(m, at_most=0.5, qrels=qrels, ks=[20], settings=[{"alpha": 0.0}]) for m in (AP, AP(rel=1))
    )
    assert fast.k == slow.k == 20 and fast.cost == slow.cost and fast.observed == pytest.approx(slow.observed)


def test_the_bound_holds_when_cuts_and_settings_are_searched_together():
    """Of 2,000 drawn traces no more break it than the confidence allows, however many settings compete."""
    population = drawn_trace([25] * 2_000, noise=0.8, seed=5, front=0.8)
    risk = FirstAnswerLost()
    settings = with_cuts(population, default_settings(2, 200), [None, 2, 5, 8, 12, 18])
    policies = [Policy(), *policies_of(settings, {})]
    losses, costs = risk.outcomes(population, risk.watched(population), policies)
    risks = losses.mean(1)
    for at_most, n in ((0.1, 160), (0.1, 400), (float(np.median(risks)) + 1e-3, 300)):
        assert (risks > at_most).sum() > 10
        assert violations(losses, costs, True, at_most, n) <= most()


def test_default_cuts():
    assert default_cuts(np.array([3, 1_000])) == [None, 5, 10, 20, 50, 100, 200, 500]
    assert default_cuts(np.array([5])) == [None] == default_cuts(np.array([], dtype=int))


@pytest.fixture
def certified(cascade, fronts, frame):
    found = cascade.trace(frame, front=fronts["cached"])
    return Certificate(
        **dict.fromkeys(("cost", "at_most", "confidence", "observed", "p_value"), 0.1),
        **{"settings": asdict(Policy(alpha=0.4)), "risk": "a risk", "learned": 9, "tested": 9},
        fingerprint=found.meta["fingerprint"],
        k=5,
        front=found.front,
        front_fingerprint=found.meta["front"]["fingerprint"],
    )


def test_a_certificate_makes_its_pipeline(cascade, fronts, frame, certified, tmp_path):
    cascade.save_pretrained(tmp_path / "saved", certificates=[certified])
    loaded = Cascade.from_pretrained(tmp_path / "saved")
    (back,) = loaded.certificates
    assert back == certified
    front = fronts["cached"]
    pipeline = back.pipeline(loaded, front(verbose=True))
    assert_frame_equal(pipeline(frame), (front % 5 >> cascade(alpha=0.4))(frame))
    assert "behind DocumentCache(" in (tmp_path / "saved" / "README.md").read_text()
    loader = pt.apply.generic(lambda one: one.merge(frame[["docno", "text"]], on="docno"))
    loaded_late = certified.pipeline(cascade, front, loader)
    assert_frame_equal(
        loaded_late(frame.drop(columns="text"))[["qid", "docno", "rank"]], pipeline(frame)[["qid", "docno", "rank"]]
    )


def test_a_certificate_is_for_its_rankers_only(cascade, fronts, certified, models, cache):
    front, setting = fronts["cached"], "k=5, alpha=0.4"
    other = cascade(max_length=16)
    message = (
        f"the certificate of {setting} is for other weights or settings than {other!r} has; certify a trace of this "
        "ranker"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        certified.pipeline(other, front)
    with pytest.raises(ValueError, match=re.escape(f"the certificate of {setting} is behind the front {front}; give")):
        certified.pipeline(cascade)
    message = (
        f"the certificate of {setting} is behind the front {front} as it was then, and {{}} has other weights, "
        "settings or stored documents; certify a trace with this front"
    )
    for strange in (fronts["late"], fronts["cross-encoder"], cache.reranker(missing="drop")):
        with pytest.raises(ValueError, match=f"^{re.escape(message.format(strange))}$"):
            certified.pipeline(cascade, strange)


def test_a_certificate_without_a_front_is_the_cascade(cascade, fronts, certified):
    import dataclasses

    alone = dataclasses.replace(certified, k=None, front=None, front_fingerprint=None)
    assert alone.pipeline(cascade) == cascade(alpha=0.4) == alone.pipeline(cascade, fronts["cached"])


def test_the_identity_of_a_front(fronts, cache, models, saved, frame, tmp_path):
    known = {name: identity_of(front) for name, front in fronts.items()}
    assert len(set(known.values())) == len(known)
    assert known["cached"] == identity_of(cache.reranker(device="cpu", verbose=True))
    cascade = Cascade.from_pretrained(saved)
    changes = [
        (cascade(alpha=0.4), cascade(alpha=0.3)),
        (cascade[3] % 8, cascade[3] % 9),
        (cascade[3] % 8, cascade[2] % 8),
        (cache.reranker() % 8, cache.reranker() % 7),
        (CrossEncoder.from_pretrained(models["same"]), CrossEncoder.from_pretrained(models["same"], max_length=9)),
        (cache.reranker(), cache.reranker(DCBERT.from_pretrained(models["dcbert"], query_length=9))),
        (fronts["lengths"] + fronts["cached"], fronts["lengths"] + fronts["late"]),
    ]
    again = DCBERT.from_pretrained(models["dcbert"], document_length=448)
    for how, same in (({"query_length": 9}, False), ({}, True)):
        other = again(**how).encode(frame[["docno", "text"]], tmp_path / str(how), shard_size=7)
        known = again.encode(frame[["docno", "text"]], tmp_path / "known")
        assert (identity_of(other.reranker()) == identity_of(known.reranker())) == same
    for one, other in changes:
        assert identity_of(one) != identity_of(other)
    assert identity_of(cascade(alpha=0.4, token_budget=99)) == identity_of(cascade(alpha=0.4))
    message = (
        f"deadline_ms=50 of {cascade(deadline_ms=50)!r} drops other candidates in every run; give a front without a "
        "deadline"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        identity_of(cascade(deadline_ms=50))


def test_it_is_the_same_in_another_process(models, fronts):
    code = (
        "import pyterrier as pt; from pyterrier_cascade import CrossEncoder, HierarchicalRanker;"
        "from pyterrier_cascade.early_exit.front import identity_of;"
        f"print(identity_of(CrossEncoder.from_pretrained({models['wide']!r})));"
        "print(identity_of(HierarchicalRanker('RI', 'pair')));"
        "print(identity_of(pt.apply.doc_score(len) % 5))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    expected = [fronts["cross-encoder"], HierarchicalRanker("RI", "pair"), pt.apply.doc_score(len) % 5]
    assert done.stdout.split() == list(map(identity_of, expected)), done.stderr


def test_what_the_front_has_learned_is_seen(cascade, fronts, frame, monkeypatch):
    monkeypatch.setattr(Cascade, "has_seen", lambda self, queries: np.full(len(queries), self.policy.plan == (2, 3)))
    assert cascade.trace(frame, front=fronts["cascade"]).seen.all() and not cascade.trace(frame).seen.any()


def test_a_question_that_a_front_drops_has_no_results(cascade, fronts, frame):
    """As in the pipeline, where nothing remains of it."""
    front = pt.apply.generic(lambda one: one[one["qid"] != "q3"]) >> fronts["cached"]
    trace, qrels = cascade.trace(frame, front=front), qrels_of(frame)
    expected = live(front, 4, cascade(alpha=0.3), frame)
    assert_frame_equal(trace.results(0.3, k=4), expected[COLUMNS].reset_index(drop=True), atol=4e-6, rtol=0)
    row = trace.sweep(qrels, MEASURES, [0.3], ks=[4]).frame.iloc[0]
    found = ir_measures.calc_aggregate(MEASURES, pt.model.to_ir_measures(qrels), pt.model.to_ir_measures(expected))
    assert {str(m): row[str(m)] for m in MEASURES} == pytest.approx({str(m): found[m] for m in MEASURES}, abs=1e-7)
    nobody = pt.apply.generic(lambda one: one[one["qid"] == "nobody"])
    empty = cascade.trace(frame, front=nobody)
    assert len(empty.results(k=4)) == 0 and empty.sweep(qrels, [AP], [0.3], ks=[4]).frame["AP"].tolist() == [0]


def changed(**columns):
    return pt.apply.generic(lambda one: one.assign(**{name: of(one) for name, of in columns.items()}))


FRONTS = [
    (changed(docno=lambda one: one["docno"] + "x"), "returned 59 candidates that it was not given, the first is docno "
     "'d"),
    (pt.apply.generic(lambda one: pd.concat([one, one])), "returned a candidate more than once; a trace needs each "
     "once"),
    (pt.apply.generic(lambda one: one.drop(columns="rank")), "returned no 'rank'; give a transformer that scores and "
     "ranks"),
    (pt.apply.generic(lambda one: one.drop(columns="score")), "returned no 'score'; give a transformer"),
    (changed(query=lambda one: one["query"] + " town"), "changed 'query' of qid 'q"),
    (changed(text=lambda one: one["text"].str.upper()), "changed 'text' of qid 'q"),
    (changed(rank=lambda one: 3), "gave rank 3 twice to candidates of qid 'q"),
]  # fmt: skip


@pytest.mark.parametrize(("front", "message"), FRONTS, ids=[message[:25] for _, message in FRONTS])
def test_fronts_that_do_more_than_rerank(cascade, frame, front, message):
    with pytest.raises(ValueError, match=re.escape(f"the front {front!r} {message}")):
        cascade.trace(frame, front=front)


WRONG = [
    ({"ks": 50}, "ks=50: give a list of cuts, such as (20, 50, 100)"),
    ({"ks": []}, "ks=[]: give a list of cuts, such as (20, 50, 100)"),
    ({"ks": [0]}, "k=0: give how many candidates go on behind the front (1 or more), or a share between 0 and 1"),
    ({"ks": [1.5]}, "k=1.5: give how many candidates go on behind the front (1 or more), or a share between 0 and 1"),
    ({"ks": [5], "settings": [{"k": 5}]}, "ks and a setting's own k exclude each other; give one of them"),
    ({"settings": {"k": 5}}, "settings={'k': 5}: give a list of dictionaries"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[message[:30] for _, message in WRONG])
def test_cuts_that_cannot_be(trace, given, message):
    qrels = pd.DataFrame({"qid": ["q0"], "docno": ["d0"], "label": [1]})
    for use in (lambda: trace.certify(**given), lambda: trace.sweep(qrels, [AP], **given)):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            use()


def test_a_cut_needs_a_front(cascade, frame):
    plain = cascade.trace(frame)
    message = "this trace has no front; record the whole pipeline by cascade.trace(candidates, front=front)"
    qrels = qrels_of(frame)
    for use in (
        lambda: plain.results(k=5),
        lambda: plain.sweep(qrels, [AP], ks=[5]),
        lambda: plain.certify(ks=[5]),
        lambda: plain.certify(settings=[{"k": 5}]),
        lambda: plain.front_scores,
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            use()
    with pytest.raises(ValueError, match=r"^front='bm25': give a transformer that scores candidates, or None$"):
        cascade.trace(frame, front="bm25")
    assert plain.front is None and plain.describe()["front"] is None


def test_a_trace_with_nobody(cascade, fronts, frame):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        empty = cascade.trace(frame.iloc[:0], front=fronts["cached"])
    assert len(empty) == 0 and list(empty.results(k=5).columns) == COLUMNS
