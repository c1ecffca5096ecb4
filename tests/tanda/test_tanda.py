"""Transfer, then adapt, around any ranker (TA-3 to TA-7)."""

import re
import shutil

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_cascade import Cascade, CascadeTraining, CrossEncoder, FineTune, SequentialReranker, Tanda, Training
from pyterrier_cascade.tanda.baselines import union
from pyterrier_cascade.tanda.noise import drops, flipped
from tests import tiny

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
    assert tanda.history.groupby("step")["update"].max().gt(1).all()
    measured = tanda.history.dropna(subset="dev_map").groupby("step", sort=False)["dev_map"]
    assert measured.size().to_dict() == {"transfer": 6, "adapt": 2}
    assert tanda.history.dropna(subset="dev_map")["dev_map"].between(0.2, 1).all()


@pytest.fixture
def trainings(monkeypatch) -> list:
    """What cross-encoders are trained on and how, in place of training."""
    seen = []
    monkeypatch.setattr(CrossEncoder, "train", lambda self, train, *dev: seen.append((train, self.training)))
    monkeypatch.setattr(CrossEncoder, "history", pd.DataFrame({"epoch": [1.0], "dev_map": [0.5]}))
    return seen


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
    with pytest.raises(ValueError, match="a recipe stops early in every step"):
        tanda.fit(TRAIN, TRAIN, DEV)


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
    folder = re.escape(f"{str(tmp_path / 'transferred')!r} holds the weights of another transfer: ")
    for source, data, more, differs in (
        (
            ranker,
            TRANSFER.iloc[4:],
            {},
            "transfer_set was '[0-9a-f]{64}' and is '[0-9a-f]{64}'; give another folder, or",
        ),
        (ranker, TRANSFER.assign(label=1 - TRANSFER["label"]), {}, "transfer_set was "),
        (ranker, TRANSFER.assign(text=TRANSFER["text"] + "."), {}, "transfer_set was "),
        (CrossEncoder.from_pretrained(other), TRANSFER, {}, "data_and_weights was '[0-9a-f]{64}' and is "),
        (ranker(max_length=16), TRANSFER, {}, "max_length was None and is 16; give another"),
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


def test_what_was_interrupted_goes_on(ranker, tmp_path, monkeypatch):
    """In the transfer step, early and late, and in the adapt step; the end is as if nothing had happened."""
    from pyterrier_cascade.training.trainer import _Trainer

    compute_loss, left = _Trainer.compute_loss, [10**9]

    def failing(self, *args, **kwargs):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return compute_loss(self, *args, **kwargs)

    monkeypatch.setattr(_Trainer, "compute_loss", failing)
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
    from pyterrier_cascade.tanda.tanda import _best_map

    assert _best_map(pd.DataFrame({"layers": [2, 2, 3, 3], "dev_map": [0.9, 0.8, 0.6, 0.7]})) == 0.7
    assert _best_map(pd.DataFrame({"dev_map": [0.2, np.nan, 0.5, 0.4]})) == 0.5


def test_baselines(ranker, trainings):
    """TA-4: on the target, on the transfer set, or on both, whose questions stay apart even where their ids meet."""
    meeting = TRANSFER.assign(qid=TRANSFER["qid"].replace("q1-0", TRAIN["qid"].iloc[0]))
    for on in ("target", "transfer", "union"):
        tuned = FineTune(ranker, on, meeting, rate=1e-5).fit_candidates(TRAIN, DEV)
        assert tuned.history["step"].tolist() == [on]
    (target, settings), (transfer, _), (both, _) = trainings
    assert target.equals(TRAIN) and transfer.equals(meeting) and settings == Training(learning_rate=1e-5, epochs=9)
    assert len(both) == len(TRANSFER) + len(TRAIN) and both["qid"].nunique() == 68
    assert sorted(both["text"]) == sorted([*TRANSFER["text"], *TRAIN["text"]])
    assert list(union(TRANSFER.assign(more=1), TRAIN).columns) == list(TRAIN.columns)


def test_what_baselines_cannot_be(ranker):
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
    for on in ("transfer", "union"):
        with pytest.raises(ValueError, match="the transfer set asks 1 of the 3 test questions"):
            FineTune(ranker, on, TRANSFER, test=test)
        FineTune(ranker, on, TRANSFER, test=test, allow_overlap=True)
    Tanda(ranker, TRANSFER, test=test, allow_overlap=True)
    facts = pt.get_dataset("as2:facts/test")
    asked = TRANSFER.assign(query=facts.get_topics()["query"].iloc[0])
    with pytest.raises(ValueError, match="the transfer set asks 1 of the"):
        Tanda(ranker, asked, test=facts)
    with pytest.raises(pt.validate.InputValidationError, match="query"):
        Tanda(ranker, TRANSFER, test=test.rename(columns={"query": "question"}))


def test_bad_input(ranker):
    with pytest.raises(
        ValueError, match=r"labels of the transfer data must be whole numbers, but 60 are not, first 0\.5"
    ):
        Tanda(ranker, TRANSFER.assign(label=[0.5, 1, 0, 1] * 60))
    with pytest.raises(pt.validate.InputValidationError, match="query"):
        Tanda(ranker, TRANSFER.drop(columns="query"))
    with pytest.raises(ValueError, match=r"^'nothing' cannot be fitted; give a CrossEncoder, a Cascade or another"):
        Tanda("nothing", TRANSFER)
    with pytest.raises(ValueError, match="epochs must be a whole number and at least 1, not 0"):
        recipe(ranker, adapt_epochs=0)
    with pytest.raises(ValueError, match="learning_rate must be above 0, not -1"):
        FineTune(ranker, rate=-1)
    with pytest.raises(TypeError, match="multiple values for keyword argument 'learning_rate'"):
        Tanda(ranker, TRANSFER, transfer_training={"learning_rate": 1e-3})
    with pytest.raises(ValueError, match="nothing was trained yet: call fit first"):
        recipe(ranker).plot()


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        (TRAIN, DEV.iloc[:0], "a recipe stops early in every step"),
        (TRAIN, None, "a recipe stops early in every step"),
        (TRAIN.assign(label=[0, 0.5] * 16), DEV, "labels of the training data must be whole numbers, but 16 are not"),
        (TRAIN, DEV.assign(label=0), "no positive among the 64 candidates of the development data"),
        (TRAIN.drop(columns="text"), DEV, "The retriever returned no 'text'"),
    ],
)
def test_a_useless_target_is_refused_before_the_transfer(ranker, monkeypatch, train, dev, message):
    monkeypatch.setattr(Tanda, "trained", lambda *args: pytest.fail("it trained first"))
    for start in (recipe(ranker).fit_candidates, recipe(ranker).search):
        with pytest.raises((ValueError, pt.validate.InputValidationError), match=message):
            start(train, dev)
    with pytest.raises(ValueError, match="learning_rate must be above 0, not 0"):
        recipe(ranker).search(TRAIN, DEV, adapt_rates=(1e-6, 0))


