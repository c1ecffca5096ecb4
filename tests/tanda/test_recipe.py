"""Checks and tables that all recipes have."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_cascade import FineTune, Tanda
from tests.tanda.lists import DEV, TRAIN, TRANSFER, recipe


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
    with pytest.raises(ValueError, match="learning_rate must be a number above 0, not 0"):
        recipe(ranker).search(TRAIN, DEV, adapt_rates=(1e-6, 0))


@pytest.mark.parametrize("make", [lambda ranker: recipe(ranker), lambda ranker: FineTune(ranker)])
def test_without_development_questions_it_says_so(ranker, make):
    with pytest.raises(
        ValueError, match="a recipe stops early in every step, by MAP on the target's development quest"
    ):
        make(ranker).fit_candidates(TRAIN)


def test_both_steps_are_in_the_table(ranker):
    tanda = recipe(ranker).fit_candidates(TRAIN, DEV)
    assert tanda.history["step"].unique().tolist() == ["transfer", "adapt"]
    assert tanda.history.groupby("step")["update"].max().gt(1).all()
    measured = tanda.history.dropna(subset="dev_map").groupby("step", sort=False)["dev_map"]
    assert measured.size().to_dict() == {"transfer": 6, "adapt": 2}
    assert tanda.history.dropna(subset="dev_map")["dev_map"].between(0.2, 1).all()


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


def test_only_rankers_with_weights_are_trained():
    with pytest.raises(ValueError, match=r"^'nothing' cannot be fitted; give a CrossEncoder, a Cascade or another"):
        Tanda("nothing", TRANSFER)


def test_a_plot_needs_a_training(ranker):
    with pytest.raises(ValueError, match="nothing was trained yet: call fit first"):
        recipe(ranker).plot()


def test_a_recipe_is_one_box(ranker):
    assert repr(recipe(ranker)) == f"<Tanda of {ranker!r}>"
    assert "Tanda" in pt.schematic.draw(recipe(ranker), outer_class="test")
