"""Every loss once: of single candidates, of pairs, of a question's list, and of a later head."""

import torch
import torch.nn.functional as F

PAIRS = ("all", "hardest")


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns the mean cross-entropy on {0, 1} (TA-2, CT-18, DC-7, HR-12).

    Args:
        logits: ``(n, 2)``, ``(n, 1)`` or ``(n,)``; one output is the log-odds of relevance.
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
        scores: ``(n,)``.
        labels: 0 or 1, ``(n,)``.
        margin: By how much a positive shall exceed a negative.
        pairs: ``"all"``, or ``"hardest"``: each positive with the negative that has the highest score. The mean is over
            the pairs used, as the definition asks (k of them; the paper's example counts t, HR-14).
        sigmoid: Whether the scores pass through a sigmoid first.
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
        scores: ``(n,)``.
        target: The wanted distribution, ``(n,)``, which sums to 1: labels divided by their sum, or a teacher's softmax.
    """
    return F.kl_div(scores.log_softmax(0), target, reduction="sum")


def distillation(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Returns the mean KL divergence of a head's softened classes from a later head's, times temperature².

    No gradient reaches the later head.

    Args:
        student: Logits ``(n, outputs)`` of one or two classes.
        teacher: The later head's, likewise.
        temperature: The divisor of both; its square keeps the gradient's size (Hinton et al., 2015).
    """

    def classes(logits: torch.Tensor) -> torch.Tensor:
        logits = logits.float()
        if logits.shape[1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], 1)
        return F.log_softmax(logits / temperature, 1)

    divergence = F.kl_div(classes(student), classes(teacher.detach()), reduction="batchmean", log_target=True)
    return divergence * temperature**2
