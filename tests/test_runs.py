"""Several seeds, and whether two models differ (HR-30, HR-32)."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ir_measures import AP, RR, P

from pyterrier_cascade import Runs
from pyterrier_cascade.hierarchical.training import Trainer
from pyterrier_cascade.runs import measured
from tests.hierarchical.questions import DEV, QUICK, TEST, TRAIN, ranker


def runs(*rows_of_seeds) -> Runs:
    """Made of a row of values for each seed, a value for each question."""
    values = {
        seed: pd.DataFrame({"AP": row}, index=pd.Index([f"q{n}" for n in range(len(row))], name="qid"))
        for seed, row in enumerate(rows_of_seeds)
    }
    return Runs(pd.concat(values, names=["seed"]))


def test_mean_and_deviation():
    made = runs([0.2, 0.4], [0.6, 0.8])
    assert made.means["AP"].tolist() == pytest.approx([0.3, 0.7])
    assert made.summary.loc["AP", "mean"] == pytest.approx(0.5)
    assert made.summary.loc["AP", "deviation"] == pytest.approx(np.sqrt(0.08))


def test_t_test_by_hand():
    """Over questions: differences of means .1, .2, .3, t = .2 / (.1 / sqrt 3), two degrees of freedom: p = .0742.

    Over runs: differences .1 and .3, t = .2 / .1 = 2, one degree of freedom: p = 1/2 - atan(2) / pi, twice.
    """
    base = runs([0.1, 0.1, 0.1], [0.2, 0.2, 0.2])
    better = runs([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    found = better.t_test(base).loc["AP"]
    t = 0.2 / (0.1 / np.sqrt(3))
    assert found["p_questions"] == pytest.approx(1 - t / np.sqrt(2 + t**2))
    assert found["p_runs"] == pytest.approx(1 - 2 * np.arctan(2) / np.pi)
    assert (found["mean"], found["other"]) == (pytest.approx(0.35), pytest.approx(0.15))


def test_questions_are_paired_by_name():
    ours = runs([0.1, 0.5, 0.3], [0.2, 0.4, 0.9])
    turned = Runs(ours.values.iloc[::-1])
    assert ours.t_test(turned)["p_questions"].isna().all() and ours.t_test(turned)["p_runs"].isna().all()
    assert ours.t_test(turned).loc["AP", "mean"] == pytest.approx(ours.t_test(turned).loc["AP", "other"])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (runs([0.1, 0.2]), "a paired test needs the same seeds in both, but only one has 1"),
        (runs([0.1], [0.2]), "a paired test needs the same qids in both, but only one has q1"),
    ],
)
def test_what_cannot_be_paired(other, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        runs([0.1, 0.2], [0.3, 0.4]).t_test(other)


def test_seeds_are_trained_apart():
    template = ranker(training=replace(QUICK, epochs=2))
    made = Runs.of(template, TRAIN, DEV, TEST, seeds=(0, 1))
    assert template == ranker(training=replace(QUICK, epochs=2))
    assert list(made.values.columns) == ["AP", "RR"] and len(made.values) == 2 * 20
    alone = template.apart().with_training(seed=1).fit_candidates(TRAIN, DEV)
    expected = measured(alone(TEST.drop(columns="label")), TEST)
    pd.testing.assert_frame_equal(made.values.loc[1], expected)
    pd.testing.assert_frame_equal(made.histories[1], alone.history)
    assert not made.values.loc[0].equals(made.values.loc[1])


def test_a_call_that_was_killed_goes_on(tmp_path, monkeypatch):
    """Each seed has its folder: what is there is not trained again."""
    template = ranker(training=replace(QUICK, epochs=1, folder=str(tmp_path)))
    made = Runs.of(template, TRAIN, DEV, TEST, ["AP", P @ 1], seeds=(0, 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seed-0", "seed-1"]
    assert list(made.values.columns) == ["AP", "P@1"]
    monkeypatch.setattr(Trainer, "epoch", None)
    again = Runs.of(template, TRAIN, DEV, TEST, ["AP", P @ 1], seeds=(0, 1))
    pd.testing.assert_frame_equal(again.values, made.values)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"seeds": ()}, "seeds=[]; give at least one, and none twice"),
        ({"seeds": (0, 1, 0)}, "seeds=[0, 1, 0]; give at least one, and none twice"),
        ({"test": TEST.assign(label=0)}, "no positive among the 100 candidates of the test data"),
        ({"test": TEST.drop(columns="label")}, "label"),
        ({"test": TEST.drop(columns="text")}, "text"),
        ({"measures": ["MAPP"]}, "MAPP"),
    ],
)
def test_what_cannot_be_run_is_said_before_a_training(more, message, monkeypatch):
    monkeypatch.setattr(Trainer, "epoch", None)
    with pytest.raises(Exception, match=re.escape(message)) as error:
        Runs.of(ranker(), **({"train": TRAIN, "dev": DEV, "test": TEST} | more))
    assert not isinstance(error.value, TypeError)


def test_a_trained_ranker_is_refused():
    made = ranker(training=replace(QUICK, epochs=1)).fit_candidates(TRAIN)
    with pytest.raises(
        ValueError, match=r"every seed would go on from the same weights: <.*> is trained; give a fresh"
    ):
        Runs.of(made, TRAIN, DEV, TEST)


def test_questions_without_a_positive_are_not_measured():
    """X-1. Ranks 1 and 2 are wrong and right: AP and RR 1/2, P@1 0."""
    judged = pd.DataFrame({"qid": ["a", "a", "b"], "docno": ["1", "2", "1"], "label": [0, 1, 0]})
    results = judged.assign(score=[2.0, 1.0, 3.0], rank=[0, 1, 0])
    found = measured(results, judged, [RR, AP, P @ 1])
    assert found.index.tolist() == ["a"] and found.loc["a"].tolist() == [0.5, 0.5, 0.0]
    assert list(found.columns) == ["RR", "AP", "P@1"]
