"""Certification: the cheapest setting of a trace whose risk on new queries is bounded (Angelopoulos et al. 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_cascade.checks import is_number, shown
from pyterrier_cascade.early_exit.certificate import Certificate, last_passed, path_of, queries_needed
from pyterrier_cascade.early_exit.measure_loss import OtherMeasureLoss, risk_of
from pyterrier_cascade.early_exit.policy import Policy, policies_of
from pyterrier_cascade.early_exit.sweep import with_cuts

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.trace import Trace

STEPS = (91, 46, 31, 19, 10, 7, 4, 3, 2)
"""How many alphas from 0 to .9 the default settings may have for each head."""

MOST, MOST_OF_OTHERS = 3_000, 100
"""How many settings there are by default at most; with a measure that ir-measures computes for each of them."""


def certified(
    trace: "Trace",
    risk: Any,
    at_most: float,
    confidence: float,
    qrels: pd.DataFrame | None,
    settings: Sequence[Mapping[str, Any]] | None,
    ks: Sequence | None,
    seed: int,
    fixed: Mapping[str, Any],
) -> Certificate:
    """Returns a certificate; the arguments are those of ``Trace.certify``, ``fixed`` its further settings."""
    _check(at_most=at_most, confidence=confidence)
    risk = risk_of(risk, qrels)
    if settings is None:
        if "alpha" in fixed:
            raise ValueError(
                f"alpha={fixed['alpha']!r}: give settings=[{{'alpha': {fixed['alpha']!r}}}] to try this one"
            )
        most = MOST_OF_OTHERS if isinstance(risk, OtherMeasureLoss) else MOST
        n_cuts = len(with_cuts(trace, [{}], ks))
        settings = default_settings(len(Policy(**fixed).plan or trace.layers) - 1, max(1, most // n_cuts))
    settings = with_cuts(trace, settings, ks)
    policies = [Policy(), *policies_of(settings, fixed)]
    refuse_seen(trace)
    watched = risk.watched(trace)
    learned, tested = _halves(len(watched.questions), at_most, confidence, seed)
    losses, costs = risk.outcomes(trace, watched.part(learned), policies)
    path = path_of(losses.mean(1), costs)
    losses, costs = risk.outcomes(trace, watched.part(tested), [policies[one] for one in path])
    last, p = last_passed(losses, at_most, confidence, risk.binary)
    found = {"k": None} | asdict(policies[path[last]])
    front = trace.meta["front"] if found["k"] is not None else None
    return Certificate(
        settings={name: value for name, value in found.items() if name != "k"},
        cost=float(costs[last]),
        risk=str(risk),
        at_most=float(at_most),
        confidence=float(confidence),
        observed=float(losses[last].mean()),
        learned=len(learned),
        tested=len(tested),
        p_value=p,
        fingerprint=trace.meta["fingerprint"],
        k=found["k"],
        **({} if front is None else {"front": front["name"], "front_fingerprint": front["fingerprint"]}),
    )


def default_settings(n_drops: int, most: int = MOST) -> list[dict[str, Any]]:
    """Returns all combinations of some alphas from 0 to .9, as many alphas as there may be.

    With so many heads that even two alphas have too many combinations, all heads have the same alpha.

    Args:
        n_drops: The number of heads that drop candidates.
        most: How many settings there may be.
    """
    n_steps = next((steps for steps in STEPS if steps**n_drops <= most), None)
    alphas = [round(float(alpha), 4) for alpha in np.linspace(0, 0.9, n_steps or min(most, STEPS[0]))]
    if n_steps is None:
        return [{"alpha": alpha} for alpha in alphas]
    return [{"alpha": alpha} for alpha in product(alphas, repeat=n_drops)]


def refuse_seen(trace: "Trace") -> None:
    """Raises where the ranker's heads learned from a question of the trace."""
    if n_seen := int(trace.seen.sum()):
        first = int(np.argmax(trace.seen))
        raise ValueError(
            f"the heads learned from {n_seen} of the trace's {len(trace.seen)} questions, the first of which is "
            f"{shown(trace.qids[first])} ({shown(trace.queries[first])}); these certify nothing, so "
            "trace candidates of other queries"
        )


def _halves(n: int, at_most: float, confidence: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places of the questions that choose and of those that test, each ascending."""
    needed = queries_needed(at_most, confidence)
    if n < 2 * needed:
        raise ValueError(
            f"{n} questions are too few for at_most={at_most} and confidence={confidence}: give a trace of at least "
            f"{2 * needed} ({needed} choose, and a setting that loses nothing in the other {needed} passes)"
        )
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[n // 2 :]), np.sort(order[: n // 2])


def _check(**shares: Any) -> None:
    for name, value in shares.items():
        if not (is_number(value, above=0) and value < 1):
            raise ValueError(f"{name}={value!r}: give a number between 0 and 1; neither end can be certified")
