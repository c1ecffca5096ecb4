"""Every loss against numbers that were computed by hand."""

import math

import pytest
import torch
from torch import tensor

from pyterrier_cascade.training.losses import cross_entropy, distillation, list_divergence, pair_hinge

LN2, LN3 = math.log(2), math.log(3)


@pytest.mark.parametrize(
    "logits",
    [tensor([[0.5, 2.5], [-1.0, 0.0]]), tensor([[2.0], [1.0]]), tensor([2.0, 1.0])],
    ids=["two classes", "one output", "log-odds"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cross_entropy(logits, dtype):
    """TA-2, CT-18: ln(1 + e^-2) for log-odds of 2 of a positive, ln(1 + e^1) for 1 of a negative, and their mean."""
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(1))) / 2
    assert cross_entropy(logits.to(dtype), tensor([1, 0])).item() == pytest.approx(expected, abs=1e-6)
    assert cross_entropy(logits.to(dtype), tensor([1.0, 0.0])).item() == pytest.approx(expected, abs=1e-6)


def test_cross_entropy_of_one_question():
    """HR-12, eq. 6: the mean of ln 2 (even odds) and ln(1 + e^-2), over positives and negatives alike."""
    loss = cross_entropy(tensor([[1.0, 1.0], [2.0, 0.0]]), tensor([1, 0]))
    assert loss.item() == pytest.approx((LN2 + math.log(1 + math.exp(-2))) / 2)


def test_cross_entropy_of_large_logits_is_finite():
    for logits in (tensor([[200.0], [-200.0]]), tensor([[-100.0, 100.0], [100.0, -100.0]])):
        assert cross_entropy(logits, tensor([0, 1])).item() == pytest.approx(200)
        assert cross_entropy(logits, tensor([1, 0])).item() == pytest.approx(0)


SCORES, LABELS = tensor([3.0, 1.0, 2.5, 0.0, 1.5]), tensor([1, 1, 0, 0, 0])
"""Two positives and three negatives, as in the paper's example about batches."""


@pytest.mark.parametrize(
    ("pairs", "margin", "expected"),
    [
        # Six pairs (HR-13): 3 exceeds 2.5, 0, 1.5 by .5, 3, 1.5; 1 exceeds them by -1.5, 1, -.5.
        ("all", 1.0, (0.5 + 0 + 0 + 2.5 + 0 + 1.5) / 6),
        ("all", 0.5, (0 + 0 + 0 + 2 + 0 + 1) / 6),
        # Two pairs, one for each positive, not three as the paper's example counts (HR-14).
        ("hardest", 1.0, (0.5 + 2.5) / 2),
        ("hardest", 2.0, (1.5 + 3.5) / 2),
    ],
)
def test_pair_hinge(pairs, margin, expected):
    assert pair_hinge(SCORES, LABELS, margin, pairs).item() == pytest.approx(expected)
    order = torch.tensor([4, 1, 3, 0, 2])
    assert pair_hinge(SCORES[order], LABELS[order], margin, pairs).item() == pytest.approx(expected)


@pytest.mark.parametrize("pairs", ["all", "hardest"])
def test_pair_hinge_through_a_sigmoid(pairs):
    """HR-15: sigmoids of ln 3 and 0 are .75 and .5, and .8 - .25 = .55."""
    assert pair_hinge(tensor([LN3, 0.0]), tensor([1, 0]), 0.8, pairs, sigmoid=True).item() == pytest.approx(0.55)


def test_only_the_hardest_negative_has_a_gradient():
    scores = SCORES.clone().requires_grad_()
    pair_hinge(scores, LABELS, 1.0, "hardest").backward()
    assert scores.grad.tolist() == [-0.5, -0.5, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("pairs", ["all", "hardest"])
@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1], [0], [1]], ids=str)
def test_a_question_of_one_class_has_no_pairs(labels, pairs):
    """HR-18: the loss is 0 and not NaN, and so is the gradient."""
    scores = torch.randn(len(labels), requires_grad=True)
    loss = pair_hinge(scores, tensor(labels), 1.0, pairs)
    loss.backward()
    assert loss.item() == 0 and scores.grad.tolist() == [0.0] * len(labels)


@pytest.mark.parametrize(
    ("scores", "target", "expected"),
    [
        # HR-16: p = (1/2, 1/4, 1/4). One positive: -ln p.
        ([LN2, 0.0, 0.0], [1.0, 0.0, 0.0], LN2),
        ([LN2, 0.0, 0.0], [0.0, 1.0, 0.0], 2 * LN2),
        # Two positives, Y = (1/2, 1/2, 0): 0 for the first, ln(2) / 2 for the second; 0 ln 0 = 0.
        ([LN2, 0.0, 0.0], [0.5, 0.5, 0.0], LN2 / 2),
        ([LN2, 0.0, 0.0], [0.5, 0.25, 0.25], 0.0),
        ([7.0], [1.0], 0.0),
    ],
)
def test_list_divergence(scores, target, expected):
    assert list_divergence(tensor(scores), tensor(target)).item() == pytest.approx(expected, abs=1e-6)
    assert list_divergence(tensor(scores) + 5, tensor(target)).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("temperature", "teacher", "student", "expected"),
    [
        # The teacher's classes are (1/4, 3/4), the student's even: (1/4) ln(1/2) + (3/4) ln(3/2).
        (1.0, LN3, 0.0, 0.25 * math.log(0.5) + 0.75 * math.log(1.5)),
        # At temperature 2 logits twice as large are the same classes, and the loss is 4 times as large.
        (2.0, 2 * LN3, 0.0, 4 * (0.25 * math.log(0.5) + 0.75 * math.log(1.5))),
        (2.0, LN3, LN3, 0.0),
    ],
)
def test_distillation(temperature, teacher, student, expected):
    """For one output, and for the two classes that it stands for."""
    one = tensor([[student]] * 3), tensor([[teacher]] * 3)
    two = tuple(torch.cat([torch.full_like(logits, 1.5), logits + 1.5], 1) for logits in one)
    for logits in (one, two):
        assert distillation(*logits, temperature).item() == pytest.approx(expected, abs=1e-6)


def test_distillation_leaves_the_teacher_alone():
    student, teacher = (torch.randn(4, 2, requires_grad=True) for _ in range(2))
    distillation(student, teacher, 2.0).backward()
    assert teacher.grad is None and student.grad.abs().sum() > 0
