"""Transfer, then adapt, around any ranker (TA-3 to TA-7)."""

import re
import shutil

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_cascade import Cascade, CascadeTraining, CrossEncoder, FineTune, SequentialReranker, Tanda, Training
from pyterrier_cascade.tanda.tanda import ADAPT_RATES, TRANSFER_RATES, _best_map
from pyterrier_cascade.training import trainer
from tests import tiny
from tests.tanda.lists import DEV, SMALL, TRAIN, TRANSFER, questions, recipe, weights


def test_the_papers_defaults(ranker):
    """TA-5, TA-6, TA-7."""
    tanda = Tanda(ranker, TRANSFER)
    assert (tanda.transfer_rate, tanda.adapt_rate, tanda.transfer_epochs, tanda.adapt_epochs) == (2e-5, 1e-6, 9, 3)
    assert TRANSFER_RATES == (1e-6, 2e-5) and ADAPT_RATES == (1e-6, 2e-6, 5e-6, 1e-5, 2e-5)


def test_the_second_step_starts_from_the_weights_of_the_first(ranker, monkeypatch):
    """TA-3: the same head, and an optimiser that remembers nothing."""
    seen, train_model = [], trainer.train_model

    def watch(module, examples, settings, **more):
        head = module.classifier.weight.detach().clone()
        seen.append((head, settings.learning_rate, settings.epochs, len(examples.labels)))
        history = train_model(module, examples, settings, **more)
        seen[-1] += (module.classifier.weight.detach().clone(),)
        return history

    monkeypatch.setattr(trainer, "train_model", watch)
    before = weights(ranker)
    tanda = recipe(ranker).fit_candidates(TRAIN, DEV)
    (start, rate, epochs, n, end), (again, rate_2, epochs_2, n_2, _) = seen
    assert (rate, epochs, n, rate_2, epochs_2, n_2) == (1e-3, 6, len(TRANSFER), 1e-4, 2, len(TRAIN))
    assert (end == again).all() and (start != end).any()
    assert weights(ranker) == before != weights(tanda.ranker)


def test_each_step_is_trained_in_its_way(ranker, trainings):
    tanda = Tanda(ranker, TRANSFER, transfer_training={"negatives": 3}, adapt_training={"patience": 7})
    for _ in range(2):
        tanda.fit_candidates(TRAIN, DEV)
        assert tanda.history["step"].tolist() == ["transfer", "adapt"]
    FineTune(ranker, training={"negatives": 5}, epochs=4).fit_candidates(TRAIN, DEV)
    settings = [settings for _, settings in trainings]
    assert settings == [
        *[Training(learning_rate=2e-5, epochs=9, negatives=3), Training(learning_rate=1e-6, epochs=3, patience=7)] * 2,
        Training(learning_rate=2e-5, epochs=4, negatives=5),
    ]
    assert tanda.ranker.training == ranker.training


def test_a_transfer_helps_a_small_target(encoder):
    training = CascadeTraining(heads="joint", head_learning_rate=1e-3)
    ranker = Cascade.from_pretrained(encoder, layers=(2, 3), training=training)
    tanda = recipe(ranker, transfer_epochs=20).fit_candidates(TRAIN, DEV)
    test = questions(30, 9)
    out = tanda(test.drop(columns="label"))
    assert out[out["rank"] == 0].merge(test)["label"].mean() > 0.8
    alone = FineTune(ranker, "target", rate=1e-3, epochs=2, training=SMALL).fit_candidates(TRAIN, DEV)
    out = alone(test.drop(columns="label"))
    assert out[out["rank"] == 0].merge(test)["label"].mean() < 0.8


def test_models_of_a_sequential_reranker_are_all_transferred(encoder, tmp_path):
    ranker = SequentialReranker.from_pretrained(encoder, layers=(2, 3))
    tanda = recipe(ranker, transfer_epochs=1, adapt_epochs=1, folder=str(tmp_path))
    tanda.fit_candidates(TRAIN, DEV)
    steps = tanda.history.dropna(subset="dev_map")[["step", "layers"]].to_numpy().tolist()
    assert steps == [["transfer", 2], ["transfer", 3], ["adapt", 2], ["adapt", 3]]
    again = recipe(ranker, transfer_epochs=1, adapt_epochs=1, folder=str(tmp_path)).transferred(DEV)
    assert [weights(model) for model in again.models] != [weights(model) for model in ranker.models]


