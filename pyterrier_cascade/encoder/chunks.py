"""Groups of inputs that are computed together: chunks of similar length, and waves of whole questions."""

import bisect

import numpy as np

SIZES = sorted({factor << shift for shift in range(14) for factor in (1, 3)})
"""The numbers of inputs that a padded chunk may have. They are few, because OpenVINO compiles for each new shape."""

ANY_SIZE = 0.5
"""The share of pads from which on a chunk is as large as the budget lets it be, with any number of inputs.

Such chunks are those of GPUs, which compute one after the other and compile nothing.
"""


def chunks(lengths: np.ndarray, budget: int, workers: int = 1, padding: float | None = None) -> list[np.ndarray]:
    """Returns chunks of input numbers; inputs of a chunk have similar length, and all workers get equally much work.

    Args:
        lengths: The tokens of each input, ``(n,)``.
        budget: The most tokens of a chunk; a longer input is a chunk of its own.
        workers: The number of chunks that are computed at the same time.
        padding: The largest share of pads in a chunk; None for layouts without pads.
    """
    order = np.argsort(lengths, kind="stable")
    if padding is None or padding < ANY_SIZE:
        budget = min(budget, -(-int(lengths.sum()) // workers))
    cut = _even(lengths[order], budget, workers) if padding is None else _padded(lengths[order], budget, padding)
    return [chunk for chunk in np.split(order, cut) if len(chunk)]


def _even(lengths: np.ndarray, budget: int, workers: int) -> np.ndarray:
    """Returns the places where ascending lengths are cut into equal shares, a multiple of the number of workers."""
    tokens = np.cumsum(lengths)
    if not len(tokens):
        return tokens
    n_chunks = -(-int(tokens[-1]) // (budget * workers)) * workers
    # An input belongs to the share that contains its middle token.
    return np.searchsorted(tokens - lengths / 2, tokens[-1] * np.arange(1, n_chunks) / n_chunks)


def _padded(lengths: np.ndarray, budget: int, padding: float) -> list[int]:
    """Returns the places where ascending lengths are cut into the largest blocks within the budget and few pads."""
    tokens, cut, start = np.concatenate([[0], np.cumsum(lengths)]).tolist(), [], 0
    longest = lengths.tolist()
    while start < len(longest):
        most = len(longest) - start
        for size in reversed(SIZES[: bisect.bisect_right(SIZES, most)] if padding < ANY_SIZE else range(1, most + 1)):
            block = size * longest[start + size - 1]
            if size == 1 or (block <= budget and block * (1 - padding) <= tokens[start + size] - tokens[start]):
                break
        start += size
        cut.append(start)
    return cut


def waves(lengths: np.ndarray, groups: np.ndarray, limit: int) -> list[np.ndarray]:
    """Returns waves of input numbers; a wave has whole groups and at most ``limit`` tokens.

    A group with more tokens than the limit is a wave of its own.

    Args:
        lengths: The tokens of each input, ``(n,)``.
        groups: The group of each input as a number, ``(n,)``, such as its question.
        limit: The most tokens of a wave.
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
