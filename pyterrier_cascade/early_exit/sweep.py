"""Sweeps: quality and cost of a cascade under many settings, computed from a trace (CT-61)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from numbers import Real
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade.early_exit.fates import fates
from pyterrier_cascade.early_exit.front import default_cuts
from pyterrier_cascade.early_exit.grid import GridResult
from pyterrier_cascade.early_exit.policy import FULL, Policy, policies_of
from pyterrier_cascade.early_exit.rank_measures import MEASURES, NOWHERE, Judgements
from pyterrier_cascade.measures.cost import RelativeCost, RelativeTokenCost, Survival
from pyterrier_cascade.measures.names import parse_measures

GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
COST = str(RelativeCost)
SETTINGS = ("k", "alpha", "settings")
"""The columns of a sweep that say what was tried."""


class Sweep:
    """A table of measures and costs under many settings; ``trace.sweep(qrels, measures)`` makes it.

    Choose on development questions and report on others::

        best = dev_trace.sweep(dev_qrels, [AP]).best(max_cost=0.5)
        pt.Experiment([bm25 >> cascade(alpha=best.alpha)], topics, qrels, [AP, RelativeCost])

    Args:
        frame: ``alpha`` or ``settings``, behind a front also ``k``, a column for each measure, and ``RelativeCost``; a
            row for each setting.
        full: The same for alpha = 0 without a front, which drops nothing.
        measure: The name of the measure that the methods use where none is given.
    """

    def __init__(self, frame: pd.DataFrame, full: pd.Series, measure: str):
        self.frame, self.full, self.measure = frame, full, measure

    def __len__(self) -> int:
        """Returns the number of settings."""
        return len(self.frame)

    def __repr__(self):
        """Returns the number of settings and the names of the measures."""
        return f"<Sweep of {len(self)} settings: {', '.join(self._measured)}>"

    @property
    def _measured(self) -> list[str]:
        """The names of the measures."""
        return [name for name in map(str, self.frame.columns) if name not in SETTINGS]

    def pareto(self, measure=None) -> pd.DataFrame:
        """Returns the settings on the Pareto front, by rising cost: no other setting is as cheap and better.

        Args:
            measure: Quality; the first measure unless given.
        """
        name = self._name(measure)
        ordered = self.frame.sort_values([COST, name], ascending=[True, False], kind="stable")
        before = ordered[name].cummax().shift(fill_value=-np.inf)
        return ordered[ordered[name] > before].reset_index(drop=True)

    def best(self, *, max_cost: float | None = None, max_loss: float | None = None, measure=None) -> pd.Series:
        """Returns the best setting that is cheap enough, or the cheapest that is good enough.

        Args:
            max_cost: The most relative cost, 0 to 1; the best within it is returned.
            max_loss: How much of the measure, as an absolute value, may be lost against alpha = 0; the cheapest that
                loses no more is returned.
            measure: Quality; the first measure unless given.
        """
        if (max_cost is None) == (max_loss is None):
            raise ValueError(f"give either max_cost or max_loss, not max_cost={max_cost!r} and max_loss={max_loss!r}")
        front, name = self.pareto(measure), self._name(measure)
        if max_cost is not None:
            found = front[front[COST] <= max_cost]
            if not len(found):
                raise ValueError(f"no setting costs {max_cost} or less; the cheapest costs {front[COST].min():.3f}")
            return found.iloc[-1]
        found = front[front[name] >= self.full[name] - max_loss]
        if not len(found):
            lost = self.full[name] - front[name].max()
            raise ValueError(f"no setting loses {max_loss} of {name} or less; the best loses {lost:.4f}")
        return found.iloc[0]

    def plot(self, measure=None, *, marked: Sequence = (0.3, 0.4, 0.5), ax=None):
        """Draws quality against cost, a point for each setting, and returns the axes.

        Args:
            measure: Quality; the first measure unless given.
            marked: Alphas, the same at every head, that are marked where the sweep has them.
            ax: Where to draw; a new figure unless given.
        """
        from pyterrier_cascade.early_exit.plots import quality_against_cost

        return quality_against_cost(self, self._name(measure), marked, ax)

    def _name(self, measure) -> str:
        name = self.measure if measure is None else str(measure)
        if name not in self.frame.columns:
            raise ValueError(f"{name} was not measured; there are {', '.join(self._measured)}")
        return name


def swept(
    trace,
    qrels: pd.DataFrame,
    measures,
    alphas: Sequence | None,
    settings: Sequence[Mapping[str, Any]] | None,
    ks: Sequence | None,
    fixed: Mapping[str, Any],
) -> Sweep:
    """Returns a sweep; the arguments are those of ``Trace.sweep``."""
    measures = parse_measures(measures)
    if settings is not None and alphas is not None:
        raise ValueError("alphas and settings exclude each other; give one of them")
    tried = _alphas(alphas, len(Policy(**fixed).plan or trace.layers) - 1) if settings is None else settings
    tried = with_cuts(trace, tried, ks)
    policies = [*policies_of([FULL], fixed), *policies_of(tried, fixed)]
    table = _fast_table(trace, qrels, measures, policies)
    for name, measure in {str(measure): measure for measure in measures}.items():
        if name not in table:
            table[name] = _one_by_one(trace, qrels, measure, policies)
    names = list(dict.fromkeys([*map(str, measures), COST]))
    frame = pd.DataFrame({name: table[name] for name in names})
    if settings is None:
        frame.insert(0, "alpha", pd.Series([one.alpha for one in policies], dtype=object))
    else:
        given = [{name: value for name, value in one.items() if name != "k"} for one in tried]
        frame.insert(0, "settings", pd.Series([FULL, *given], dtype=object))
    if trace.front is not None:
        frame.insert(0, "k", pd.Series([one.k for one in policies], dtype=object))
    first = next((name for name in names if name not in (COST, str(RelativeTokenCost))), COST)
    return Sweep(frame.iloc[1:].reset_index(drop=True), frame.iloc[0], first)


def with_cuts(trace, settings: Sequence[Mapping[str, Any]], ks: Sequence | None) -> Sequence[Mapping[str, Any]]:
    """Returns settings with each of some cuts behind the front of a trace, by default :func:`default_cuts`.

    Args:
        trace: The trace; without a front the settings stay as they are.
        settings: The settings; those that have a ``k`` of their own stay as they are.
        ks: The cuts; None among them stands for no front.
    """
    if isinstance(settings, str | Mapping) or not all(isinstance(one, Mapping) for one in settings):
        # Refused where they become policies.
        return settings
    own = ["k" in one for one in settings]
    if ks is None:
        if trace.front is None and not any(own):
            return settings
        ks = [None] if any(own) else default_cuts(trace.sizes)
    elif any(own):
        raise ValueError("ks and a setting's own k exclude each other; give one of them")
    if isinstance(ks, Real | str) or not len(ks):
        raise ValueError(f"ks={ks!r}: give a list of cuts, such as (20, 50, 100)")
    if any(own) or any(k is not None for k in ks):
        # Says what to do where there is no front.
        _ = trace.front_ranks
    return [one if k is None else {**one, "k": k} for k in ks for one in settings]


def _alphas(alphas: Sequence | None, n_drops: int) -> list[dict[str, Any]]:
    """Returns settings of alpha, by default those of the paper's grid (CT-61)."""
    if isinstance(alphas, Real):
        raise ValueError(f"alphas={alphas!r}: give a list of settings")
    alphas = list(product(GRID, repeat=n_drops)) if alphas is None else list(alphas)
    if not alphas:
        raise ValueError("alphas is empty; give at least one setting")
    return [{"alpha": alpha} for alpha in alphas]