def test_transferred_weights_serve_other_targets_and_are_kept(ranker, tmp_path, monkeypatch):
    tanda = recipe(ranker, folder=str(tmp_path))
    transferred = tanda.transferred(DEV)
    first = tanda.adapt(transferred, TRAIN, DEV).ranker
    with pytest.raises(ValueError, match="holds another training"):
        tanda.adapt(transferred, questions(8, 5), DEV)
    second = tanda.adapt(transferred, questions(8, 5), DEV, step="adapt to others").ranker
    assert len({weights(one) for one in (transferred, first, second)}) == 3
    again = recipe(ranker, folder=str(tmp_path))
    kept = again.transferred(DEV)
    assert weights(kept) == weights(transferred)
    assert again.history["dev_map"].dropna().tolist() == tanda.steps[0]["dev_map"].dropna().tolist()


def test_weights_of_another_transfer_are_not_taken_for_these(ranker, tmp_path):
    """Other data, another ranker, another seed or number of epochs: each would be a quiet wrong answer."""
    kept = recipe(ranker, transfer_epochs=1, folder=str(tmp_path)).transferred(DEV)
    other = tiny.save(tmp_path / "other", layers=2, outputs=None, seed=9)
    settings = {"transfer_rate": 1e-3, "transfer_epochs": 1, "transfer_training": SMALL, "folder": str(tmp_path)}
    folder = re.escape(f"{tmp_path / 'transferred'} holds the weights of another transfer: ")
    for source, data, more, differs in (
        (
            ranker,
            TRANSFER.iloc[4:],
            {},
            "transfer_set was '[0-9a-f]{64}' and is '[0-9a-f]{64}'; give another Tanda.folder",
        ),
        (ranker, TRANSFER.assign(label=1 - TRANSFER["label"]), {}, "transfer_set was "),
        (ranker, TRANSFER.assign(text=TRANSFER["text"] + "."), {}, "transfer_set was "),
        (CrossEncoder.from_pretrained(other), TRANSFER, {}, "data_and_weights was '[0-9a-f]{64}' and is "),
        (ranker(max_length=16), TRANSFER, {}, "max_length was 512 and is 16; give another"),
        (ranker.with_training(seed=1), TRANSFER, {}, "seed was 0 and is 1; give another"),
        (ranker, TRANSFER, {"transfer_epochs": 5}, "epochs was 1 and is 5; give another"),
    ):
        with pytest.raises(ValueError, match=folder + differs):
            Tanda(source, data, **(settings | more)).transferred(DEV)
    # Where the same weights lie, and what shows or speeds them up, makes no other transfer.
    moved = CrossEncoder.from_pretrained(shutil.copytree(ranker.model.source, tmp_path / "moved"), verbose=True)
    for source in (ranker, moved):
        assert weights(Tanda(source, TRANSFER.copy(), **settings).transferred(DEV)) == weights(kept)
    odd = TRANSFER.assign(text=pd.Series([text + " \ud83d" for text in TRANSFER["text"]], dtype=object))
    with pytest.raises(ValueError, match=folder + "transfer_set was "):
        Tanda(ranker, odd, **settings).transferred(DEV)


