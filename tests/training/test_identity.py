"""A folder with the files of one training is never continued by another."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from pyterrier_cascade import Cascade, CascadeTraining, CrossEncoder, Training
from pyterrier_cascade.training.identity import identity, refuse_another
from tests.training.questions import DEV, TRAIN, assert_same, weights


class Tiny(torch.nn.Linear):
    """A module with a configuration."""

    def __init__(self, **config):
        super().__init__(2, 1)
        torch.nn.init.ones_(self.weight)
        torch.nn.init.zeros_(self.bias)
        self.config = config


def run(settings=None, examples=(1, 2), dev="dev", weight=1.0, **config) -> dict:
    module = Tiny(pooling="mean", **config)
    torch.nn.init.constant_(module.weight, weight)
    return identity(settings or Training(), module, [np.array(examples)], dev)


@pytest.mark.parametrize(
    "same",
    [
        run(),
        run(Training(folder="elsewhere", save_every=7)),
        run(Training(epochs=np.int64(3), learning_rate=np.float64(2e-5))),
        run(_name_or_path="elsewhere", transformers_version="0", dtype="float32", architectures=["Tiny"]),
        run(trained_on={"questions": 3}, _attn_implementation="eager"),
    ],
    ids=["itself", "folder", "numbers of numpy", "origin of the encoder", "record"],
)
def test_differences_that_do_not_change_a_training(same):
    """Where files lie, and what the library notes about itself."""
    assert same == run()


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (run(Training(learning_rate=1e-3)), "learning_rate"),
        (run(Training(relevant_from=2)), "relevant_from"),
        (run(examples=(1, 3)), "data_and_weights"),
        (run(weight=2.0), "data_and_weights"),
        (run(layers=[1, 2]), "data_and_weights"),
        (run(encoder={"model_type": "bert", "num_attention_heads": 2}), "data_and_weights"),
        (run(dev=None), "development_data"),
    ],
)
def test_differences_that_make_another_training(other, field, tmp_path):
    assert {name for name, value in run().items() if other[name] != value} == {field}
    message = f"{tmp_path} holds another training: {field} was {run()[field]!r} and is {other[field]!r}; give another"
    with pytest.raises(ValueError, match=re.escape(message)):
        refuse_another(tmp_path, run(), other, Training)


def test_every_difference_is_named():
    with pytest.raises(
        ValueError, match=r"here holds the weights: a was 1 and is 2, b was None and is 3; give another"
    ):
        refuse_another(Path("here"), {"a": 1, "old": 0}, {"a": 2, "b": 3}, Tiny, holds="the weights")


def test_a_folder_of_another_training_is_refused(tiny_bert, tmp_path):
    training = Training(epochs=1, folder=str(tmp_path))
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN, DEV)
    done = CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN, DEV)
    assert_same(weights(done), weights(ranker))
    other = Training(epochs=1, learning_rate=1e-3, folder=str(tmp_path))
    message = f"{tmp_path} holds another training: learning_rate was 2e-05 and is 0.001; give another Training.folder"
    with pytest.raises(ValueError, match=re.escape(message)):
        CrossEncoder.from_pretrained(tiny_bert, training=other).fit_candidates(TRAIN, DEV)
    for message, train, dev, more in (
        ("data_and_weights", TRAIN.iloc[3:], DEV, {}),
        ("development_data", TRAIN, DEV.iloc[3:], {}),
        ("development_data", TRAIN, None, {}),
        ("development_data", TRAIN, DEV, {"passages": "max"}),
        ("development_data", TRAIN, DEV, {"max_length": 64}),
    ):
        with pytest.raises(ValueError, match=f"holds another training: {message} was"):
            CrossEncoder.from_pretrained(tiny_bert, training=training, **more).fit_candidates(train, dev)
    numbers = Training(epochs=np.int64(1), learning_rate=np.float64(2e-5), folder=str(tmp_path))
    again = CrossEncoder.from_pretrained(tiny_bert, training=numbers).fit_candidates(TRAIN, DEV)
    assert_same(weights(again), weights(ranker))


def test_a_folder_of_another_pooling_is_refused(tiny_bert, tmp_path):
    """Which weights do not show; where the encoder lies makes no difference."""
    training = CascadeTraining(epochs=1, folder=str(tmp_path / "kept"))
    Cascade.from_pretrained(tiny_bert, layers=(1, 2), training=training).fit_candidates(TRAIN)
    moved = shutil.copytree(tiny_bert, tmp_path / "moved")
    Cascade.from_pretrained(str(moved), layers=(1, 2), training=training).fit_candidates(TRAIN)
    with pytest.raises(ValueError, match="holds another training: data_and_weights was"):
        Cascade.from_pretrained(tiny_bert, layers=(1, 2), pooling="cls", training=training).fit_candidates(TRAIN)
