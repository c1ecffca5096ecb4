"""Who goes on after a head, and what comes of those who do not (CT-24 to CT-28). Numbers only."""

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from numbers import Integral, Real

import numpy as np

from pyterrier_cascade.encoder.engine import Keep

ROUNDINGS = ("floor", "nearest")
EXITED = ("below", "drop")

GAP = 1.0
"""How far the best of those that left at a head is put below the worst of those that went on."""

Cutoff = Fraction | int
"""A share of the candidates that goes on, or their number."""


def is_count(value: object) -> bool:
    """Returns whether a value is a whole number from 1."""
    return isinstance(value, Integral) and not isinstance(value, bool) and value >= 1


def are_layers(values: object) -> bool:
    """Returns whether values are numbers of layers in ascending order."""
    return np.ndim(values) == 1 and len(values) > 0 and all(map(is_count, values)) and bool((np.diff(values) > 0).all())


def share(alpha: float) -> Fraction:
    """Returns what a head keeps that drops a fraction ``alpha`` (CT-25)."""
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 <= alpha < 1:
        raise ValueError(f"alpha={alpha!r} is not a fraction to drop; give one from 0 up to, but not including, 1")
    return 1 - _meant(alpha)


def cutoff(kept: float) -> Cutoff:
    """Returns a cutoff as ``%`` takes it: an integer keeps so many, a number below 1 keeps such a share."""
    if is_count(kept):
        return int(kept)
    if isinstance(kept, Real) and not isinstance(kept, Integral) and 0 < kept < 1:
        return _meant(kept)
    raise ValueError(f"cutoff {kept!r}: give how many candidates to keep (1 or more), or a share between 0 and 1")


def _meant(number: float) -> Fraction:
    """Returns the fraction that a float stands for: ``0.29 * 100`` is 28.999..., and ``1 - 0.9`` a little below 0.1."""
    return Fraction(str(number)).limit_denominator(10**9)


def n_kept(sizes: np.ndarray, cutoff: Cutoff, rounding: str = "floor") -> np.ndarray:
    """Returns how many of each question's candidates go on; at least one of any.

    128 candidates at alpha=.3 become 90, 63, 45 and 32 with the floor of the discards, which the paper prints, and 90,
    63, 44 and 31 with the kept rounded to the nearest, halves up, which its example follows (CT-25).

    Args:
        sizes: The candidates of each question, ``(n_questions,)``.
        cutoff: What goes on.
        rounding: ``"floor"`` or ``"nearest"``.
    """
    if not isinstance(cutoff, Fraction):
        return np.minimum(sizes, cutoff)
    distinct, which = np.unique(sizes, return_inverse=True)
    extra = Fraction(1, 2) if rounding == "nearest" else 1 - Fraction(1, cutoff.denominator)
    kept = [min(n, max(1, math.floor(n * cutoff + extra))) for n in distinct.tolist()]
    return np.array(kept, dtype=np.int64)[which]


def places(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the place of each input in its group, from 0, and its group's size, where groups stand together."""
    starts = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    sizes = np.diff(starts, append=len(groups))
    return np.arange(len(groups)) - np.repeat(starts, sizes), np.repeat(sizes, sizes)


def best(groups: np.ndarray, cutoffs: Sequence[Cutoff], rounding: str) -> np.ndarray:
    """Returns which inputs go on, ``(n,)``, where groups stand together and each from its best to its worst."""
    place, kept = places(groups)
    for cutoff in cutoffs:
        kept = n_kept(kept, cutoff, rounding)
    return place < kept


def rule(groups: np.ndarray, cutoffs: Sequence[Sequence[Cutoff]], rounding: str) -> Keep:
    """Returns the rule for the engine: after each head the best of each group go on, in order of their scores.

    Equal scores keep the order that they had at the head before, and at the first that of the inputs (CT-2).

    Args:
        groups: The group of each input as a number: its question (CT-24), or its batch of a question (CT-26).
        cutoffs: What goes on after each head, one cutoff after the other.
        rounding: ``"floor"`` or ``"nearest"``.
    """

    def keep(stage: int, rows: np.ndarray, scores: np.ndarray) -> np.ndarray:
        rows = rows[np.lexsort((-scores, groups[rows]))]
        return rows[best(groups[rows], cutoffs[stage], rounding)]

    return keep


def in_turn(
    groups: np.ndarray,
    cutoffs: Sequence[Sequence[Cutoff]],
    rounding: str,
    scores_of: Callable[[int, np.ndarray], np.ndarray],
    prune: bool = True,
) -> np.ndarray:
    """Returns the score of each input at each head that it comes to, NaN behind that, ``(n, n_heads)``.

    Args:
        groups: As for :func:`rule`, as are the next two.
        cutoffs: What goes on after each head.
        rounding: ``"floor"`` or ``"nearest"``.
        scores_of: Of the number of a head and inputs: its scores of them.
        prune: Whether inputs leave at all.
    """
    keep = rule(groups, cutoffs, rounding)
    alive, scores = np.arange(len(groups)), np.full((len(groups), len(cutoffs)), np.nan)
    for head in range(len(cutoffs)):
        scores[alive, head] = scores_of(head, alive)
        if prune and head < len(cutoffs) - 1:
            alive = keep(head, alive, scores[alive, head])
    return scores


def batches(questions: np.ndarray, size: int | None) -> np.ndarray:
    """Returns the batch of each input as a number: so many of a question's at a time, in order (CT-26).

    Args:
        questions: The question of each input as a number, ascending, ``(n,)``.
        size: The inputs of a batch; all of the question's if None.
    """
    if size is None:
        return questions
    place, _ = places(questions)
    return np.cumsum(place % size == 0)


def slabs(groups: np.ndarray, size: int) -> list[slice]:
    """Returns parts of inputs whose groups ascend, each of whole groups and of about ``size`` inputs."""
    starts = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    first = np.unique(starts // size, return_index=True)[1]
    edges = [*starts[first].tolist(), len(groups)]
    return [slice(start, end) for start, end in itertools.pairwise(edges)]


def final(questions: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns what a cascade says in the end.

    Those that came further rank above all that left before them; those that left at the same head rank by its score,
    equal ones by the order that they had at the head before (CT-28).

    Args:
        questions: The question of each input as a number, ``(n,)``; inputs in their own order.
        scores: The score at each head, NaN behind the one where an input left, ``(n, n_heads)``.

    Returns:
        The order of the inputs, question by question from the best to the worst, ``(n,)``; the number of the head
        where each left, ``(n,)``; and scores that fall from place to place in this order even as float32, in which
        they are evaluated, ``(n,)``. The scores of those that reach the last head are its own.
    """
    exits = (~np.isnan(scores)).sum(1) - 1
    order = np.lexsort((*-np.nan_to_num(scores).T, -exits, questions))
    own = scores[np.arange(len(scores)), exits].astype(np.float64)
    falling = np.empty_like(own)
    falling[order] = _distinct(questions[order], _stacked(questions[order], exits[order], own[order]))
    return order, exits, falling


def _stacked(questions: np.ndarray, exits: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns scores where each tier of a question, best first, lies below the one before."""
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
