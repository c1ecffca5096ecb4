"""The batches of a whole training, laid out before it starts.

Knowing every batch in advance makes the number of updates exact and lets a training that was killed skip to where it
stood, whatever the epoch.
"""

import numpy as np

POOL = 50
"""Batches that are sorted by length together: little padding, and still another mixture in every epoch."""


def epoch_batches(
    lengths: np.ndarray, labels: np.ndarray, questions: np.ndarray, *, budget: int, negatives: int | None, seed: int
) -> list[list[int]]:
    """Returns the batches of one epoch, in random order, each of inputs of similar length.

    Args:
        lengths: The tokens of each input, ``(n,)``.
        labels: 0 or 1, ``(n,)``.
        questions: The question of each input as a number, ``(n,)``.
        budget: The most tokens of a batch, pads included.
        negatives: How many negatives of each question are drawn; all if None.
        seed: Another one for every epoch.
    """
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(lengths))
    if negatives is not None:
        rows = rows[sampled(labels[rows], questions[rows], negatives)]
    pool = POOL * max(1, budget // max(1, int(lengths[rows].mean())))
    batches = []
    for start in range(0, len(rows), pool):
        part = rows[start : start + pool]
        batches += token_budget(lengths, budget, part[np.argsort(lengths[part], kind="stable")])
    return [batches[i].tolist() for i in rng.permutation(len(batches))]


def sampled(labels: np.ndarray, questions: np.ndarray, negatives: int) -> np.ndarray:
    """Returns which rows are kept: all positives and the first ``negatives`` negatives of each question."""
    order = np.lexsort((np.arange(len(labels)), labels, questions))
    first = np.searchsorted(questions[order], questions[order], side="left")
    kept = np.empty(len(labels), dtype=bool)
    kept[order] = (np.arange(len(labels)) - first < negatives) | (labels[order] == 1)
    return kept


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
