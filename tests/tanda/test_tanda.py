"""Transfer, then adapt, around any ranker (TA-3 to TA-7)."""

import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import tiny

from pyterrier_cascade import Cascade, CascadeTraining, CrossEncoder, FineTune, SequentialReranker, Tanda, Training
from pyterrier_cascade.tanda.baselines import union
from pyterrier_cascade.tanda.noise import drops, flipped

SMALL = {"tokens_per_batch": 300, "patience": 9}


def questions(n: int, seed: int, asked=("ship", "town")) -> pd.DataFrame:
    """Questions whose answer names what is asked for."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(n):
        which = str(rng.choice(asked))
        for rank in range(4):
            right = rank == number % 4
            text = f"the {which if right else asked[which == asked[0]]} was {rng.choice(['founded', 'launched'])}"
            rows.append((f"q{seed}-{number}", f"what {which} {number}", f"d{number}-{rank}", text, int(right)))
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "label"])


TRANSFER, TRAIN, DEV = questions(60, 1), questions(8, 2), questions(16, 3)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("tanda") / "encoder", layers=3, outputs=None)


@pytest.fixture
def ranker(encoder):
    return CrossEncoder.from_pretrained(encoder)


def recipe(ranker, **more) -> Tanda:
    settings = {"transfer_epochs": 6, "adapt_epochs": 2, "transfer_rate": 1e-3, "adapt_rate": 1e-4, **more}
    return Tanda(ranker, TRANSFER, transfer_training=SMALL, adapt_training=SMALL, **settings)


def weights(ranker) -> str:
    return ranker.model.fingerprint


def test_the_papers_defaults(ranker):
    """TA-5, TA-6, TA-7."""
    tanda = Tanda(ranker, TRANSFER)
    assert (tanda.transfer_rate, tanda.adapt_rate, tanda.transfer_epochs, tanda.adapt_epochs) == (2e-5, 1e-6, 9, 3)
    from pyterrier_cascade.tanda.tanda import ADAPT_RATES, TRANSFER_RATES

    assert TRANSFER_RATES == (1e-6, 2e-5) and ADAPT_RATES == (1e-6, 2e-6, 5e-6, 1e-5, 2e-5)


def test_the_second_step_starts_from_the_weights_of_the_first(ranker, monkeypatch):
    """TA-3: the same head, and an optimiser that remembers nothing."""
    from pyterrier_cascade.training import trainer

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


def test_both_steps_are_in_the_table(ranker):
    tanda = recipe(ranker).fit_candidates(TRAIN, DEV)
    assert tanda.history["step"].unique().tolist() == ["transfer", "adapt"]
    measured = tanda.history.dropna(subset="dev_map").groupby("step", sort=False)["dev_map"]
    assert measured.size().to_dict() == {"transfer": 6, "adapt": 2}
    assert tanda.history.dropna(subset="dev_map")["dev_map"].between(0.2, 1).all()


def test_it_learns_what_the_target_alone_is_too_small_for(encoder):
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


def test_behind_a_retriever(ranker):
    lists = pd.concat([TRAIN, DEV])
    retriever = pt.Transformer.from_df(lists.drop(columns=["label", "query"]))
    topics = {name: frame[["qid", "query"]].drop_duplicates() for name, frame in (("train", TRAIN), ("dev", DEV))}
    tanda = recipe(ranker, transfer_epochs=1, adapt_epochs=1)
    (retriever >> tanda).fit(topics["train"], TRAIN, topics["dev"], DEV)
    assert tanda.history["step"].unique().tolist() == ["transfer", "adapt"]
    with pytest.raises(ValueError, match="a recipe stops early in every step, by MAP on the target's development"):
        (retriever >> tanda).fit(topics["train"], TRAIN)


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
    message = re.escape("holds the weights of another transfer, by {'learning_rate': 0.001,")
    with pytest.raises(ValueError, match=message):
        recipe(ranker, folder=str(tmp_path), transfer_epochs=5).transferred(DEV)


def test_a_search_over_rates(ranker):
    tanda = recipe(ranker, transfer_epochs=3)
    table = tanda.search(TRAIN, DEV, transfer_rates=(1e-6, 1e-3), adapt_rates=(1e-6, 1e-3))
    assert table[["transfer_rate", "adapt_rate"]].to_numpy().tolist() == [
        [1e-6, 1e-6], [1e-6, 1e-3], [1e-3, 1e-6], [1e-3, 1e-3],
    ]  # fmt: skip
    best = table.loc[table["dev_map"].idxmax()]
    assert (tanda.transfer_rate, tanda.adapt_rate) == (best["transfer_rate"], best["adapt_rate"])
    assert tanda.history["step"].value_counts().index.str.startswith("transfer").sum() == 1


def test_baselines(ranker):
    """TA-4."""
    both = union(TRANSFER, TRAIN)
    assert len(both) == len(TRANSFER) + len(TRAIN) and both["qid"].nunique() == 68
    for on, n in (("target", 8), ("transfer", 60), ("union", 68)):
        tuned = FineTune(ranker, on, TRANSFER, rate=1e-3, epochs=1, training=SMALL).fit_candidates(TRAIN, DEV)
        assert tuned.history["step"].unique().tolist() == [on] and n
    with pytest.raises(ValueError, match="on must be one of target, transfer, union, not 'both'"):
        FineTune(ranker, "both")
    with pytest.raises(ValueError, match="on='union' needs a transfer set"):
        FineTune(ranker, "union")


def test_a_transfer_set_that_gives_the_test_away(ranker):
    test = pd.DataFrame({"query": ["What  SHIP 3?", "what town 3", "who"]})
    asked = TRANSFER["query"].unique()
    n = len({"what ship 3", "what town 3"} & set(asked))
    assert n == 1
    with pytest.raises(ValueError, match=r"the transfer set asks 1 of the 3 test questions: '[Ww]hat"):
        Tanda(ranker, TRANSFER, test=test)
    Tanda(ranker, TRANSFER, test=test, allow_overlap=True)


def test_bad_input(ranker):
    with pytest.raises(ValueError, match="labels of the transfer data must be 0 or 1, but there are also 3, 4"):
        Tanda(ranker, TRANSFER.assign(label=[3, 4, 0, 1] * 60))
    with pytest.raises(ValueError, match="a recipe stops early in every step"):
        recipe(ranker).fit_candidates(TRAIN, DEV.iloc[:0])


def test_training_settings_travel(encoder):
    one = CrossEncoder.from_pretrained(encoder, training=Training(seed=3))
    assert one.with_training(epochs=5).training == Training(seed=3, epochs=5)
    several = SequentialReranker.from_pretrained(encoder, layers=(2, 3)).with_training(epochs=5, folder="x")
    assert [model.training.epochs for model in several.models] == [5, 5]
    assert [model.training.folder for model in several.models] == ["x/model-0", "x/model-1"]


@pytest.mark.parametrize(
    ("rows", "share", "n"), [(8672, 0.1, 867), (8672, 0.2, 1734), (53417, 0.1, 5341), (53417, 0.2, 10683)]
)
def test_exact_counts_of_noise(rows, share, n):
    """TA-23."""
    frame = pd.DataFrame({"label": np.arange(rows) % 2})
    noisy = flipped(frame, share, seed=1)
    assert (noisy["label"] != frame["label"]).sum() == n
    assert (flipped(frame, share, seed=1) == noisy).all().all() and (flipped(frame, share, seed=2) != noisy).any().any()


def test_drops():
    """TA-23: .813 falls to .775 and .629."""
    table = drops(pd.DataFrame({"AP": [0.813, 0.775, 0.629], "RR": [0.828, 0.793, 0.645]}, index=[0, 0.1, 0.2]))
    assert table.round(2).to_numpy().tolist() == [[0, 0], [4.67, 4.23], [22.63, 22.10]]
    with pytest.raises(ValueError, match="share=2: give a share of the labels from 0 to 1"):
        flipped(pd.DataFrame({"label": [0]}), 2)


def test_a_plot_of_the_course(ranker):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    tanda = recipe(ranker, transfer_epochs=2, adapt_epochs=1).fit_candidates(TRAIN, DEV)
    ax = tanda.plot()
    assert [line.get_label() for line in ax.lines] == ["transfer", "adapt"]
    assert [len(line.get_xdata()) for line in ax.lines] == [2, 1]
