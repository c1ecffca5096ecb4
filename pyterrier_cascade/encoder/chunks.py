"""Which inputs are computed together: chunks of similar length, and waves of whole questions."""

import bisect

import numpy as np

SIZES = sorted({factor << shift for shift in range(14) for factor in (1, 3)})
"""How many inputs a padded chunk may have: few different shapes, for each new one is compiled for."""


def chunks(lengths: np.ndarray, budget: int, workers: int = 1, padding: float | None = None) -> list[np.ndarray]:
    """Returns the numbers of all inputs in chunks of similar length that keep every worker equally busy.

    Args:
        lengths: The tokens of each input, ``(n,)``.
        budget: The tokens of a chunk, at most (a longer input stands alone).
        workers: How many chunks are computed at the same time.
        padding: The share of a chunk that may be pads; None where chunks are not padded.
    """
    order = np.argsort(lengths, kind="stable")
    budget = min(budget, -(-int(lengths.sum()) // workers))
    cut = _even(lengths[order], budget, workers) if padding is None else _padded(lengths[order], budget, padding)
    return [chunk for chunk in np.split(order, cut) if len(chunk)]


def _even(lengths: np.ndarray, budget: int, workers: int) -> np.ndarray:
    """Returns where to cut ascending lengths into equal shares, as many as the workers can take in whole rounds."""
    tokens = np.cumsum(lengths)
    if not len(tokens):
        return tokens
    n_chunks = -(-int(tokens[-1]) // (budget * workers)) * workers
    # An input belongs to the share in which its middle lies.
    return np.searchsorted(tokens - lengths / 2, tokens[-1] * np.arange(1, n_chunks) / n_chunks)


def _padded(lengths: np.ndarray, budget: int, padding: float) -> list[int]:
    """Returns where to cut ascending lengths into the largest blocks that are within the budget and hold few pads."""
    tokens, cut, start = np.concatenate([[0], np.cumsum(lengths)]).tolist(), [], 0
    longest = lengths.tolist()
    while start < len(longest):
        for size in reversed(SIZES[: bisect.bisect_right(SIZES, len(longest) - start)]):
            block = size * longest[start + size - 1]
            if size == 1 or (block <= budget and block * (1 - padding) <= tokens[start + size] - tokens[start]):
                break
        start += size
        cut.append(start)
    return cut


def waves(lengths: np.ndarray, groups: np.ndarray, limit: int) -> list[np.ndarray]:
    """Returns the numbers of all inputs in waves of whole groups, each of at most ``limit`` tokens.

    A group with more tokens than that is a wave of its own.

    Args:
        lengths: The tokens of each input, ``(n,)``.
        groups: The group of each input as a number; its inputs are judged together and stay together.
        limit: The tokens of a wave.
    """
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    sizes = np.add.reduceat(lengths[order], starts) if len(starts) else starts
    ends, total = [], 0
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        if total and total + size > limit:
            ends.append(start)
            total = 0
        total += size
    return [wave for wave in np.split(order, ends) if len(wave)]
