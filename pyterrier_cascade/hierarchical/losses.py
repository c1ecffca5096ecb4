"""The objectives of the three levels, of one question at a time (HR-12 to HR-18)."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F

METHODS = ("all", "hardest")


def point_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns the mean negative log-probability of the right class over a question's candidates (eq. 6, HR-12).

    Args:
        logits: ``(n, 2)``.
        labels: ``(n,)``, 0 or 1.
    """
    return F.cross_entropy(logits, labels)


def pair_loss(
    scores: torch.Tensor, labels: torch.Tensor, margin: float, method: str = "all", sigmoid: bool = False
) -> torch.Tensor:
    """Returns the mean hinge loss over pairs of a positive and a negative (eq. 7 and 8, HR-13 to HR-15).

    Without positives or without negatives there are no pairs, and the loss is 0 (HR-18).

    Args:
        scores: ``(n,)``.
        labels: ``(n,)``, 0 or 1.
        margin: By how much a positive shall exceed a negative.
        method: ``"all"`` pairs, the paper's first method; or ``"hardest"``, its second: each positive with the negative
            that scores highest. The mean is over the pairs used, as the definition asks: k of them, where the paper's
            example counts t.
        sigmoid: Whether scores pass through a sigmoid first.
    """
    scores = scores.sigmoid() if sigmoid else scores
    positive, negative = scores[labels == 1], scores[labels == 0]
    if not len(positive) or not len(negative):
        return scores.sum() * 0
    if method == "hardest":
        negative = negative.max()[None]
    return (margin - (positive[:, None] - negative[None])).clamp(min=0).mean()


def list_loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns KL(Y || p) divided by the number of candidates (eq. 9, HR-16).

    p is the softmax of the scores over the question's candidates, Y the labels divided by their sum. Printed is
    KL(p || Y), which is infinite wherever a label is 0; this is what its libraries compute. Without positives there is
    no Y, and the loss is 0 (HR-18).

    Args:
        scores: ``(n,)``.
        labels: ``(n,)``, 0 or 1.
    """
    if not labels.any():
        return scores.sum() * 0
    wanted = labels / labels.sum()
    return F.kl_div(scores.log_softmax(0), wanted, reduction="sum") / len(scores)


def question_losses(
    outputs: Mapping[str, torch.Tensor], objectives: Mapping[str, str], labels: torch.Tensor, settings
) -> dict[str, torch.Tensor]:
    """Returns each level's loss for one question.

    Args:
        outputs: For each level ``(n, 2)`` for the objective ``"point"``, else ``(n, 1)``.
        objectives: The loss of each level.
        labels: ``(n,)``, 0 or 1.
        settings: A :class:`~pyterrier_cascade.HierarchicalTraining`.
    """
    found = {}
    for level, output in outputs.items():
        match objectives[level]:
            case "point":
                found[level] = point_loss(output, labels)
            case "pair":
                found[level] = pair_loss(output[:, 0], labels, settings.margin, settings.pairs, settings.sigmoid)
            case "list":
                found[level] = list_loss(output[:, 0], labels)
    return found


def joint_loss(losses: Mapping[str, torch.Tensor], objectives: Mapping[str, str], settings) -> torch.Tensor:
    """Returns the weighted sum of the levels' losses (eq. 10, HR-17); a single objective needs no weight (HR-27).

    Args:
        losses: Each level's.
        objectives: The loss of each level, which names its weight.
        settings: A :class:`~pyterrier_cascade.HierarchicalTraining`.
    """
    if len(losses) == 1:
        return next(iter(losses.values()))
    return sum(getattr(settings, f"{objectives[level]}_weight") * loss for level, loss in losses.items())
