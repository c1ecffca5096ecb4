"""The base of rankers with weights: one rule for labels, from qrels and from labelled lists."""

import re
import warnings

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from pandas.testing import assert_frame_equal

from pyterrier_cascade import DCBERT, CrossEncoder, HierarchicalRanker, SequentialReranker, Training
from tests import tiny
from tests.training.questions import DEV, QUICK, TRAIN, assert_same, weights


def test_in_a_pipeline_the_qrels_give_the_labels(tiny_bert):
    qrels = {name: frame.loc[frame["label"] == 1, ["qid", "docno", "label"]] for name, frame in
             (("train", TRAIN), ("dev", DEV))}  # fmt: skip
    results = {name: frame.drop(columns="label") for name, frame in (("train", TRAIN), ("dev", DEV))}
    retriever = pt.Transformer.from_df(pd.concat(results.values()))
    topics = {name: frame[["qid", "query"]].drop_duplicates() for name, frame in results.items()}
    pipeline = retriever >> CrossEncoder.from_pretrained(tiny_bert, training=QUICK)
    pipeline.fit(topics["train"], qrels["train"], topics["dev"], qrels["dev"])
    direct = CrossEncoder.from_pretrained(tiny_bert, training=QUICK).fit_candidates(TRAIN, DEV)
    assert_same(weights(pipeline[1]), weights(direct))