def test_training_settings_travel(encoder):
    one = CrossEncoder.from_pretrained(encoder, training=Training(seed=3))
    assert one.with_training(epochs=5).training == Training(seed=3, epochs=5)
    several = SequentialReranker.from_pretrained(encoder, layers=(2, 3)).with_training(epochs=5, folder="x")
    assert [model.training.epochs for model in several.models] == [5, 5]
    assert [model.training.folder for model in several.models] == ["x/model-0", "x/model-1"]


@pytest.mark.parametrize(
    ("rows", "share", "n"),
    [(8672, 0.1, 867), (8672, 0.2, 1734), (53417, 0.1, 5341), (53417, 0.2, 10683), (100, 0.29, 29)],
)
def test_exact_counts_of_noise(rows, share, n):
    """TA-23."""
    frame = pd.DataFrame({"label": np.arange(rows) % 2})
    noisy = flipped(frame, share, seed=1)
    assert (noisy["label"] != frame["label"]).sum() == n
    assert (flipped(frame, share, seed=1) == noisy).all().all() and (flipped(frame, share, seed=2) != noisy).any().any()


def test_noise_is_a_uniform_sample():
    """Any two of eight labels are turned together as often as any other two: 50 times in 1,400."""
    frame = pd.DataFrame({"label": [0, 1] * 4})
    turned = [np.flatnonzero(flipped(frame, 0.25, seed)["label"] != frame["label"]) for seed in range(1_400)]
    pairs = pd.Series([tuple(two) for two in turned]).value_counts()
    assert len(pairs) == 28 and pairs.between(25, 80).all()
    assert frame["label"].tolist() == [0, 1] * 4


