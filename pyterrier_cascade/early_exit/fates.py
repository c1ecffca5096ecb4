"""Where candidates of a trace end under many policies of any kind, and the policies' costs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_cascade import frames
from pyterrier_cascade.early_exit import ranking
from pyterrier_cascade.early_exit.grid import GridResult, run_grid
from pyterrier_cascade.early_exit.groups import batches, group_starts, places
from pyterrier_cascade.early_exit.policy import Plan, Policy
from pyterrier_cascade.early_exit.pruning import scores_in_turn
from pyterrier_cascade.early_exit.rank_measures import NOWHERE
from pyterrier_cascade.early_exit.rules.base import SizeRule

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.trace import Trace


def fates(trace: "Trace", rows: np.ndarray, relevant: np.ndarray, policies: Sequence[Policy]) -> GridResult:
    """Returns the fate of relevant candidates under each policy, and the cost of each policy.

    A relevant candidate that the front's cut or a policy (``exited="drop"``) removes is at :data:`NOWHERE`.

    Args:
        trace: The scores.
        rows: The candidates of some of its questions, whole questions, ascending ``(n,)``.
        relevant: Which of these rows are relevant, as numbers among them, ascending ``(n_relevant,)``.
        policies: The settings, of any layers and rules.
    """
    plans = [policy.resolve(trace.layers) for policy in policies]
    alike: dict[tuple, list[int]] = {}
    for number, (policy, plan) in enumerate(zip(policies, plans, strict=True)):
        by_size = all(isinstance(rule, SizeRule) for rules in plan.rules[:-1] for rule in rules)
        kind = policy.k, run_grid if by_size else run_one_by_one, plan.layers, plan.batch_size
        alike.setdefault(kind, []).append(number)
    positions = np.full((len(plans), len(relevant)), NOWHERE, np.int32)
    exits, costs, token_costs = np.zeros_like(positions, np.int8), np.zeros(len(plans)), np.zeros(len(plans))
    for (k, run, layers, _), numbers in alike.items():
        entered = trace.entered(rows, k)
        if not len(entered):
            continue
        inside, columns = _followed(relevant, entered, len(rows))
        questions = np.cumsum(np.diff(trace.questions[rows[entered]], prepend=-1) != 0) - 1
        weights, begun = _weights(trace, rows[entered], questions, k)
        heads = [trace.layers.index(layer) for layer in layers]
        shares = np.diff(trace.layers_run(layers), prepend=0) / trace.meta["full_layers"]
        scores = trace.scores[:, heads][rows[entered]]
        found = run(scores, questions, weights, inside, [plans[one] for one in numbers], shares)
        removed = np.array([policies[one].exited == "drop" for one in numbers])[:, None] & (
            found.exits < len(layers) - 1
        )
        positions[np.ix_(numbers, columns)] = np.where(removed, NOWHERE, found.positions)
        exits[np.ix_(numbers, columns)] = found.exits
        costs[numbers], token_costs[numbers] = found.costs + begun[0], found.token_costs + begun[1]
    return GridResult(positions, exits, costs, token_costs)


def _followed(relevant: np.ndarray, entered: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places of relevant candidates among those that entered, ascending, and their own numbers.

    Args:
        relevant: Their rows.
        entered: The rows that entered, in the order of the input.
        n: The number of all rows.
    """
    place = np.full(n, -1)
    place[entered] = np.arange(len(entered))
    order = np.argsort(place[relevant], kind="stable")
    there = order[place[relevant][order] >= 0]
    return place[relevant][there], there


def _weights(
    trace: "Trace", rows: np.ndarray, questions: np.ndarray, k: int | float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the share that each candidate has of its question's full cost, and what the front spent in such shares.

    Args:
        trace: The scores.
        rows: The candidates that enter the cascade ``(n,)``.
        questions: Their questions as numbers from 0, ascending ``(n,)``.
        k: The front's cut; None without a front.

    Returns:
        The shares by inputs and by tokens ``(n, 2)``, and the sums over the questions of what the front spent ``(2,)``.
    """
    layers, size = trace.meta["full_layers"], trace.meta["layer_size"]
    full = layers * np.stack([trace.inputs[rows], trace.tokens[rows]], 1).astype(float)
    starts = group_starts(questions)
    whole, begun = np.add.reduceat(full, starts), np.zeros(2)
    if k is not None:
        *earlier, front_layers, front_size = trace.front_costs[trace.questions[rows[starts]]].T
        nothing = np.zeros(len(starts))
        own = [nothing, whole[:, 0], nothing, whole[:, 1]]
        spent = np.stack(frames.added(own, earlier, layers / front_layers, front_size / size), 1)
        whole, begun = spent[:, 1::2], (spent[:, ::2] / spent[:, 1::2]).sum(0)
    return full / whole[questions], begun


def run_one_by_one(
    scores: np.ndarray,
    questions: np.ndarray,
    weights: np.ndarray,
    relevant: np.ndarray,
    plans: Sequence[Plan],
    shares: np.ndarray,
) -> GridResult:
    """Returns what :func:`~pyterrier_cascade.early_exit.grid.run_grid` returns, for plans with rules of any kind.

    Args:
        scores: As for ``run_grid``, like all others.
        questions: Likewise.
        weights: Likewise.
        relevant: Likewise.
        plans: The settings.
        shares: Likewise.
    """
    run = np.cumsum(shares)
    found = []
    for plan in plans:
        groups = batches(questions, plan.batch_size)
        reached = scores_in_turn(plan, groups, lambda head, alive: scores[alive, head])
        order, exits, _ = ranking.final(questions, reached)
        positions = np.empty_like(order)
        positions[order], _ = places(questions[order])
        costs = [(run[exits] * weight).sum() for weight in weights.T]
        found.append((positions[relevant], exits[relevant], *costs))
    positions, exits, costs, token_costs = map(np.array, zip(*found, strict=True))
    return GridResult(positions, exits, costs, token_costs)
