"""Several seeds, and whether two models differ (HR-30, HR-32)."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ir_measures import AP, RR, P

from pyterrier_cascade import (
    BM25,
    DCBERT,
    Cascade,
    CascadeTraining,
    CrossEncoder,
    DCBertTraining,
    Runs,
    SequentialReranker,
    Tanda,
    Training,
)
from pyterrier_cascade.hierarchical.trainer import QuestionTrainer
from pyterrier_cascade.runs import measured
from tests.hierarchical.questions import DEV, QUICK, TEST, TRAIN, ranker

pytestmark = pytest.mark.filterwarnings("ignore:.* did not learn")
ONE_EPOCH = {"epochs": 1, "learning_rate": 1e-3, "tokens_per_batch": 300, "precision": "fp32"}


def first(frame: pd.DataFrame, n_questions: int) -> pd.DataFrame:
    return frame[frame["qid"].isin(frame["qid"].unique()[:n_questions])]


FEW_TRAIN, FEW_DEV, FEW_TEST = first(TRAIN, 8), first(DEV, 4), first(TEST, 4)


def runs(*rows_of_seeds) -> Runs:
    """Runs with a row of values for each seed, and a value for each question."""
    values = {
        seed: pd.DataFrame({"AP": row}, index=pd.Index([f"q{n}" for n in range(len(row))], name="qid"))
        for seed, row in enumerate(rows_of_seeds)
    }
    return Runs(pd.concat(values, names=["seed"]))


def test_mean_and_deviation():
    found = runs([0.2, 0.4], [0.6, 0.8])
    assert found.means["AP"].tolist() == pytest.approx([0.3, 0.7])
    assert found.summary.loc["AP", "mean"] == pytest.approx(0.5)
    assert found.summary.loc["AP", "deviation"] == pytest.approx(np.sqrt(0.08))


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
def test_runs_that_cannot_be_paired(other, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        runs([0.1, 0.2], [0.3, 0.4]).t_test(other)


def test_each_seed_trains_a_copy_of_a_hierarchical_ranker():
    template = ranker(training=replace(QUICK, epochs=2))
    found = Runs.of(template, TRAIN, DEV, TEST, seeds=(0, 1))
    assert template == ranker(training=replace(QUICK, epochs=2))
    assert list(found.values.columns) == ["AP", "RR"] and len(found.values) == 2 * 20
    alone = template.apart().with_training(seed=1).fit_candidates(TRAIN, DEV)
    expected = measured(alone(TEST.drop(columns="label")), TEST)
    pd.testing.assert_frame_equal(found.values.loc[1], expected)
    pd.testing.assert_frame_equal(found.histories[1], alone.history)
    assert not found.values.loc[0].equals(found.values.loc[1])


def cross_encoder(folder: str) -> CrossEncoder:
    return CrossEncoder.from_pretrained(folder, training=Training(**ONE_EPOCH))


def cascade(folder: str) -> Cascade:
    return Cascade.from_pretrained(folder, layers=(1, 2), training=CascadeTraining(**ONE_EPOCH))


def sequential(folder: str) -> SequentialReranker:
    return SequentialReranker.from_pretrained(folder, layers=(1, 2), models={"training": Training(**ONE_EPOCH)})


def dcbert(folder: str) -> DCBERT:
    return DCBERT.from_pretrained(folder, training=DCBertTraining(**ONE_EPOCH, frozen_epochs=1, negatives=2))


@pytest.mark.parametrize("make", [cross_encoder, cascade, sequential, dcbert], ids=lambda make: make.__name__)
def test_any_ranker_with_weights_is_compared(make, tiny_bert):
    template = make(tiny_bert)
    found = Runs.of(template, FEW_TRAIN, FEW_DEV, FEW_TEST, seeds=(0, 1))
    assert template == make(tiny_bert) and not len(template.history)
    assert list(found.values.columns) == ["AP", "RR"] and len(found.values) == 2 * 4
    alone = template.apart().with_training(seed=1).fit_candidates(FEW_TRAIN, FEW_DEV)
    expected = measured(alone(FEW_TEST.drop(columns="label")), FEW_TEST)
    pd.testing.assert_frame_equal(found.values.loc[1], expected)
    pd.testing.assert_frame_equal(found.histories[1], alone.history)


def test_rankers_of_different_kinds_are_compared(tiny_bert):
    ours, theirs = (
        Runs.of(make(tiny_bert), FEW_TRAIN, FEW_DEV, FEW_TEST, seeds=(0, 1)) for make in (cascade, cross_encoder)
    )
    found = ours.t_test(theirs)
    assert found["mean"].tolist() == pytest.approx(ours.means.mean().tolist())
    assert found["other"].tolist() == pytest.approx(theirs.means.mean().tolist())


def test_a_recipe_is_made_for_each_seed(tiny_bert, tmp_path):
    template = cross_encoder(tiny_bert)

    def recipe(seed: int) -> Tanda:
        settings = {"transfer_epochs": 1, "adapt_epochs": 1, "folder": str(tmp_path / str(seed))}
        return Tanda(template.with_training(seed=seed), FEW_TRAIN, **settings)

    found = Runs.of(recipe, FEW_TRAIN, FEW_DEV, FEW_TEST, seeds=(0, 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert found.histories[1]["step"].unique().tolist() == ["transfer", "adapt"]
    alone = recipe(1).fit_candidates(FEW_TRAIN, FEW_DEV)
    pd.testing.assert_frame_equal(found.values.loc[1], measured(alone(FEW_TEST.drop(columns="label")), FEW_TEST))


@pytest.mark.parametrize("by", ["training", "argument"])
def test_a_call_that_was_killed_goes_on(by, tmp_path, monkeypatch):
    """Each seed has its folder, and what is there is not trained again."""
    template = ranker(training=replace(QUICK, epochs=1, folder=str(tmp_path) if by == "training" else None))
    more = {"seeds": (0, 1)} | ({"folder": str(tmp_path)} if by == "argument" else {})
    found = Runs.of(template, TRAIN, DEV, TEST, ["AP", P @ 1], **more)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seed-0", "seed-1"]
    assert list(found.values.columns) == ["AP", "P@1"]
    monkeypatch.setattr(QuestionTrainer, "train_step", None)
    again = Runs.of(template, TRAIN, DEV, TEST, ["AP", P @ 1], **more)
    pd.testing.assert_frame_equal(again.values, found.values)


def test_the_folder_of_a_sequential_reranker(tiny_bert, tmp_path):
    Runs.of(sequential(tiny_bert), FEW_TRAIN, FEW_DEV, FEW_TEST, seeds=(3,), folder=str(tmp_path))
    folders = [tmp_path / "seed-3" / f"model-{number}" for number in (0, 1)]
    assert all(Path(folder).is_dir() for folder in folders)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"seeds": ()}, "seeds=[]; give at least one, and none twice"),
        ({"seeds": (0, 1, 0)}, "seeds=[0, 1, 0]; give at least one, and none twice"),
        ({"test": TEST.assign(label=0)}, "no positive among the 100 candidates of the test data"),
        ({"test": TEST.drop(columns="label")}, "label"),
        ({"test": TEST.drop(columns="text")}, "text"),
        ({"measures": ["MAPP"]}, "MAPP"),
        ({"ranker": BM25.from_docs([{"docno": "d", "text": "ship"}])}, "cannot be trained once for each seed"),
        ({"ranker": "a-name"}, "'a-name' cannot be trained once for each seed"),
    ],
    ids=str,
)
def test_bad_input_is_an_error_before_a_training(more, message, monkeypatch):
    monkeypatch.setattr(QuestionTrainer, "train_step", None)
    with pytest.raises(Exception, match=re.escape(message)) as error:
        Runs.of(**({"ranker": ranker(), "train": TRAIN, "dev": DEV, "test": TEST} | more))
    assert not isinstance(error.value, TypeError)


@pytest.mark.parametrize("saved", [False, True])
def test_a_trained_ranker_is_refused(saved, tmp_path):
    trained = ranker(training=replace(QUICK, epochs=1)).fit_candidates(TRAIN)
    if saved:
        trained.save_pretrained(str(tmp_path))
        trained = type(trained).from_pretrained(str(tmp_path))
    with pytest.raises(
        ValueError, match=r"every seed would go on from the same weights, because .* is trained; give a fresh"
    ):
        Runs.of(trained, TRAIN, DEV, TEST)


def test_questions_without_a_positive_are_not_measured():
    """X-1. Ranks 1 and 2 are wrong and right: AP and RR 1/2, P@1 0."""
    judged = pd.DataFrame({"qid": ["a", "a", "b"], "docno": ["1", "2", "1"], "label": [0, 1, 0]})
    results = judged.assign(score=[2.0, 1.0, 3.0], rank=[0, 1, 0])
    found = measured(results, judged, [RR, AP, P @ 1])
    assert found.index.tolist() == ["a"] and found.loc["a"].tolist() == [0.5, 0.5, 0.0]
    assert list(found.columns) == ["RR", "AP", "P@1"]