def test_drops():
    """TA-23: .813 falls to .775 and .629."""
    table = drops(pd.DataFrame({"AP": [0.813, 0.775, 0.629], "RR": [0.828, 0.793, 0.645]}, index=[0, 0.1, 0.2]))
    assert table.round(2).to_numpy().tolist() == [[0, 0], [4.67, 4.23], [22.63, 22.10]]
    with pytest.raises(ValueError, match="share=2: give a share of the labels from 0 to 1"):
        flipped(pd.DataFrame({"label": [0]}), 2)
    with pytest.raises(ValueError, match="labels of the clean data must be whole numbers, but 1 are not"):
        flipped(pd.DataFrame({"label": [0, 1, 0.4]}), 0.5)
    assert set(flipped(pd.DataFrame({"label": [0, 1, 4]}), 0)["label"]) == {0, 1}


@pytest.mark.parametrize("make", [lambda ranker: recipe(ranker), lambda ranker: FineTune(ranker)])
def test_without_development_questions_it_says_so(ranker, make):
    with pytest.raises(
        ValueError, match="a recipe stops early in every step, by MAP on the target's development quest"
    ):
        make(ranker).fit_candidates(TRAIN)


def test_a_plot_of_the_course(ranker):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    tanda = recipe(ranker, transfer_epochs=2, adapt_epochs=1).fit_candidates(TRAIN, DEV)
    ax = tanda.plot()
    assert [line.get_label() for line in ax.lines] == ["transfer", "adapt"]
    assert [len(line.get_xdata()) for line in ax.lines] == [2, 1]
    alone = FineTune(ranker)
    alone.steps = [tanda.steps[1].assign(step="target")]
    assert alone.plot(ax) is ax
    assert [line.get_label() for line in ax.lines] == ["transfer", "adapt", "target"]


def test_a_line_for_each_training():
    """Of two models in one step, and of a step that was done twice; a row without MAP is passed over."""
    from pyterrier_cascade.tanda.plots import course

    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    rows = [("transfer", 1, 2, 0.1), ("transfer", 2, 2, 0.2), ("transfer", 1, 3, 0.3), ("transfer", 2, 3, None)]
    rows += [("adapt", 1, 2, 0.4), ("adapt", 1, 3, 0.5), ("adapt", 2, 3, 0.6)]
    history = pd.DataFrame(rows, columns=["step", "epoch", "layers", "dev_map"])
    drawn = {line.get_label(): line.get_ydata().tolist() for line in course(history).lines}
    assert drawn == {
        "transfer, 2 layers": [0.1, 0.2], "transfer, 3 layers": [0.3],
        "adapt, 2 layers": [0.4], "adapt, 3 layers": [0.5, 0.6],
    }  # fmt: skip
    stopped = pd.DataFrame(
        {"step": ["transfer"] * 2 + ["adapt"] * 2, "epoch": [0.2, 0.4, 1, 2], "dev_map": [1, 2, 3, 4]}
    )
    assert [line.get_ydata().tolist() for line in course(stopped).lines] == [[1, 2], [3, 4]]
    twice = pd.DataFrame({"step": "adapt", "epoch": [1, 2, 1, 2], "dev_map": [0.1, 0.2, 0.3, 0.4]})
    assert [line.get_ydata().tolist() for line in course(twice).lines] == [[0.1, 0.2], [0.3, 0.4]]
