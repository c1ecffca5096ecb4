import dataclasses
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_cascade import DCBERT, DCBertTraining, Tanda
from pyterrier_cascade.dcbert import training
from tests import tiny

WORDS = ["ship", "town", "is", "of", "in", "was"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("dcbert") / "bert", layers=2, outputs=None)


def lists(n_questions, seed=0, n=6):
    """Questions, and documents of which the one that begins with the first word is right."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n_questions):
        query = f"{WORDS[rng.integers(len(WORDS))]} {seed} {number}"
        for candidate in range(n):
            text = f"{WORDS[candidate % len(WORDS)]} {rng.integers(10)} {rng.integers(10)}"
            rows.append((f"q{number}", query, f"d{number}-{candidate}", text, int(candidate == 0)))
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "label"])


class Killed(BaseException):
    """What stands for a kill."""


@pytest.mark.parametrize("n_done", [1, 4, 100])
def test_after_a_kill_it_goes_on_to_the_same_weights(bare, tmp_path, monkeypatch, n_done):
    """In the first phase, in the second, and after the end."""
    how = DCBertTraining(frozen_epochs=2, epochs=2, tokens_per_batch=150, negatives=2, precision="fp32", save_every=1)
    given, dev = lists(12), lists(4, seed=1)
    expected = DCBERT.from_pretrained(bare, training=how).fit_candidates(given, dev)
    kept, loss, calls = dataclasses.replace(how, folder=str(tmp_path)), training.Loss.__call__, []

    def counted(*args):
        calls.append(1)
        if len(calls) > n_done:
            raise Killed
        return loss(*args)

    monkeypatch.setattr(training.Loss, "__call__", counted)
    try:
        DCBERT.from_pretrained(bare, training=kept).fit_candidates(given, dev)
    except Killed:
        assert n_done < 100
    n_made = len(calls)
    monkeypatch.setattr(training.Loss, "__call__", lambda *args: (calls.append(1), loss(*args))[1])
    again = DCBERT.from_pretrained(bare, training=kept).fit_candidates(given, dev)
    assert again.model.fingerprint == expected.model.fingerprint
    assert (len(calls) == n_made) == (n_done == 100)


@pytest.mark.parametrize("score", [np.nan, -np.inf, None])
def test_a_teacher_without_a_score_is_named(bare, score):
    given = lists(3)
    given["teacher"] = np.arange(len(given), dtype=float)
    given.loc[[4, 7], "teacher"] = score
    message = "2 of 18 teacher scores are no numbers, the first for qid 'q0', docno 'd0-4'; score all candidates, or"
    with pytest.raises(ValueError, match=message):
        DCBERT.from_pretrained(bare).fit_candidates(given)


def test_random_negatives_have_no_teacher(bare, monkeypatch):
    monkeypatch.setattr(DCBERT, "tokenized", None)
    ranker = DCBERT.from_pretrained(bare, training=DCBertTraining(random_first=0.4))
    with pytest.raises(ValueError, match="random_first has no scores of the teacher for random negatives; use one of"):
        ranker.fit_candidates(lists(3).assign(teacher=1.0))


def test_losses_by_hand():
    groups, labels = torch.tensor([0, 0, 1, 1, 1, 2]), torch.tensor([1, 0, 0, 1, 1, 0])
    scores = torch.tensor([0.0, math.log(3), 0.0, 0.0, 0.0, 5.0])
    # log(1 + 3), then log 3 - log 2 as two positives share the probability; a question without a positive is left out.
    expected = (math.log(4) + math.log(3 / 2)) / 2
    assert training.listwise(scores, labels, groups).item() == pytest.approx(expected)
    assert training.listwise(scores[:2], torch.zeros(2), groups[:2]).item() == 0
    teacher = torch.tensor([math.log(3), 0.0])
    # The student is even: 3/4 log(3/4 / 1/2) + 1/4 log(1/4 / 1/2).
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert training.distilled(torch.zeros(2), teacher, torch.zeros(2)).item() == pytest.approx(expected)


def test_base_rates_by_hand():
    groups, labels = torch.tensor([0, 0, 1, 1, 1, 2]), torch.tensor([1, 0, 0, 1, 1, 0])
    assert training.base_rate("listwise", labels, groups) == pytest.approx((math.log(2) + math.log(3 / 2)) / 2)
    assert training.base_rate("pointwise", labels, groups) == pytest.approx(math.log(2))


def test_it_learns_in_both_phases_and_says_so_if_not(bare):
    train, dev = lists(60), lists(20, seed=1)
    settings = DCBertTraining(
        frozen_epochs=8, epochs=3, patience=9, tokens_per_batch=100, learning_rate=1e-3, head_learning_rate=5e-3
    )
    ranker = DCBERT.from_pretrained(bare, head="compare", training=settings)
    encoder = ranker.model.loaded.module.encoder_of("document").encoder.layer[0].output.dense.weight
    before = encoder.detach().clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="ir_measures")
        ranker.with_training(epochs=0).fit_candidates(train, dev)
    assert torch.equal(encoder, before) and encoder.requires_grad
    frozen = ranker.history["dev_map"].max()
    assert frozen > 0.9 and set(ranker.history["phase"]) == {"frozen"}
    ranker.with_training(frozen_epochs=0).fit_candidates(train, dev)
    assert not torch.equal(encoder, before)
    assert set(ranker.history["phase"]) == {"all"} and ranker.history["dev_map"].max() > 0.9
    assert ranker(dev)["score"].notna().all()
    blind = DCBERT.from_pretrained(bare, head="compare", training=settings)
    blind = blind.with_training(epochs=0, head_learning_rate=1e-9)
    with pytest.warns(UserWarning, match="the first phase, with frozen encoders, did not learn: its loss is 1.7"):
        blind.fit_candidates(train, dev)


def test_one_way_layers_learn_in_both_phases(bare):
    """With a teacher, and with late interaction's score or without."""
    train, dev = lists(60), lists(20, seed=1)
    settings = DCBertTraining(
        frozen_epochs=8, epochs=1, tokens_per_batch=100, learning_rate=1e-3, head_learning_rate=5e-3, precision="fp32"
    )
    for head in ("compare", "late"):
        ranker = DCBERT.from_pretrained(bare, variant="one_way", joint_layers=2, head=head, training=settings)
        layers = ranker.model.loaded.module.joint.layers
        before = [layer.query.weight.detach().clone() for layer in layers]
        ranker.fit_candidates(train.assign(teacher=4.0 * train["label"]), dev)
        loss = ranker.history["loss"].dropna()
        assert loss.iloc[-1] < 0.8 * loss.iloc[0] and ranker.history["dev_map"].max() > 0.9
        assert all(not torch.equal(layer.query.weight, old) for layer, old in zip(layers, before, strict=True))


