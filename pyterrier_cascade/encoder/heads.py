"""Heads: modules that give scores after a layer."""

import copy
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Head:
    """A module that gives scores after a layer.

    Attributes:
        layer: The layer whose states it reads, from 1.
        pooling: How it reads them, one of :data:`~pyterrier_cascade.encoder.layout.POOLINGS`.
        module: From pooled states ``(n, width)`` to relevance ``(n,)``.
    """

    layer: int
    pooling: str
    module: nn.Module

    def to(self, device: torch.device) -> "Head":
        """Returns a copy for inference on a device."""
        return Head(self.layer, self.pooling, copy.deepcopy(self.module).to(device).eval())


class Relevance(nn.Module):
    """A classifier as the engine runs it: from pooled states ``(n, width)`` to the log-odds of relevance ``(n,)``.

    Args:
        module: From pooled states to logits ``(n, 1)`` or ``(n, 2)``.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Returns the log-odds of relevance."""
        return log_odds(self.module(pooled))


def log_odds(logits: torch.Tensor) -> torch.Tensor:
    """Returns the log-odds of relevance, ``(n,)``, from the logits of one or two classes.

    Their order is that of p(positive) (CT-12), without its rounding to 1, where many scores would tie.
    """
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
