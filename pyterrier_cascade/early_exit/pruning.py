"""The one place where rules are applied: the engine, stages, cutoffs and traces all ask here who goes on (CT-24)."""

from collections.abc import Callable, Sequence

import numpy as np

from pyterrier_cascade.early_exit.policy import Plan
from pyterrier_cascade.early_exit.rules.base import Rule
from pyterrier_cascade.encoder.engine import Keep


def survivors(rules: Sequence[Rule], groups: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns the numbers of the candidates that go on after all rules, ``(n_kept,)``, in their order.

    Args:
        rules: Applied one after the other.
        groups: The group of each candidate; a group's candidates stand together, best first ``(n,)``.
        scores: Their scores ``(n,)``.
    """
    rows = np.arange(len(groups))
    for rule in rules:
        rows = rows[rule.survivors(groups[rows], scores[rows])]
    return rows


def keep_of(plan: Plan, groups: np.ndarray) -> Keep:
    """Returns the function that the engine calls after each head; it returns the survivors of some candidates.

    The survivors come best first. Equal scores keep the order that they had at the head before, and at the first head
    the order of the input (CT-2).

    Args:
        plan: The rules of each head.
        groups: The group of each candidate as a number: its question (CT-24), or its batch of a question (CT-26).
    """

    def keep(head: int, rows: np.ndarray, scores: np.ndarray) -> np.ndarray:
        order = np.lexsort((-scores, groups[rows]))
        rows, scores = rows[order], scores[order]
        return rows[survivors(plan.rules[head], groups[rows], scores)]

    return keep


def scores_in_turn(
    plan: Plan, groups: np.ndarray, scores_of: Callable[[int, np.ndarray], np.ndarray], prune: bool = True
) -> np.ndarray:
    """Returns the score of each candidate at each head that it reaches, NaN behind that, ``(n, n_heads)``.

    Args:
        plan: The rules of each head.
        groups: As for :func:`keep_of`.
        scores_of: Given the number of a head and candidates, returns the head's scores of them.
        prune: Whether candidates leave at all.
    """
    keep = keep_of(plan, groups)
    alive, scores = np.arange(len(groups)), np.full((len(groups), len(plan.layers)), np.nan)
    for head in range(len(plan.layers)):
        scores[alive, head] = scores_of(head, alive)
        if prune and head < len(plan.layers) - 1:
            alive = keep(head, alive, scores[alive, head])
    return scores
