"""Where candidates of a trace end under many policies of any kind, and the policies' costs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_cascade.early_exit import ranking
from pyterrier_cascade.early_exit.grid import GridResult, run_grid
from pyterrier_cascade.early_exit.groups import batches, places
from pyterrier_cascade.early_exit.policy import Plan, Policy
from pyterrier_cascade.early_exit.pruning import scores_in_turn
from pyterrier_cascade.early_exit.rank_measures import NOWHERE
from pyterrier_cascade.early_exit.ranker import layers_run
from pyterrier_cascade.early_exit.rules.base import SizeRule

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.trace import Trace


def fates(trace: "Trace", rows: np.ndarray, relevant: np.ndarray, policies: Sequence[Policy]) -> GridResult:
    """Returns the fate of relevant candidates under each policy, and the cost of each policy.

    A relevant candidate that a policy removes (``exited="drop"``) is at :data:`NOWHERE`.

    Args:
        trace: The scores.
        rows: The candidates of some of its questions, whole questions, ascending ``(n,)``.
        relevant: Which of these rows are relevant, as numbers among them, ascending ``(n_relevant,)``.
        policies: The settings, of any layers and rules.
    """
    plans = [policy.resolve(trace.layers) for policy in policies]
    alike: dict[tuple, list[int]] = {}
    for number, plan in enumerate(plans):
        by_size = all(isinstance(rule, SizeRule) for rules in plan.rules[:-1] for rule in rules)
        alike.setdefault((run_grid if by_size else run_one_by_one, plan.layers, plan.batch_size), []).append(number)
    questions = np.cumsum(np.diff(trace.questions[rows], prepend=trace.questions[rows][:1]) != 0)
    positions = np.empty((len(plans), len(relevant)), np.int32)
    exits, costs, token_costs = np.empty_like(positions, np.int8), np.empty(len(plans)), np.empty(len(plans))
    for (run, layers, _), numbers in alike.items():
        shares = np.diff(layers_run(layers, trace.meta["reuses_encodings"]), prepend=0) / trace.meta["full_layers"]
        scores = trace.scores[:, [trace.layers.index(layer) for layer in layers]][rows]
        sizes = trace.inputs[rows], trace.tokens[rows]
        found = run(scores, questions, *sizes, relevant, [plans[one] for one in numbers], shares)
        removed = np.array([policies[one].exited == "drop" for one in numbers])[:, None] & (
            found.exits < len(layers) - 1
        )
        positions[numbers] = np.where(removed, NOWHERE, found.positions)
        exits[numbers], costs[numbers], token_costs[numbers] = found.exits, found.costs, found.token_costs
    return GridResult(positions, exits, costs, token_costs)


def run_one_by_one(
    scores: np.ndarray,
    questions: np.ndarray,
    inputs: np.ndarray,
    tokens: np.ndarray,
    relevant: np.ndarray,
    plans: Sequence[Plan],
    shares: np.ndarray,
) -> GridResult:
    """Returns what :func:`~pyterrier_cascade.early_exit.grid.run_grid` returns, for plans with rules of any kind.

    Args:
        scores: As for ``run_grid``, like all others.
        questions: Likewise.
        inputs: Likewise.
        tokens: Likewise.
        relevant: Likewise.
        plans: The settings.
        shares: Likewise.
    """
    run = np.cumsum(shares)
    weights = [weight / np.bincount(questions, weight)[questions] for weight in (inputs, tokens)]
    found = []
    for plan in plans:
        groups = batches(questions, plan.batch_size)
        reached = scores_in_turn(plan, groups, lambda head, alive: scores[alive, head])
        order, exits, _ = ranking.final(questions, reached)
        positions = np.empty_like(order)
        positions[order], _ = places(questions[order])
        costs = [(run[exits] * weight).sum() for weight in weights]
        found.append((positions[relevant], exits[relevant], *costs))
    positions, exits, costs, token_costs = map(np.array, zip(*found, strict=True))
    return GridResult(positions, exits, costs, token_costs)
