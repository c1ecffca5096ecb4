"""Batches by tokens rather than by count, so that short inputs do not wait for long ones."""

import numpy as np


def token_budget(lengths: np.ndarray, budget: int, order: np.ndarray | None = None) -> list[np.ndarray]:
    """Returns batches of row numbers, each padded to at most ``budget`` tokens (a longer input stands alone).

    Args:
        lengths: The tokens of each input, shape ``(n,)``.
        budget: The most tokens of a batch, pads included.
        order: The order in which rows are taken; by length unless given.
    """
    order = np.argsort(lengths, kind="stable") if order is None else order
    batches, start, longest = [], 0, 0
    for position, length in enumerate(lengths[order].tolist()):
        longest = max(longest, length)
        if position > start and longest * (position - start + 1) > budget:
            batches.append(order[start:position])
            start, longest = position, length
    if start < len(order):
        batches.append(order[start:])
    return batches