def test_only_development_questions_are_measured(tiny_bert):
    """A file of qrels often judges those of all splits."""
    few = CrossEncoder.from_pretrained(tiny_bert, training=Training(epochs=1, tokens_per_batch=300))
    results = [frame.drop(columns="label") for frame in (TRAIN, DEV)]
    qrels = [frame[["qid", "docno", "label"]] for frame in (TRAIN, DEV)]
    expected = few.apart().fit(results[0], qrels[0], results[1], qrels[1]).history
    found = few.apart().fit(results[0], qrels[0], results[1], pd.concat(qrels)).history
    assert_frame_equal(found, expected)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (0, "no positive among the 180 candidates of the training data: no label is 1 or more; are these the"),
        (1, "all 180 candidates of the training data are positive; it needs negatives too"),
        (2, "all 180 candidates of the training data are positive; it needs negatives too"),
    ],
)
def test_data_of_one_class_is_an_error(tiny_bert, labels, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CrossEncoder.from_pretrained(tiny_bert).fit_candidates(TRAIN.assign(label=labels), DEV)


def test_development_results_need_qrels(tiny_bert):
    with pytest.raises(ValueError, match="development results were given without their qrels; give both or neither"):
        CrossEncoder.from_pretrained(tiny_bert).fit(TRAIN, TRAIN, DEV)


def graded(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The same candidates with labels of 0, 1 and 2: each question's positive has 2, and some negatives have 1."""
    half = np.random.default_rng(seed).random(len(frame)) < 0.5
    return frame.assign(label=2 * frame["label"] + ((frame["label"] == 0) & half))


@pytest.mark.parametrize("relevant_from", [1, 2])
def test_grades_mean_the_same_in_qrels_and_in_labelled_lists(tiny_bert, relevant_from):
    train, dev = graded(TRAIN, 0), graded(DEV, 1)
    assert sorted(train["label"].unique()) == sorted(dev["label"].unique()) == [0, 1, 2]
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=QUICK).with_training(relevant_from=relevant_from)
    lists = ranker.apart().fit_candidates(train, dev)
    results = [frame.drop(columns="label") for frame in (train, dev)]
    qrels = [frame.loc[frame["label"] > 0, ["qid", "docno", "label"]] for frame in (train, dev)]
    pipeline = ranker.apart().fit(results[0], qrels[0], results[1], qrels[1])
    assert_same(weights(lists), weights(pipeline))
    assert_frame_equal(lists.history, pipeline.history)
    binary = [frame.assign(label=(frame["label"] >= relevant_from).astype(int)) for frame in (train, dev)]
    expected = CrossEncoder.from_pretrained(tiny_bert, training=QUICK).fit_candidates(*binary)
    assert_same(weights(lists), weights(expected))
    assert_frame_equal(lists.history, expected.history)
    assert lists.model.loaded.trained_on.positives == binary[0]["label"].sum()


def test_another_least_grade_trains_on_other_positives(tiny_bert):
    train = graded(TRAIN, 0)
    one, two = (
        CrossEncoder.from_pretrained(tiny_bert, training=QUICK).with_training(relevant_from=grade).fit_candidates(train)
        for grade in (1, 2)
    )
    assert one.model.loaded.trained_on.positives > two.model.loaded.trained_on.positives == 60
    assert any(not torch.equal(tensor, weights(two)[name]) for name, tensor in weights(one).items())


@pytest.mark.parametrize("name", ["training", "development"])
def test_data_without_a_grade_that_counts_are_an_error(tiny_bert, name):
    ranker = CrossEncoder.from_pretrained(tiny_bert).with_training(relevant_from=2)
    data = {"training": graded(TRAIN, 0), "development": graded(DEV, 1)}
    data[name] = data[name].assign(label=data[name]["label"].clip(upper=1))
    with pytest.raises(ValueError, match=f"of the {name} data: no label is 2 or more; are these the right qrels"):
        ranker.fit_candidates(*data.values())


@pytest.mark.parametrize("name", ["training", "development"])
@pytest.mark.parametrize("cls", [CrossEncoder, DCBERT, HierarchicalRanker])
def test_ids_are_checked_before_a_training(tmp_path, cls, name):
    data = {"training": TRAIN, "development": DEV}
    frame = data[name]
    ranker = cls() if cls is HierarchicalRanker else cls.from_pretrained(tiny.save(tmp_path, outputs=None))
    for column, message in (
        ("qid", f"qid is missing in row 1 of {len(frame)}; every row needs a query id"),
        ("docno", f"1 of {len(frame)} candidates of the {name} data have no docno"),
    ):
        ids = frame[column].to_numpy(dtype=object).copy()
        ids[1] = None
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            ranker.fit_candidates(*(data | {name: frame.assign(**{column: ids})}).values())


def test_labels_may_be_categories(tiny_bert):
    plain = CrossEncoder.from_pretrained(tiny_bert, training=QUICK).fit_candidates(TRAIN, DEV)
    categories = [frame.astype({"label": "category"}) for frame in (TRAIN, DEV)]
    found = CrossEncoder.from_pretrained(tiny_bert, training=QUICK).fit_candidates(*categories)
    assert_frame_equal(found.history, plain.history)
    results = [frame.drop(columns="label") for frame in (TRAIN, DEV)]
    qrels = [frame[["qid", "docno", "label"]] for frame in categories]
    found = CrossEncoder.from_pretrained(tiny_bert, training=QUICK).fit(results[0], qrels[0], results[1], qrels[1])
    assert_frame_equal(found.history, plain.history)


def test_development_data_that_were_trained_on_are_said(tiny_bert):
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=Training(epochs=1, tokens_per_batch=300))
    message = f"all {TRAIN['qid'].nunique()} development queries are training queries too"
    with pytest.warns(UserWarning, match=f"^{message}") as seen:
        ranker.fit_candidates(TRAIN, TRAIN)
    assert [one.filename for one in seen if "development" in str(one.message)] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        ranker.apart().fit_candidates(TRAIN, DEV)


def test_settings_of_a_training_travel(tiny_bert):
    one = CrossEncoder.from_pretrained(tiny_bert, training=Training(seed=3))
    assert one.with_training(epochs=5).training == Training(seed=3, epochs=5)
    several = SequentialReranker.from_pretrained(tiny_bert, layers=(1, 2)).with_training(epochs=5, folder="x")
    assert [model.training.epochs for model in several.models] == [5, 5]
    assert [model.training.folder for model in several.models] == ["x/model-0", "x/model-1"]