def test_an_interrupted_recipe_goes_on(ranker, tmp_path, monkeypatch):
    """In the transfer step, early and late, and in the adapt step; the end is as if nothing had happened."""
    compute_loss, left = trainer._Trainer.compute_loss, [10**9]

    def failing(self, *args, **kwargs):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return compute_loss(self, *args, **kwargs)

    monkeypatch.setattr(trainer._Trainer, "compute_loss", failing)
    few = SMALL | {"tokens_per_batch": 100, "save_every": 2, "precision": "fp32"}
    settings = {"transfer_epochs": 2, "adapt_epochs": 2, "transfer_rate": 1e-3, "adapt_rate": 1e-3}

    def fitted(folder):
        tanda = Tanda(ranker, questions(12, 1), **settings, transfer_training=few, adapt_training=few, folder=folder)
        tanda.fit_candidates(TRAIN, DEV)
        measured = tanda.history.dropna(subset="dev_map")[["step", "epoch", "dev_map"]]
        return weights(tanda.ranker), measured.to_numpy().tolist()

    expected = fitted(None)
    n_losses = 10**9 - left[0]
    for n in (5, n_losses - 3):
        left[0], folder = n, str(tmp_path / str(n))
        with pytest.raises(KeyboardInterrupt):
            fitted(folder)
        assert (tmp_path / str(n) / "transferred").exists() == (n > 5)
        assert fitted(folder) == expected
    assert n_losses > 12


def test_a_search_over_rates(ranker):
    tanda = recipe(ranker, transfer_epochs=3)
    table = tanda.search(TRAIN, DEV, transfer_rates=(1e-6, 1e-3), adapt_rates=(1e-6, 1e-3))
    assert table[["transfer_rate", "adapt_rate"]].to_numpy().tolist() == [
        [1e-6, 1e-6], [1e-6, 1e-3], [1e-3, 1e-6], [1e-3, 1e-3],
    ]  # fmt: skip
    best = table.loc[table["dev_map"].idxmax()]
    assert (tanda.transfer_rate, tanda.adapt_rate) == (best["transfer_rate"], best["adapt_rate"])
    assert tanda.history["step"].value_counts().index.str.startswith("transfer").sum() == 1


def test_an_interrupted_search_goes_on(ranker, tmp_path, monkeypatch):
    rates = {"transfer_rates": (1e-6, 1e-3), "adapt_rates": (1e-3,)}
    tanda, trained, seen = recipe(ranker, transfer_epochs=1, adapt_epochs=1, folder=str(tmp_path)), Tanda.trained, []

    def failing(self, ranker, step, *args):
        seen.append(step)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return trained(self, ranker, step, *args)

    monkeypatch.setattr(Tanda, "trained", failing)
    with pytest.raises(KeyboardInterrupt):
        tanda.search(TRAIN, DEV, **rates)
    assert (tanda.transfer_rate, tanda.adapt_rate) == (1e-3, 1e-4)
    table = tanda.search(TRAIN, DEV, **rates)
    assert seen == ["transfer", "adapt at 0.001"] * 2 + ["adapt at 0.001"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rate-0.001", "rate-1e-06"]
    assert len(table) == 2 and tanda.history["step"].nunique() == 2


def test_a_sequential_rerankers_map_is_that_of_its_last_model():
    assert _best_map(pd.DataFrame({"layers": [2, 2, 3, 3], "dev_map": [0.9, 0.8, 0.6, 0.7]})) == 0.7
    assert _best_map(pd.DataFrame({"dev_map": [0.2, np.nan, 0.5, 0.4]})) == 0.5


@pytest.mark.parametrize(
    ("transfer", "settings", "error", "message"),
    [
        (TRANSFER.assign(label=[0.5, 1, 0, 1] * 60), {}, ValueError,
         r"labels of the transfer data must be whole numbers, but 60 are not, first 0\.5"),
        (TRANSFER.drop(columns="query"), {}, pt.validate.InputValidationError, "query"),
        (TRANSFER, {"adapt_epochs": 0}, ValueError, "epochs must be a whole number and at least 1, not 0"),
        (TRANSFER, {"transfer_rate": 0}, ValueError, "learning_rate must be a number above 0, not 0"),
        (TRANSFER, {"transfer_training": {"learning_rate": 1e-3}}, TypeError,
         "multiple values for keyword argument 'learning_rate'"),
        (TRANSFER, {"adapt_training": {"negative": 3}}, TypeError, r"did you mean 'negatives'\?"),
    ],
)  # fmt: skip
def test_bad_input(ranker, transfer, settings, error, message):
    with pytest.raises(error, match=message):
        Tanda(ranker, transfer, **settings)