def test_the_best_weights_of_both_phases_are_kept(bare):
    train, dev = lists(40), lists(20, seed=1)
    settings = DCBertTraining(
        frozen_epochs=8, epochs=1, tokens_per_batch=100, head_learning_rate=5e-3, learning_rate=0.5
    )
    ranker = DCBERT.from_pretrained(bare, head="compare", training=settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranker.fit_candidates(train, dev)
    course = ranker.history.dropna(subset="dev_map")
    best = course.groupby("phase")["dev_map"].max()
    assert best["frozen"] > best["all"]
    from pyterrier_cascade import frames

    found = ranker(dev).merge(dev[["qid", "docno"]], on=["qid", "docno"])
    reached = frames.mean_average_precision(found, found["score"].to_numpy(), dev)
    assert reached == pytest.approx(best["frozen"], abs=0.03)


def test_a_teacher_is_learnt_from(bare):
    train, dev = lists(60), lists(20, seed=1)
    settings = DCBertTraining(
        frozen_epochs=8, epochs=0, tokens_per_batch=100, head_learning_rate=5e-3, teacher_weight=1.0
    )
    ranker = DCBERT.from_pretrained(bare, head="compare", training=settings)
    # The labels are wrong, the teacher knows better.
    wrong = (train["docno"].str[-1] == "3").astype(int)
    ranker.fit_candidates(train.assign(label=wrong, teacher=8.0 * train["label"]))
    found = ranker(dev.drop(columns="label")).merge(dev[["qid", "docno", "label"]], on=["qid", "docno"])
    assert found.loc[found["label"] == 1, "rank"].mean() < 1
    assert found.loc[found["docno"].str[-1] == "3", "rank"].mean() > 2


def test_p10_may_choose_the_weights(bare):
    settings = DCBertTraining(frozen_epochs=1, epochs=0, watch="P@10", tokens_per_batch=100)
    ranker = DCBERT.from_pretrained(bare, head="compare", training=settings)
    ranker.fit_candidates(lists(4, n=12), lists(3, seed=1, n=12))
    assert ranker.history["dev_p10"].dropna().between(0, 1).all()


def test_tanda_around_it(bare):
    ranker = DCBERT.from_pretrained(bare, training=DCBertTraining(frozen_epochs=1, epochs=1, tokens_per_batch=100))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recipe = Tanda(
            ranker, lists(6, seed=2).replace({"qid": {f"q{i}": f"t{i}" for i in range(6)}}), allow_overlap=True
        )
        recipe.fit_candidates(lists(4), lists(3, seed=1))
    assert recipe.history["dev_map"].notna().any()
