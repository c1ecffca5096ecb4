"""The batches of a whole training, laid out before it starts.

Because every batch is known in advance, the number of updates is exact, and a killed training can skip the batches that
it has already done.
"""

import numpy as np

POOL = 50
"""The number of batches whose inputs are sorted by length together.

Sorting keeps padding low. Sorting only a part of the data at a time keeps the batches of every epoch different.
"""


def epoch_batches(
    lengths: np.ndarray, labels: np.ndarray, questions: np.ndarray, *, budget: int, negatives: int | None, seed: int
) -> list[list[int]]:
    """Returns the batches of one epoch as lists of row numbers, in random order; inputs of a batch have similar length.

    Args:
        lengths: The tokens of each input, ``(n,)``.
        labels: 0 or 1, ``(n,)``.
        questions: The question of each input as a number, ``(n,)``.
        budget: The most tokens of a batch, pads included.
        negatives: The number of negatives that are drawn for each question; None takes all.
        seed: The seed, a different one for every epoch.
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
    """Returns a mask of the rows to keep, ``(n,)``: all positives, and each question's first negatives.

    Args:
        labels: 0 or 1, ``(n,)``.
        questions: The question of each row as a number, ``(n,)``.
        negatives: The number of negatives to keep for each question.
    """
    order = np.lexsort((np.arange(len(labels)), labels, questions))
    first = np.searchsorted(questions[order], questions[order], side="left")
    kept = np.empty(len(labels), dtype=bool)
    kept[order] = (np.arange(len(labels)) - first < negatives) | (labels[order] == 1)
    return kept


def token_budget(lengths: np.ndarray, budget: int, order: np.ndarray | None = None) -> list[np.ndarray]:
    """Returns batches of row numbers; each batch has at most ``budget`` tokens after padding (CT-21).

    An input that is longer than the budget is a batch of its own.

    Args:
        lengths: The tokens of each input, ``(n,)``.
        budget: The most tokens of a batch, pads included.
        order: The row numbers in the order in which they fill the batches; by length unless given.
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
