"""The settings, and the losses of a question by hand (HR-12 to HR-18)."""

import math

import pytest
import torch
from torch import tensor

from pyterrier_cascade import HierarchicalTraining
from pyterrier_cascade.hierarchical.training import joint_loss, list_loss, question_losses

SCORES, LABELS = tensor([3.0, 1.0, 2.5, 0.0, 1.5]), tensor([1, 1, 0, 0, 0])
"""Two positives and three negatives, the paper's example about batches."""


def loss_of(level: str, output: torch.Tensor, labels: torch.Tensor, **settings) -> float:
    output = output if output.dim() == 2 else output[:, None]
    losses = question_losses({level: output}, {level: level}, labels, HierarchicalTraining(**settings))
    return losses[level].item()


def test_point():
    """Eq. 6: the mean of ln 2 (even odds) and ln(1 + e^-2)."""
    loss = loss_of("point", tensor([[1.0, 1.0], [2.0, 0.0]]), tensor([1, 0]))
    assert loss == pytest.approx((math.log(2) + math.log(1 + math.exp(-2))) / 2)


def test_all_pairs():
    """Six pairs: 3 exceeds 2.5, 0, 1.5 by .5, 3, 1.5; 1 exceeds them by -1.5, 1, -.5. M=1: .5+0+0+2.5+0+1.5."""
    assert loss_of("pair", SCORES, LABELS, margin=1.0, sigmoid=False) == pytest.approx(4.5 / 6)


def test_hardest_negative():
    """Two pairs, not three as the paper's example counts (HR-14): .5 + 2.5 against 2.5, the mean over 2."""
    assert loss_of("pair", SCORES, LABELS, margin=1.0, pairs="hardest", sigmoid=False) == pytest.approx(3 / 2)


@pytest.mark.parametrize("pairs", ["all", "hardest"])
def test_pairs_through_a_sigmoid(pairs):
    """The paper's way on WikiQA (HR-15): sigmoids of ln 3 and 0 are .75 and .5; .8 - .25."""
    scores = tensor([math.log(3), 0.0])
    assert loss_of("pair", scores, tensor([1, 0]), margin=0.8, pairs=pairs) == pytest.approx(0.55)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_list_with_one_positive(n):
    """HR-16: -log p_pos / n."""
    scores = torch.arange(float(n))
    labels = torch.zeros(n, dtype=torch.long)
    labels[0] = 1
    log_p = -math.log(sum(math.exp(value) for value in range(n)))
    assert list_loss(scores, labels).item() == pytest.approx(-log_p / n)


def test_list_with_two_positives():
    """Y = (1/2, 1/2, 0), p = (1/2, 1/4, 1/4): KL(Y || p) = ln(2) / 2, over three candidates."""
    scores = torch.log(tensor([2.0, 1.0, 1.0]))
    assert list_loss(scores, tensor([1, 1, 0])).item() == pytest.approx(math.log(2) / 2 / 3)
    assert list_loss(torch.zeros(2), tensor([1, 1])).item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1], [0], [1]], ids=str)
def test_questions_of_one_class(labels):
    """HR-18: no pairs without negatives or positives, no list without positives; no NaN, in gradients neither."""
    labels = tensor(labels)
    outputs = {
        "point": torch.randn(len(labels), 2, requires_grad=True),
        "pair": torch.randn(len(labels), 1, requires_grad=True),
        "list": torch.randn(len(labels), 1, requires_grad=True),
    }
    for settings in (HierarchicalTraining(), HierarchicalTraining.for_trecqa()):
        losses = question_losses(outputs, {level: level for level in outputs}, labels, settings)
        assert losses["pair"].item() == 0 and losses["point"].item() > 0
        assert (losses["list"].item() == 0) == (not labels.any() or len(labels) == 1)
        joint = joint_loss(losses, {level: level for level in outputs}, settings)
        for gradient in torch.autograd.grad(joint, list(outputs.values())):
            assert torch.isfinite(gradient).all()


def test_joint():
    """Eq. 10 with WikiQA's weights 2, 1, 1 and TREC-QA's 1, 1, 1; one objective has no weight (HR-17, HR-27)."""
    losses = {"point": tensor(1.0), "pair": tensor(10.0), "list": tensor(100.0)}
    own = {level: level for level in losses}
    assert joint_loss(losses, own, HierarchicalTraining()).item() == 112
    assert joint_loss(losses, own, HierarchicalTraining.for_trecqa()).item() == 111
    assert joint_loss({"point": tensor(3.0)}, own, HierarchicalTraining()).item() == 3
    assert joint_loss(losses, dict.fromkeys(losses, "list"), HierarchicalTraining(list_weight=0.5)).item() == 55.5


def test_a_level_has_the_loss_of_its_objective():
    outputs = {"point": SCORES[:, None], "list": SCORES[:, None] * 2}
    losses = question_losses(outputs, {"point": "list", "list": "list"}, LABELS, HierarchicalTraining())
    assert losses["point"].item() == list_loss(SCORES, LABELS).item()
    assert losses["list"].item() == list_loss(SCORES * 2, LABELS).item()


def test_the_papers_settings():
    """HR-8, HR-15, HR-17, HR-30."""
    wikiqa, trecqa = HierarchicalTraining(), HierarchicalTraining.for_trecqa(seed=3)
    assert (wikiqa.learning_rate, wikiqa.embedding_rate, wikiqa.questions_per_batch, wikiqa.patience) == (
        5e-4, 5e-5, 30, 10,
    )  # fmt: skip
    assert (wikiqa.pairs, wikiqa.sigmoid, wikiqa.margin, wikiqa.point_weight) == ("all", True, 0.8, 2)
    assert (trecqa.pairs, trecqa.sigmoid, trecqa.margin, trecqa.point_weight) == ("hardest", False, 1, 1)
    assert trecqa.embedding_rate is None and trecqa.learning_rate == 5e-4 and trecqa.seed == 3
    assert eval(repr(trecqa)) == trecqa


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": "some"}, "pairs must be one of all, hardest, not 'some'"),
        ({"questions_per_batch": 0}, "questions_per_batch must be a whole number from 1, not 0"),
        ({"embedding_rate": 0}, "embedding_rate must be a number above 0, or None for frozen vectors, not 0"),
        ({"margin": 0.0}, "margin must be a number above 0, not 0.0"),
        (
            {"list_weight": -1.0},
            r"the weights of the levels must be numbers from 0, and one above 0, but they are \(2.0, 1.0, -1",
        ),
        (
            {"point_weight": float("nan")},
            r"the weights of the levels must be numbers from 0, and one above 0, but they are \(nan, 1.0, 1",
        ),
        (
            {"embedding_rate": float("inf")},
            "embedding_rate must be a number above 0, or None for frozen vectors, not i",
        ),
        ({"margin": True}, "margin must be a number above 0, not True"),
        ({"sigmoid": "no"}, "sigmoid must be True or False, not 'no'"),
        ({"head_learning_rate": 1e-3}, "head_learning_rate=0.001 has no use in a hierarchical ranker: embedding_rate"),
        ({"negatives": 4}, "negatives=4 has no use in a hierarchical ranker: it is trained on all candidates"),
        ({"accumulate": 2}, "accumulate=2 has no use in a hierarchical ranker: .*; leave it at 1"),
        (
            {"evaluations_per_epoch": 2},
            "evaluations_per_epoch=2 has no use in a hierarchical ranker: it is measured after every epoch; leave",
        ),
        ({"epochs": 0}, "epochs must be a whole number and at least 1, not 0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        HierarchicalTraining(**settings)
