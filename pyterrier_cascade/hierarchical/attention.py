"""Interaction and comparison: each word beside what it attends to on the other side (HR-2 to HR-4, HR-7)."""

import torch


def attend(
    similarity: torch.Tensor, mask: torch.Tensor | None = None, k_max: int | None = None, null: bool = False
) -> torch.Tensor:
    """Returns how much each word of one side attends to each of the other, ``(b, n, m)``; rows add up to 1.

    Args:
        similarity: ``(b, n, m)`` (eq. 2).
        mask: True for real words of the other side, ``(b, m)``; all are if None. Pads get no weight.
        k_max: Keep only so many of a row's weights, the greatest, and make them add up to 1 again (HR-7).
        null: Whether a zero vector stands beside the other side, to attend to nothing (HR-3, an option); a row then
            adds up to what it attends to real words.
    """
    if mask is not None:
        similarity = similarity.masked_fill(~mask[:, None], -torch.inf)
    if null:
        similarity = torch.cat([similarity, torch.zeros_like(similarity[..., :1])], -1)
    weights = similarity.softmax(-1)
    if k_max is not None and k_max < weights.shape[-1]:
        kept = weights.topk(k_max, -1)
        weights = torch.zeros_like(weights).scatter(-1, kept.indices, kept.values)
        weights = weights / weights.sum(-1, keepdim=True)
    return weights[..., :-1] if null else weights


def compare(
    question: torch.Tensor,
    answer: torch.Tensor,
    answer_mask: torch.Tensor | None = None,
    k_max: tuple[int | None, int | None] = (None, None),
    null: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns C^q ``(b, n, d)`` and C^a ``(b, m, d)``: each word times what it attends to (eq. 2 to 4).

    Equation 3 is printed with the words of the same side, whose number does not fit; a word attends to the other side,
    as in the code of Wang and Jiang (HR-3).

    Args:
        question: H^q, questions of one length, ``(b, n, d)``.
        answer: H^a, ``(b, m, d)``.
        answer_mask: True for real words, ``(b, m)``, or None.
        k_max: See :func:`attend`; for words of the question, and for words of the answer.
        null: See :func:`attend`.
    """
    similarity = question @ answer.transpose(1, 2)
    to_answer = attend(similarity, answer_mask, k_max[0], null)
    to_question = attend(similarity.transpose(1, 2), None, k_max[1], null)
    return (to_answer @ answer) * question, (to_question @ question) * answer
