"""The losses of one question."""

import torch
import torch.nn.functional as F


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns the mean negative log-probability of the right class; logits ``(n, 2)``, labels ``(n,)``."""
    return F.cross_entropy(logits, labels)


def pair_hinge(
    scores: torch.Tensor, labels: torch.Tensor, margin: float, method: str = "all", sigmoid: bool = False
) -> torch.Tensor:
    """Returns the mean hinge loss over pairs of a positive and a negative (eq. 7 and 8, HR-13 to HR-15)."""
    scores = scores.sigmoid() if sigmoid else scores
    positive, negative = scores[labels == 1], scores[labels == 0]
    if not len(positive) or not len(negative):
        return scores.sum() * 0
    if method == "hardest":
        negative = negative.max()[None]
    return (margin - (positive[:, None] - negative[None])).clamp(min=0).mean()


def list_divergence(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Returns KL(target || softmax(scores)) over one list; both ``(n,)``."""
    return F.kl_div(scores.log_softmax(0), target, reduction="sum")
