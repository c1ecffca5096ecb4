"""The positions of relevant candidates under very many settings at once, from the scores of all heads. Numbers only.

A candidate that leaves at a head ranks behind all that go on there, so its final position is its place among the
candidates that reached that head. No measure needs more. Settings that begin alike share the work of their beginnings.
This is a fast path of the rule in :mod:`~pyterrier_cascade.early_exit.pruning`; the tests keep both equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyterrier_cascade.early_exit.groups import batches, slabs
from pyterrier_cascade.early_exit.policy import Plan

CELLS = 10_000_000
"""Settings times candidates that are computed at once."""


@dataclass(frozen=True)
class GridResult:
    """The fate of relevant candidates under each setting, and the cost of each setting.

    Attributes:
        positions: The final position of each relevant candidate, from 0, ``(n_settings, n_relevant)``.
        exits: The number of the head where each one left, the last head for those that reached it, likewise.
        costs: The layers run, relative to the full encoder, summed over the questions ``(n_settings,)``.
        token_costs: The same by tokens ``(n_settings,)``.
    """

    positions: np.ndarray
    exits: np.ndarray
    costs: np.ndarray
    token_costs: np.ndarray


def run_grid(
    scores: np.ndarray,
    questions: np.ndarray,
    weights: np.ndarray,
    relevant: np.ndarray,
    plans: Sequence[Plan],
    shares: np.ndarray,
) -> GridResult:
    """Follows relevant candidates through a cascade under each plan.

    Args:
        scores: The score of each candidate at each head, candidates in the order of the input ``(n, n_heads)``.
        questions: The question of each candidate as a number, ascending ``(n,)``.
        weights: The share that each candidate has of its question's full cost, by inputs and by tokens ``(n, 2)``.
        relevant: The rows of the relevant candidates, ascending ``(n_relevant,)``.
        plans: The settings: plans with the same layers and batch size, and one
            :class:`~pyterrier_cascade.early_exit.rules.base.SizeRule` after each head but the last.
        shares: The share of the full encoder that is run to come from one head to the next ``(n_heads,)``.
    """
    settings = [[rule for (rule,) in plan.rules[:-1]] for plan in plans]
    distinct = list(dict.fromkeys(rule for setting in settings for rule in setting))
    number = {rule: i for i, rule in enumerate(distinct)}
    codes = np.array([[number[rule] for rule in setting] for setting in settings], dtype=np.int64)
    parts = slabs(questions, max(1, CELLS // len(settings)))
    found = []
    for part in parts:
        inside = relevant[slice(*np.searchsorted(relevant, [part.start, part.stop]))] - part.start
        groups = batches(questions[part], plans[0].batch_size)
        sizes = np.arange(np.bincount(groups - groups[0]).max() + 1)
        kept = np.array([rule.n_kept(sizes) for rule in distinct], dtype=np.int32)
        found.append(_run_part(scores[part], questions[part], groups, weights[part], inside, codes, kept, shares))
    positions, exits, costs = zip(*found, strict=True)
    return GridResult(np.concatenate(positions, 1), np.concatenate(exits, 1), *sum(costs).T)


def _run_part(scores, questions, groups, weights, relevant, codes, kept, shares):
    by_group, by_question = _Segments(groups), _Segments(questions)
    alive = np.ones((1, len(scores)), dtype=bool)
    positions = np.zeros((1, len(relevant)), dtype=np.int32)
    exits = np.full((1, len(relevant)), len(shares) - 1, dtype=np.int8)
    costs = np.zeros((1, weights.shape[1]))
    setting_of = np.zeros(len(codes), dtype=np.int64)
    batched = by_group.n != by_question.n
    for head, share in enumerate(shares):
        # Equal scores stand as the heads before have them.
        keys = -scores[:, : head + 1].T
        order = np.lexsort((*keys, groups))
        passing, before_this = alive[:, order], alive[:, relevant]
        counted, before, sizes = by_group.counted(passing)
        # Rounded, so that shares that add up to whole questions are whole numbers.
        costs = costs + share * (alive @ weights).round(9)
        whole = np.lexsort((*keys, questions)) if batched else order
        last = head == len(shares) - 1
        if last or not batched:
            places, _ = by_question.places(relevant, whole, alive[:, whole] if batched else passing)
        if last:
            positions = np.where(before_this, places, positions)
            break
        # The next step of each setting, and the prefix of steps that it goes on from.
        steps, setting_of = np.unique(np.stack([setting_of, codes[:, head]], 1), axis=0, return_inverse=True)
        setting_of = setting_of.ravel()
        prefix, step = steps.T
        limit = before[prefix] + kept[step[:, None], sizes[prefix]]
        goes_on = passing[prefix] & (counted[prefix] <= limit[:, by_group.numbers])
        if batched:
            # All candidates that go on, of whatever batch, rank before all that leave.
            leaves = np.empty_like(goes_on)
            leaves[:, order] = passing[prefix] & ~goes_on
        alive = np.empty_like(goes_on)
        alive[:, order] = goes_on
        if batched:
            _, ahead = by_question.places(relevant, whole, alive[:, whole])
            places, _ = by_question.places(relevant, whole, leaves[:, whole])
            places = places + ahead
        else:
            places = places[prefix]
        leaves_here = before_this[prefix] & ~alive[:, relevant]
        positions = np.where(leaves_here, places, positions[prefix])
        exits = np.where(leaves_here, np.int8(head), exits[prefix])
        costs = costs[prefix]
    return positions[setting_of], exits[setting_of], costs[setting_of]


class _Segments:
    """Questions, or batches of them, that stand one behind the other.

    Args:
        numbers: The segment of each candidate, ascending ``(n,)``.
    """

    def __init__(self, numbers: np.ndarray):
        self.starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1))
        self.sizes = np.diff(self.starts, append=len(numbers))
        self.n = len(self.starts)
        self.numbers = np.repeat(np.arange(self.n), self.sizes)

    def counted(self, flags: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Counts flags that are set, for each prefix.

        Args:
            flags: ``(n_prefixes, n)``.

        Returns:
            The number of flags set up to each place ``(n_prefixes, n)``; before each segment, and in each segment
            ``(n_prefixes, n_segments)``.
        """
        counted = np.cumsum(flags, axis=1, dtype=np.int32)
        ends = counted[:, self.starts + self.sizes - 1]
        before = np.concatenate([np.zeros_like(ends[:, :1]), ends[:, :-1]], 1)
        return counted, before, ends - before

    def places(self, rows: np.ndarray, order: np.ndarray, flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the places of some rows among the set rows of their segment, from 0, and how many rows are set there.

        Args:
            rows: The rows ``(n_rows,)``.
            order: All rows in the order that counts, segment by segment ``(n,)``.
            flags: The rows that are set, in this order ``(n_prefixes, n)``.
        """
        counted, before, sizes = self.counted(flags)
        at = np.empty_like(order)
        at[order] = np.arange(len(order))
        at = at[rows]
        segment = self.numbers[at]
        return counted[:, at] - before[:, segment] - 1, sizes[:, segment]
