"""Where heads stand: the set of layers whose cascade is the cheapest that keeps the last head's first answers."""

from itertools import product

import numpy as np

from pyterrier_cascade.early_exit.grid import run_grid
from pyterrier_cascade.early_exit.groups import group_starts, places
from pyterrier_cascade.early_exit.policy import Policy

MOST = 4
"""The number of heads before the last one, as many as the paper has (CT-7)."""

ALPHAS = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
AT_MOST = 0.05
"""The share of questions whose first answer may be lost."""

LEAST_GAIN = 0.005
"""The share of the full encoder's layers that a further head has to save."""


def cheapest_layers(scores: np.ndarray, questions: np.ndarray, layers: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the layers that should have heads, ascending; the last layer is always one of them.

    The set grows by one layer at a time, by the one that makes the cheapest cascade, until a further head gains nothing
    or there are :data:`MOST` before the last. The paper asks for such a choice as future work.

    Args:
        scores: The scores of heads at all layers, ``(n, n_layers)``, of questions that no head learned from.
        questions: The question of each candidate, ascending, ``(n,)``.
        layers: The layers of these heads.
    """
    first = _first_answers(scores[:, -1], questions)
    chosen, cost = (layers[-1],), 1.0
    while len(chosen) <= MOST:
        tried = {}
        for layer in set(layers) - set(chosen):
            these = tuple(sorted({*chosen, layer}))
            heads = [layers.index(one) for one in these]
            tried[these] = _cheapest(scores[:, heads], questions, first, these)
        if not tried or min(tried.values()) > cost - LEAST_GAIN:
            break
        chosen, cost = min(tried.items(), key=lambda item: item[1])
    return chosen


def _first_answers(scores: np.ndarray, questions: np.ndarray) -> np.ndarray:
    """Returns the rows of each question's best candidate, ascending, ``(n_questions,)``."""
    return np.lexsort((-scores, questions))[group_starts(questions)]


def _cheapest(scores: np.ndarray, questions: np.ndarray, first: np.ndarray, layers: tuple[int, ...]) -> float:
    """Returns the relative cost of the cheapest alphas that lose few enough first answers."""
    plans = [Policy(alpha=alphas).resolve(layers) for alphas in product(ALPHAS, repeat=len(layers) - 1)]
    steps = np.diff(layers, prepend=0) / layers[-1]
    _, sizes = places(questions)
    found = run_grid(scores, questions, np.stack([1 / sizes] * 2, 1), first, plans, steps)
    lost = (found.positions != 0).mean(1)
    return float(found.costs[lost <= AT_MOST].min() / len(first))