def _fast_table(trace, qrels, measures, policies: list[Policy]) -> dict[str, np.ndarray]:
    """Returns the measures that follow from positions, for each policy."""
    rows, relevant, judged = judgements_of(trace, qrels)
    found = fates(trace, rows, relevant, policies)
    table = {COST: found.costs / judged.n_queries, str(RelativeTokenCost): found.token_costs / judged.n_queries}
    for measure in measures:
        if is_fast(measure):
            values = MEASURES[measure.NAME](found.positions, judged, measure.params.get("cutoff"))
            table[str(measure)] = values.mean(1)
        elif measure.NAME == Survival.NAME:
            table[str(measure)] = _survival(found, judged, measure["cutoff"], policies, trace.layers)
    return table


def is_fast(measure: ir_measures.Measure) -> bool:
    """Returns whether a measure follows from positions; one with settings such as other grades does not."""
    return measure.NAME in MEASURES and set(measure.params) <= {"cutoff"}


def judgements_of(trace, qrels: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, Judgements]:
    """Returns the rows of judged questions, which of these are relevant, and the judgements."""
    pt.validate.columns(qrels, includes=["qid", "docno", "label"])
    judged = set(qrels["qid"].astype(str))
    in_trace = np.array([qid in judged for qid in trace.qids], dtype=bool)
    if not in_trace.any():
        raise ValueError(f"the qrels judge none of the {len(trace.qids)} questions of the trace; are they its own?")
    positive = qrels[qrels["label"] > 0]
    grades = {
        (qid, docno): label
        for qid, docno, label in zip(
            positive["qid"].astype(str), positive["docno"].astype(str), positive["label"], strict=True
        )
    }
    rows = np.flatnonzero(in_trace[trace.questions])
    qids, docnos = trace.qids[trace.questions[rows]], trace.docnos[rows]
    gains = np.array([grades.get(pair, 0) for pair in zip(qids, docnos, strict=True)])
    relevant = np.flatnonzero(gains)
    # Questions of the trace first, in its order.
    numbers = {qid: number for number, qid in enumerate([*trace.qids[in_trace], *sorted(judged - set(trace.qids))])}
    found: list[list] = [[] for _ in numbers]
    for (qid, _), label in grades.items():
        found[numbers[qid]].append(label)
    queries = np.array([numbers[qid] for qid in qids[relevant]], dtype=np.int64)
    every = [np.sort(np.array(labels, dtype=float))[::-1] for labels in found]
    return rows, relevant, Judgements(queries, gains[relevant], every)


def _survival(
    found: GridResult, judged: Judgements, layer: int, policies: Sequence[Policy], heads: Sequence[int]
) -> np.ndarray:
    """Returns the share of queries with a relevant candidate that reaches a layer and is not removed."""
    layers = [np.array(policy.plan or heads) for policy in policies]
    reached = np.array([own[exits] >= layer for own, exits in zip(layers, found.exits, strict=True)])
    reached &= found.positions < NOWHERE
    return np.logical_or.reduceat(reached, judged.starts, axis=1).sum(1) / judged.n_queries


def _one_by_one(trace, qrels, measure, policies: list[Policy]) -> list[float]:
    """Returns a measure for each policy, computed by ir-measures from the results."""
    # The trace has its ids as strings.
    judgements, found = pt.model.to_ir_measures(qrels.astype({"qid": str, "docno": str})), []
    for policy in policies:
        results = pt.model.to_ir_measures(trace.results(**asdict(policy)))
        found.append(ir_measures.calc_aggregate([measure], judgements, results)[measure])
    return found
