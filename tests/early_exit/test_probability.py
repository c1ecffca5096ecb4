"""Probabilities of every exit layer: curves by hand, and what becomes of them in a cascade."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from scipy.optimize import minimize

from pyterrier_cascade import Cascade, reliability
from pyterrier_cascade.early_exit.probability import curve, curves_of, probabilities, sigmoid, smoothed
from tests.lists import candidates
from tests.training.questions import DEV, TRAIN

LAYERS = (2, 3, 4, 5, 6)


def judged(frame: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return frame[["qid", "docno"]].assign(label=(rng.random(len(frame)) < 0.3).astype(int)).reset_index(drop=True)


def likelihood(weights, scores, targets) -> float:
    found = 1 / (1 + np.exp(-(weights[0] * scores + weights[1])))
    return -np.sum(targets * np.log(found) + (1 - targets) * np.log(1 - found))


@pytest.mark.parametrize(("middle", "width"), [(0, 1), (50, 0.01), (-3, 20)])
def test_a_curve_is_the_likeliest(middle, width):
    rng = np.random.default_rng(0)
    scores = middle + width * rng.normal(size=300)
    labels = (rng.random(300) < sigmoid(2 * (scores - middle) / width - 1)).astype(int)
    targets = smoothed(labels)
    slope, offset = curve(scores, targets)
    small = minimize(likelihood, (1, 0), ((scores - middle) / width, targets), tol=1e-12)
    assert likelihood((slope, offset), scores, targets) == pytest.approx(small.fun, rel=1e-9)
    assert slope * width == pytest.approx(small.x[0], rel=1e-3)


def test_platts_targets():
    assert smoothed(np.array([1, 0, 0, 1, 1])).tolist() == [4 / 5, 1 / 4, 1 / 4, 4 / 5, 4 / 5]


def test_labels_that_a_score_tells_apart_do_not_make_a_curve_too_sure():
    slope, offset = curve(np.array([-2.0, -1, 1, 2]), smoothed(np.array([0, 0, 1, 1])))
    assert np.isfinite([slope, offset]).all() and 0 < slope < 5
    assert sigmoid(np.array([slope * 2 + offset]))[0] < 0.95


@pytest.mark.parametrize("score", [0.0, 7.0])
def test_equal_scores_say_how_many_are_relevant(score):
    slope, offset = curve(np.full(4, score), np.array([0.2, 0.2, 0.2, 0.8]))
    assert sigmoid(np.array([slope * score + offset])) == pytest.approx(0.35, abs=1e-6)


def test_very_sure_scores_have_a_curve():
    scores = np.array([-900.0, -800, 850, 900])
    slope, offset = curve(scores, sigmoid(scores))
    assert np.isfinite([slope, offset]).all()
    assert sigmoid(slope * scores + offset) == pytest.approx([0, 0, 1, 1], abs=1e-6)


def test_without_judgements_the_last_head_teaches_the_others(cascade):
    trace = cascade.trace(candidates([30, 20]))
    curves = curves_of(trace)
    assert curves["6"] == pytest.approx([1, 0], abs=1e-6)
    for column, layer in enumerate(LAYERS):
        targets, own = sigmoid(trace.scores[:, -1].astype(float)), trace.scores[:, column].astype(float)
        assert curves[str(layer)] == curve(own, targets)
        # The gradient of the offset is zero: on average a head says what the last one says.
        slope, offset = curves[str(layer)]
        assert sigmoid(slope * own + offset).mean() == pytest.approx(targets.mean(), abs=1e-9)


def test_with_judgements_heads_say_how_often_candidates_are_relevant(cascade):
    frame = candidates([40, 40])
    trace, qrels = cascade.trace(frame), judged(frame)
    curves = curves_of(trace, qrels)
    labels = qrels.set_index("docno").loc[list(trace.docnos), "label"].to_numpy()
    for column, layer in enumerate(LAYERS):
        assert curves[str(layer)] == curve(trace.scores[:, column].astype(float), smoothed(labels))
    # A question without judgements is left out.
    more = pd.concat([frame, candidates([5]).assign(qid="unjudged")])
    assert curves_of(cascade.trace(more), qrels) == {
        layer: pytest.approx(weights, abs=1e-5) for layer, weights in curves.items()
    }
    # Ids may be numbers.
    numbered = {"qid": frame["qid"].str[1:].astype(int), "docno": np.arange(80)}
    known = qrels.assign(qid=qrels["qid"].str[1:].astype(int), docno=np.arange(80))
    assert curves_of(cascade.trace(frame.assign(**numbered)), known) == {
        layer: pytest.approx(weights, abs=1e-5) for layer, weights in curves.items()
    }


def test_grades_below_the_least_are_irrelevant(cascade):
    frame = candidates([40])
    qrels = judged(frame)
    graded = qrels.assign(label=np.where(qrels["label"] > 0, 2, 1))
    trace = cascade.trace(frame)
    assert curves_of(trace, graded, 2) == curves_of(trace, qrels)
    other = Cascade(cascade.model).with_training(relevant_from=2).fit_probability(trace, graded)
    assert other.model.loaded.module.config.probability == curves_of(trace, qrels)


def test_probabilities_by_hand():
    curves = {"4": [2.0, -1.0], "8": [1.0, 0.5]}
    scores = np.array([[0.0, 0.5, np.nan], [-1.0, 3.0, 1.5], [-2.0, np.nan, np.nan]])
    found = probabilities(curves, (0, 4, 8), scores)
    assert found[:2] == pytest.approx([0.5, 1 / (1 + np.exp(-2.0))]) and np.isnan(found[2])


def test_the_column_follows_from_each_candidates_own_score(cascade):
    frame = candidates([25, 3])
    trace = cascade.trace(frame)
    cascade.fit_probability(trace, judged(frame))
    curves = cascade.model.loaded.module.config.probability
    plain, out = cascade(alpha=0.4)(frame), cascade(alpha=0.4, probability=True)(frame)
    assert_frame_equal(out.drop(columns="probability"), plain)
    own = {layer: cascade(plan=(layer,))(frame).set_index("docno")["score"] for layer in LAYERS}
    for docno, layer, found in zip(out["docno"], out["exit_layer"], out["probability"], strict=True):
        slope, offset = curves[str(layer)]
        assert found == pytest.approx(1 / (1 + np.exp(-(slope * own[layer][docno] + offset))), abs=1e-5)
    assert len(set(out["exit_layer"])) == 5


def test_the_column_is_there_for_empty_frames_and_dropped_candidates_and_stages(cascade):
    frame = candidates([12])
    cascade.fit_probability(cascade.trace(frame))
    ranker = cascade(alpha=0.4, probability=True)
    full, empty = ranker(frame), ranker(frame.iloc[:0])
    assert list(full.columns) == list(empty.columns) and empty["probability"].dtype == np.float64
    dropped = ranker(exited="drop")(frame)
    assert dropped["probability"].tolist() == full.loc[full["exit_layer"] == 6, "probability"].tolist()
    staged = (ranker[2] % 5 >> ranker[6]).compile()(frame)
    assert len(staged) == 5 and staged["probability"].between(0, 1).all()
    assert "probability" not in cascade(frame).columns
    assert list(Cascade("nowhere", probability=True)(frame.iloc[:0]).columns) == list(full.columns)


@pytest.mark.filterwarnings("ignore:deadline_ms=")
def test_what_a_deadline_left_no_time_for_has_none(cascade):
    frame = candidates([12])
    cascade.fit_probability(cascade.trace(frame))
    out = cascade(deadline_ms=0.001, probability=True)(frame)
    assert out["exit_layer"].unique().tolist() == [0] and out["probability"].isna().all()
    assert cascade(deadline_ms=1e6, probability=True)(frame)["probability"].between(0, 1).all()


@pytest.mark.parametrize("settings", [{}, {"deadline_ms": 1000}])
def test_without_a_fit_it_is_an_error_before_the_model_runs(cascade, settings, monkeypatch):
    monkeypatch.setattr(Cascade, "_tokenize", None)
    message = (
        "probability=True needs a curve for each head; call fit_probability(cascade.trace(candidates), qrels) before"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        cascade(probability=True, **settings)(candidates([3]))


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_it_is_on_or_off(value):
    with pytest.raises(ValueError, match=re.escape(f"probability={value!r}: give True for the column, or False")):
        Cascade("x", probability=value)


def test_a_trace_of_other_weights_is_refused(cascade, encoder):
    other = Cascade.from_pretrained(encoder)
    with pytest.raises(ValueError, match=r"the trace was made by Cascade.*whose weights or settings are not those of"):
        other.fit_probability(cascade.trace(candidates([5])))
    with pytest.raises(ValueError, match="fit on a trace of this cascade"):
        cascade(max_length=64).fit_probability(cascade.trace(candidates([5])))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (0, "no positive among the 9 candidates of the trace's data: no label is 1 or more"),
        (1, "all 9 candidates of the trace's data are positive; it needs negatives too"),
    ],
)
def test_judgements_of_one_class_teach_nothing(cascade, labels, message):
    frame = candidates([9])
    with pytest.raises(ValueError, match=re.escape(message)):
        cascade.fit_probability(cascade.trace(frame), judged(frame).assign(label=labels))


def test_judgements_of_others_and_empty_traces(cascade):
    frame = candidates([9])
    with pytest.raises(ValueError, match="results and qrels have no qid in common"):
        cascade.fit_probability(cascade.trace(frame), judged(frame).assign(qid="other"))
    with pytest.raises(ValueError, match="the trace has no candidates; give one of some hundred questions"):
        cascade.fit_probability(cascade.trace(frame.iloc[:0]))


def test_curves_are_saved_and_pickled_and_dropped_by_a_training(cascade, tmp_path):
    frame = candidates([12])
    ranker = cascade(probability=True, alpha=0.4)
    assert cascade == ranker(probability=False, alpha=0)
    twin = Cascade.from_pretrained(cascade.model.source)
    cascade.fit_probability(cascade.trace(frame))
    assert twin != cascade
    expected = ranker(frame)
    assert_frame_equal(pickle.loads(pickle.dumps(ranker))(frame), expected)
    cascade.save_pretrained(str(tmp_path / "saved"))
    again = Cascade.from_pretrained(str(tmp_path / "saved"), probability=True, alpha=0.4)
    assert_frame_equal(again(frame), expected)
    assert again == ranker
    again.with_training(epochs=1, tokens_per_batch=300).fit_candidates(TRAIN.head(30))
    for one in (again, again.apart()):
        with pytest.raises(ValueError, match="probability=True needs a curve"):
            one(frame)


def test_a_training_that_fails_leaves_them(cascade, monkeypatch):
    frame = candidates([12])
    cascade.fit_probability(cascade.trace(frame))
    expected = cascade(probability=True)(frame)
    # The last step of a training, after the new weights were noted.
    monkeypatch.setattr(Cascade, "_quality", None)
    with pytest.raises(TypeError):
        cascade.with_training(epochs=1, tokens_per_batch=300).fit_candidates(TRAIN.head(30), DEV.head(30))
    assert_frame_equal(cascade(probability=True)(frame), expected)


def test_platt_is_enough_where_scores_are_log_odds_on_other_scales():
    """Each head has a scale of its own; afterwards all mean the same, on candidates that were not fitted on."""
    rng = np.random.default_rng(0)
    truth = rng.normal(-1, 1.5, size=20_000)
    labels = rng.random(20_000) < sigmoid(truth)
    for scale, shift in ((0.2, 3), (4, -1)):
        scores = scale * truth + shift
        slope, offset = curve(scores[:2000], smoothed(labels[:2000].astype(int)))
        ids = [str(n) for n in range(18_000)]
        results = pd.DataFrame({"qid": "q", "docno": ids, "probability": sigmoid(slope * scores[2000:] + offset)})
        qrels = pd.DataFrame({"qid": "q", "docno": ids, "label": labels[2000:].astype(int)})
        assert reliability(results, qrels).error < 0.02
