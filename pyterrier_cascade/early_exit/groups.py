"""Candidates of many questions in one array, where the candidates of a group stand together. Numbers only."""

import itertools

import numpy as np


def places(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the place of each candidate in its group, from 0, and the size of its group, each ``(n,)``.

    Args:
        groups: The group of each candidate as a number; equal numbers stand together, ``(n,)``.
    """
    starts = group_starts(groups)
    sizes = np.diff(starts, append=len(groups))
    return np.arange(len(groups)) - np.repeat(starts, sizes), np.repeat(sizes, sizes)


def group_starts(groups: np.ndarray) -> np.ndarray:
    """Returns where each group begins, ``(n_groups,)``."""
    return np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))


def batches(questions: np.ndarray, size: int | None) -> np.ndarray:
    """Returns the batch of each candidate as a number, ``(n,)``: a question's candidates in order, ``size`` at a time.

    A candidate competes within its batch (CT-26).

    Args:
        questions: The question of each candidate as a number, ascending, ``(n,)``.
        size: The most candidates of a batch; None makes each question one batch.
    """
    if size is None:
        return questions
    place, _ = places(questions)
    return np.cumsum(place % size == 0)


def slabs(groups: np.ndarray, size: int) -> list[slice]:
    """Returns slices of whole groups, each of about ``size`` candidates, so that memory stays bounded.

    Args:
        groups: The group of each candidate as a number, ascending, ``(n,)``.
        size: The number of candidates of a slice, about.
    """
    starts = group_starts(groups)
    first = np.unique(starts // size, return_index=True)[1]
    edges = [*starts[first].tolist(), len(groups)]
    return [slice(start, end) for start, end in itertools.pairwise(edges)]
