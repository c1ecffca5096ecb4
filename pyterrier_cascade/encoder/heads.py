"""Heads: modules that score inputs by the states of a layer."""

import copy
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Head:
    """A module that scores inputs by the states of a layer.

    Attributes:
        layer: The number of the layer whose states the head reads, from 1.
        pooling: The part of the states that the head reads, one of
            :data:`~pyterrier_cascade.encoder.layout.POOLINGS`.
        module: The module, from pooled states ``(n, width)`` to scores ``(n,)``.
    """

    layer: int
    pooling: str
    module: nn.Module

    def to(self, device: torch.device) -> "Head":
        """Returns a copy for inference on a device."""
        return Head(self.layer, self.pooling, copy.deepcopy(self.module).to(device).eval())


class Relevance(nn.Module):
    """A classifier in the form that the engine runs: from pooled states ``(n, width)`` to scores ``(n,)``.

    The scores are the log-odds of relevance.

    Args:
        module: The classifier, from pooled states ``(n, width)`` to logits ``(n, 1)`` or ``(n, 2)``.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Returns the log-odds of relevance, ``(n,)``, for pooled states ``(n, width)``."""
        return log_odds(self.module(pooled))


def log_odds(logits: torch.Tensor) -> torch.Tensor:
    """Returns the log-odds of relevance, ``(n,)``, from logits ``(n, 1)`` or ``(n, 2)``.

    They rank inputs like p(positive) (CT-12). But p(positive) rounds to 1 for many good inputs, which would then tie.
    """
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
