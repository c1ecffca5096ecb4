"""Every loss of the package: on single candidates, on pairs, on a question's list, and from a later head."""

import torch
import torch.nn.functional as F

PAIRS = ("all", "hardest")
"""The two methods of :func:`pair_hinge`."""


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns the mean cross-entropy on {0, 1} (TA-2, CT-18, DC-7, HR-12).

    Args:
        logits: ``(n, 2)``, ``(n, 1)`` or ``(n,)``; a single output is the log-odds of relevance.
        labels: 0 or 1, ``(n,)``.
    """
    logits = logits.float()
    if logits.dim() == 2 and logits.shape[1] == 2:
        return F.cross_entropy(logits, labels.long())
    return F.binary_cross_entropy_with_logits(logits.flatten(), labels.float())


def pair_hinge(
    scores: torch.Tensor, labels: torch.Tensor, margin: float, pairs: str = "all", sigmoid: bool = False
) -> torch.Tensor:
    """Returns the mean hinge loss over pairs of a positive and a negative of one question (HR-13 to HR-15).

    A question without positives or without negatives has no pairs, and its loss is 0 (HR-18).

    Args:
        scores: The scores of the question's candidates, ``(n,)``.
        labels: 0 or 1, ``(n,)``.
        margin: The least lead of a positive over a negative that costs nothing.
        pairs: ``"all"`` pairs, or ``"hardest"``: each positive with the negative that has the highest score. The mean
            is over the pairs used. With ``"hardest"`` these are k for k positives, as the definition says; the paper's
            example counts as many as there are negatives (HR-14).
        sigmoid: Whether the scores pass through a sigmoid first (HR-15).
    """
    scores = scores.sigmoid() if sigmoid else scores
    positive, negative = scores[labels == 1], scores[labels == 0]
    if not len(positive) or not len(negative):
        return scores.sum() * 0
    if pairs == "hardest":
        negative = negative.max()[None]
    return (margin - (positive[:, None] - negative[None])).clamp(min=0).mean()


def list_divergence(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Returns KL(target || softmax(scores)) over the candidates of one question (HR-16, and DC-BERT's list losses).

    Args:
        scores: The scores of the question's candidates, ``(n,)``.
        target: The wanted distribution, ``(n,)``, which sums to 1: the labels divided by their sum, or the softmax of a
            teacher's scores.
    """
    return F.kl_div(scores.log_softmax(0), target, reduction="sum")


def distillation(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Returns the mean KL divergence of a head's softened classes from those of a later head, times temperature².

    No gradient reaches the later head.

    Args:
        student: The head's logits, ``(n, outputs)``, of one or two classes.
        teacher: The later head's logits, ``(n, outputs)``.
        temperature: The divisor of both logits. The factor temperature² keeps the size of the gradient (Hinton et al.,
            2015).
    """

    def log_classes(logits: torch.Tensor) -> torch.Tensor:
        logits = logits.float()
        if logits.shape[1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], 1)
        return F.log_softmax(logits / temperature, 1)

    divergence = F.kl_div(log_classes(student), log_classes(teacher.detach()), reduction="batchmean", log_target=True)
    return divergence * temperature**2
