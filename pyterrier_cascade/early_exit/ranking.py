"""The final ranking of a cascade: tiers by the head where candidates left, and scores that say this order (CT-28)."""

import numpy as np

GAP = 1.0
"""How far the best candidate that left at a head is put below the worst one that went on."""


def final(questions: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the final order of all candidates, the head where each one left, and final scores.

    A candidate that came further ranks above all that left before it. Candidates that left at the same head rank by
    its score, and equal scores by the order that they had at the head before (CT-28).

    Args:
        questions: The question of each candidate as a number, ``(n,)``; candidates in the order of the input.
        scores: The score at each head, NaN behind the one where a candidate left, ``(n, n_heads)``.

    Returns:
        The order of the candidates, question by question from the best to the worst, ``(n,)``; the number of the head
        where each left, ``(n,)``; and scores that fall from place to place in this order even as float32, the type in
        which results are evaluated, ``(n,)``. Candidates that reach the last head have its own scores.
    """
    exits = (~np.isnan(scores)).sum(1) - 1
    order = np.lexsort((*-np.nan_to_num(scores).T, -exits, questions))
    own = scores[np.arange(len(scores)), exits].astype(np.float64)
    falling = np.empty_like(own)
    falling[order] = _distinct(questions[order], _stacked(questions[order], exits[order], own[order]))
    return order, exits, falling


def _stacked(questions: np.ndarray, exits: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns scores that are shifted so that each tier of a question, best first, lies below the tier before."""
    if not len(scores):
        return scores
    new_question = np.diff(questions, prepend=questions[0] - 1) != 0
    starts = np.flatnonzero(new_question | (np.diff(exits, prepend=exits[0]) != 0))
    ends = np.append(starts[1:], len(scores)) - 1
    # From the top of each tier to the bottom of the one above, and the gap; a question's first tier stays where it is.
    shifts = np.cumsum(scores[np.append(0, ends[:-1])] - GAP - scores[starts])
    first = np.flatnonzero(new_question[starts])
    shifts -= np.repeat(shifts[first], np.diff(np.append(first, len(starts))))
    return scores + np.repeat(shifts, np.diff(np.append(starts, len(scores))))


def _distinct(questions: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns the nearest float32 that fall strictly within each question, for scores that fall."""
    bits = scores.astype(np.float32).view(np.int32).astype(np.int64)
    # Whole numbers in the order of the floats, a step from each to the next.
    keys = np.where(bits >= 0, bits, -(bits & 0x7FFFFFFF))
    place, number = np.arange(len(keys)), np.cumsum(np.diff(questions, prepend=questions[:1]) != 0)
    # A question starts below all that the ones before can leave behind.
    apart = number << 40
    keys = np.minimum.accumulate(keys + place - apart) + apart - place
    bits = np.where(keys >= 0, keys, -keys | 0x80000000).astype(np.uint32)
    return bits.view(np.float32).astype(np.float64)
