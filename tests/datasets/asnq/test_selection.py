import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from pandas.testing import assert_frame_equal

from pyterrier_cascade.datasets.asnq import select_negatives
from pyterrier_cascade.datasets.asnq.selection import draw, halves, read_question_lists


@pytest.fixture
def candidates():
    """Twenty questions of fifty candidates, interleaved, under an index that repeats; the last has only answers."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "qid": np.repeat([f"q{n}" for n in range(20)], 50),
            "docno": [f"d{n}" for n in range(1000)],
            "asnq_label": rng.choice([1, 2, 3, 4], size=1000, p=[0.7, 0.1, 0.1, 0.1]),
            "extra": 1.5,
        }
    )
    frame.loc[frame["qid"] == "q19", "asnq_label"] = 4
    return frame.sample(frac=1, random_state=0).set_index(np.arange(1000) // 3)


@pytest.mark.parametrize("negatives", [(), (1,), (2,), (3,), (2, 3), (1, 3), (1, 2, 3)])
def test_any_subset_of_the_negatives(candidates, negatives):
    kept = select_negatives(candidates, negatives)
    assert_frame_equal(kept, candidates[candidates["asnq_label"].isin([*negatives, 4])])


def test_numbers_are_for_each_question_and_label(candidates):
    kept = select_negatives(candidates, {1: 10, 2: 3, 3: None})
    before = candidates.groupby(["qid", "asnq_label"]).size()
    limits = pd.Series({1: 10, 2: 3, 3: 1000, 4: 1000}).reindex(before.index.get_level_values("asnq_label"))
    expected = np.minimum(before.to_numpy(), limits.to_numpy())
    assert kept.groupby(["qid", "asnq_label"]).size().tolist() == expected.tolist()
    assert (kept["docno"].to_numpy() == candidates["docno"][candidates["docno"].isin(kept["docno"])].to_numpy()).all()
    assert (before.loc["q19"] == 50).all()


def docnos(frame):
    return set(frame["docno"])


def test_sample_depends_on_seed_and_candidates_alone(candidates):
    sample = docnos(select_negatives(candidates, {1: 10}, seed=3))
    assert sample == docnos(select_negatives(candidates[::-1], {1: 10}, seed=3))
    assert sample != docnos(select_negatives(candidates, {1: 10}, seed=4))
    some = candidates[candidates["qid"].isin(["q1", "q2"])]
    assert docnos(select_negatives(some, {1: 10}, seed=3)) == sample & docnos(some)
    assert docnos(select_negatives(candidates, {1: 4}, seed=3)) < sample


def test_questions_draw_apart():
    frame = pd.DataFrame([(f"q{q}", f"d{d}", 1) for q in range(50) for d in range(10)])
    frame.columns = ["qid", "docno", "asnq_label"]
    chosen = select_negatives(frame, {1: 1})["docno"].value_counts()
    assert len(chosen) == 10 and chosen.max() < 15


def test_every_candidate_has_the_same_chance():
    frame = pd.DataFrame({"qid": "q", "docno": [f"d{n}" for n in range(8)], "asnq_label": 2})
    drawn = [select_negatives(frame, {2: 2}, seed)["docno"] for seed in range(1000)]
    counts = pd.concat(drawn).value_counts()
    assert counts.between(190, 310).all() and len(counts) == 8


def test_empty_frame(candidates):
    assert_frame_equal(select_negatives(candidates[:0], {1: 2}), candidates[:0])


@pytest.mark.parametrize(
    "negatives, message",
    [
        ((4,), "negatives=(4,): 4 is not one of the labels 1, 2, 3 of wrong answers"),
        ({0: 1}, "negatives={0: 1}: 0 is not one of the labels 1, 2, 3 of wrong answers"),
        (("2",), "negatives=('2',): '2' is not one of the labels 1, 2, 3 of wrong answers"),
        ((True,), "negatives=(True,): True is not one of the labels 1, 2, 3 of wrong answers"),
        ({1: 0}, "negatives={1: 0}: 0 is neither a positive number nor None for all"),
        ({1: 0.5}, "negatives={1: 0.5}: 0.5 is neither a positive number nor None for all"),
        ((1, 1), "negatives=(1, 1): a label is named twice"),
    ],
)
def test_negatives_without_meaning(candidates, negatives, message):
    with pytest.raises(ValueError) as err:
        select_negatives(candidates, negatives)
    assert str(err.value) == message


def test_frames_without_these_labels(candidates):
    with pytest.raises(ValueError, match=r"^asnq_label must be 1, 2, 3 or 4, but there are also 0, 7$"):
        select_negatives(candidates.assign(asnq_label=candidates["asnq_label"].replace({1: 7, 4: 0})), (1, 2, 3))
    with pytest.raises(pt.validate.InputValidationError, match="asnq_label"):
        select_negatives(candidates.drop(columns="asnq_label"), (1, 2))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 2672])
def test_halves(n):
    keys = [f"question {i}" for i in range(n)]
    parts = halves(keys, seed=0)
    assert len(parts["dev"]) - len(parts["test"]) == n % 2
    assert parts["dev"] | parts["test"] == set(keys) and not parts["dev"] & parts["test"]
    assert parts == halves(keys[::-1] * 2, seed=0)
    assert n < 7 or parts != halves(keys, seed=1)


def test_draw_is_the_same_on_every_machine():
    assert "".join(draw("abcdefgh", seed=0)) == "adbfeghc"


def test_published_lists(shared_data):
    """CT-37."""
    lists = read_question_lists(shared_data / "asnq_questions")
    assert {split: len(questions) for split, questions in lists.items()} == {
        "train": 57242,
        "dev": 1336,
        "test": 1336,
    }
