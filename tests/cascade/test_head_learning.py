"""A head learns scores from states; agreement by hand."""

import numpy as np
import pytest
import torch

from pyterrier_cascade.cascade.head_learning import Distillation, _log_softmax, agreement, learn_head, split
from pyterrier_cascade.cascade.model import CascadeConfig, fresh_head


def test_agreement_by_hand():
    target = np.array([3.0, 2.0, 1.0, 5.0, 4.0])
    scores = np.array([3.0, 1.0, 2.0, 0.0, 1.0])
    correlation, first, ndcg = agreement(scores, target, np.array([0, 0, 0, 1, 1]))
    assert correlation == pytest.approx(np.corrcoef(scores, target)[0, 1])
    assert first == 0.5
    # The first question has gains 10, 8, 9, the second 9, 10.
    log3, ideal = np.log2(3), 10 + 9 / np.log2(3)
    one = (10 + 8 / log3 + 9 / 2) / (ideal + 8 / 2)
    assert ndcg == pytest.approx((one + (9 + 10 / log3) / ideal) / 2)


def test_agreement_looks_at_ten_places():
    target = -np.arange(15.0)
    scores = target.copy()
    scores[10:] = scores[10:][::-1]
    assert agreement(scores, target, np.zeros(15, int))[2] == 1.0
    assert agreement(np.zeros(15), target, np.zeros(15, int))[0] == 0.0


def test_a_segmented_softmax_is_the_softmax_of_each_question():
    scores = torch.tensor([1.0, 2.0, -3.0, 100.0, 101.0])
    owner = torch.tensor([0, 0, 0, 1, 1])
    wanted = torch.cat([scores[:3].log_softmax(0), scores[3:].log_softmax(0)])
    torch.testing.assert_close(_log_softmax(scores, owner), wanted)


def test_a_head_learns_whatever_the_scale_of_states_and_scores():
    rng = np.random.default_rng(0)
    states = (rng.normal(size=(2_000, 8)) * rng.uniform(0.01, 50, 8) + 7).astype(np.float32)
    target = 500 + 30 * np.tanh((states[:, 0] - 7) / states[:, 0].std())
    questions = np.repeat(np.arange(200), 10)
    held = np.repeat(split(200, Distillation()), 10)
    head = fresh_head(CascadeConfig(head_width=32, outputs=1, pooling="cls"), 8).eval()
    found = learn_head(head, lambda rows: states[rows], target, questions, held, Distillation())
    # The head itself takes raw states and gives raw scores.
    with torch.no_grad():
        np.testing.assert_allclose(head(torch.from_numpy(states))[:, 0].numpy(), found, rtol=1e-6)
    assert agreement(found[held], target[held], questions[held])[0] > 0.97
    assert abs(found[held] - target[held]).mean() < 5


def test_rounding_of_a_large_channel_that_never_changes_moves_no_score():
    """States of about 60 that differ in the fifth digit become one number in bf16; a head must not build on them."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(800, 32)).astype(np.float32)
    states[:, 7] = 60.1 + 1e-3 * rng.normal(size=800)
    questions, target = np.repeat(np.arange(80), 10), states[:, 0] + 0.5 * states[:, 1]
    torch.manual_seed(0)
    head = fresh_head(CascadeConfig(head_width=16, outputs=1, pooling="cls"), 32).eval()
    held_out = questions >= 60
    exact = learn_head(head, lambda rows: states[rows], target, questions, held_out, Distillation(learning_rate=1e-2))
    with torch.no_grad():
        rounded = head(torch.from_numpy(states).bfloat16().float())[:, 0].numpy()
    assert np.corrcoef(exact, target)[0, 1] > 0.9
    assert np.abs(rounded - exact).max() < 0.5 * exact.std() and np.corrcoef(rounded, exact)[0, 1] > 0.999


def test_a_head_that_diverges_in_every_pass_is_an_error():
    states = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    questions = np.repeat(np.arange(10), 4)
    head = fresh_head(CascadeConfig(head_width=32, outputs=1, pooling="cls"), 8).eval()
    settings = Distillation(learning_rate=1e37)
    with pytest.raises(
        FloatingPointError, match="NaN or infinite after each pass with learning_rate=1e\\+37; use a sm"
    ):
        learn_head(head, lambda rows: states[rows], states[:, 0], questions, questions > 6, settings)


def test_the_split_keeps_a_question_on_both_sides():
    assert [split(n, Distillation()).sum() for n in (2, 3, 5, 10, 100)] == [1, 1, 1, 2, 20]
    assert split(2, Distillation(held_out=0.99)).sum() == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs=0: give a whole number, 1 or more"),
        ({"learning_rate": 0}, "learning_rate=0: give a number above 0"),
        ({"learning_rate": float("inf")}, "learning_rate=inf: give a number above 0"),
        ({"sharpness": "1"}, "sharpness='1': give a number above 0"),
        ({"lists": float("nan")}, "lists=nan: give a number from 0"),
        ({"held_out": "0.2"}, "held_out='0.2': give a share between 0 and 1"),
        ({"seed": -1}, "seed=-1: give a whole number from 0"),
        ({"lists": -1}, "lists=-1: give a number from 0"),
        ({"held_out": 1}, "held_out=1: give a share between 0 and 1"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Distillation(**settings)
