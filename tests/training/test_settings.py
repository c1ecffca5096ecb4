"""The settings of a training: checked at the door, values, and expressions."""

import re

import pytest

from pyterrier_cascade import Cascade, CascadeTraining, CrossEncoder, Training


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "fp8"}, "precision must be one of auto, fp32, bf16, fp16, not 'fp8'"),
        ({"epochs": 0}, "epochs must be a whole number and at least 1, not 0"),
        ({"epochs": True}, "epochs must be a whole number and at least 1, not True"),
        ({"tokens_per_batch": 2.5}, "tokens_per_batch must be a whole number and at least 1, not 2.5"),
        ({"relevant_from": 0}, "relevant_from must be a whole number and at least 1, not 0"),
        ({"relevant_from": 0.5}, "relevant_from must be a whole number and at least 1, not 0.5"),
        ({"head_learning_rate": -1}, "head_learning_rate must be a number above 0, not -1"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number above 0, not nan"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0, not 0.0"),
        ({"learning_rate": float("inf")}, "learning_rate must be a number above 0, not inf"),
        ({"learning_rate": None}, "learning_rate must be a number above 0, not None"),
        ({"learning_rate": True}, "learning_rate must be a number above 0, not True"),
        ({"learning_rate": "1e-5"}, "learning_rate must be a number above 0, not '1e-5'"),
        ({"head_learning_rate": "1e-5"}, "head_learning_rate must be a number above 0, not '1e-5'"),
        ({"warmup": -0.1}, "warmup must be a number from 0, not -0.1"),
        ({"warmup": float("nan")}, "warmup must be a number from 0, not nan"),
        ({"weight_decay": "0"}, "weight_decay must be a number from 0, not '0'"),
        ({"seed": -1}, "seed must be a whole number from 0 to 4294967295, not -1"),
        ({"seed": 2**32}, "seed must be a whole number from 0 to 4294967295, not 4294967296"),
        ({"seed": 0.5}, "seed must be a whole number from 0 to 4294967295, not 0.5"),
        ({"negatives": 0}, "negatives must be at least 1 for each question, or None for all, not 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Training(**settings)


def test_settings_can_be_typed_back_in():
    training = Training(learning_rate=1e-4, folder="here")
    assert repr(training) == "Training(learning_rate=0.0001, folder='here')" and eval(repr(training)) == training


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Training(learning_rat=1e-3), "Training has no setting 'learning_rat' (did you mean 'learning_rate'?)"),
        (lambda: Training(zzz=1), "Training has no setting 'zzz'; its settings are learning_rate, head_learning_rate"),
        (lambda: CascadeTraining(head="joint"), "CascadeTraining has no setting 'head' (did you mean 'heads'?)"),
        (lambda: CrossEncoder("x").with_training(epoch=2), "Training has no setting 'epoch' (did you mean 'epochs'?)"),
        (
            lambda: Cascade("x").with_training(folde=""),
            "CascadeTraining has no setting 'folde' (did you mean 'folder'",
        ),
    ],
)
def test_misspelt_names(make, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        make()


def test_heads_learn_at_the_rate_of_the_encoder_unless_given():
    assert Training(learning_rate=1e-3).rate_of_heads == 1e-3
    assert Training(learning_rate=1e-3, head_learning_rate=1e-2).rate_of_heads == 1e-2


def test_settings_are_values():
    assert Training(seed=3) == Training(seed=3) != Training() and len({Training(), Training()}) == 1
    with pytest.raises(AttributeError):
        Training().seed = 3
