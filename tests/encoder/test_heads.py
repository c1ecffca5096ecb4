"""Heads and the log-odds of relevance."""

import math

import pytest
import torch
from torch import nn

from pyterrier_cascade.encoder.heads import Head, Relevance, log_odds
from tests.encoder import spans


@pytest.mark.parametrize("logits", [[[0.5, 2.5], [-1.0, 0.0]], [[2.0], [1.0]]], ids=["two classes", "one output"])
def test_log_odds_by_hand(logits):
    logits = torch.tensor(logits)
    assert log_odds(logits).tolist() == [2.0, 1.0]
    assert Relevance(nn.Identity())(logits).tolist() == [2.0, 1.0]


def test_log_odds_do_not_round_to_one():
    """CT-12: the order is that of p(positive)."""
    logits = torch.tensor([[0.0, 30.0], [0.0, 31.0]])
    assert logits.softmax(1)[:, 1].tolist() == [1.0, 1.0]
    assert log_odds(logits).tolist() == [30.0, 31.0]
    assert torch.sigmoid(log_odds(torch.tensor([[0.0, math.log(3)]]))).item() == pytest.approx(0.75)


def test_a_copy_for_inference():
    module = nn.Sequential(nn.Dropout(0.5), spans.Sum()).train()
    copy = Head(2, "mean", module).to(spans.CPU)
    assert (copy.layer, copy.pooling) == (2, "mean") and copy.module is not module
    assert module.training and not copy.module.training
