"""The batches of a whole training, laid out before it starts.

Knowing every batch in advance makes the number of updates exact and lets a training that was killed skip to where it
stood, whatever the epoch.
"""

import numpy as np

from pyterrier_cascade.encoder.batches import token_budget

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
