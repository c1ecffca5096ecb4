"""Certificates: a bound on the risk of a setting for new queries, by Learn then Test (Angelopoulos et al. 2021).

The statistics of a certificate, on numbers alone. Some queries choose a path of settings from dear to cheap. Other
queries test the settings in this order, and the test ends at the first one that does not pass (fixed-sequence testing).
So each setting that passed has at most the risk asked for, with the confidence asked for over the draw of queries.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from pyterrier_cascade.early_exit.policy import FULL, Policy

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.ranker import EarlyExitRanker

STEP = 0.02
"""The cost from one setting of a path to the next, unless the Pareto front has more of them."""


@dataclass(frozen=True, repr=False)
class Certificate:
    """A setting of a cascade and the bound of its risk on new queries; ``trace.certify()`` makes it.

    It prints as a sentence, and ``cascade(**certificate.settings)`` runs the setting; behind a front,
    ``certificate.pipeline(cascade, front)`` does. The bound holds for queries and candidates of the same kind, and for
    these rankers only: their weights, ``max_length``, engine and precision.

    Attributes:
        settings: All settings of the policy, those at their defaults among them.
        cost: The mean :data:`~pyterrier_cascade.RelativeCost` of the tested queries.
        risk: The risk in words.
        at_most: The bound of the risk.
        confidence: The probability, over the draw of the tested queries, that the bound holds.
        observed: The mean loss of the tested queries.
        learned: The number of queries that chose the path of settings.
        tested: The number of queries that tested it.
        p_value: The p-value of the test that the setting passed.
        fingerprint: The hash of everything that the ranker's scores depend on.
        k: The cut behind the front: how many candidates go on, or which share; None where there is no front.
        front: The name of the front, or None.
        front_fingerprint: The hash of everything that the front's ranking depends on, or None.
    """

    settings: dict[str, Any]
    cost: float
    risk: str
    at_most: float
    confidence: float
    observed: float
    learned: int
    tested: int
    p_value: float
    fingerprint: str
    k: int | float | None = None
    front: str | None = None
    front_fingerprint: str | None = None

    def __repr__(self):
        """Returns the certificate as a sentence."""
        sure, bound = f"with {_percent(self.confidence)} confidence", f"{self.risk} is at most {_percent(self.at_most)}"
        if self._given == FULL and self.k is None:
            return (
                f"No setting that drops candidates passed the test on {self.tested} queries: for none is it sure, "
                f"{sure}, that {bound} on new queries of the same kind. The full cascade loses nothing and costs "
                f"{_percent(self.cost)} of the layers ({self.setting})."
            )
        behind = "" if self.k is None else f" behind {self.front}"
        return (
            f"W{sure[1:]}, {bound} on new queries of the same kind, at {_percent(self.cost)} of the layers with "
            f"{self.setting}{behind} "
            f"(on {self.tested} tested queries: {_percent(self.observed)}, p = {self.p_value:.2g})."
        )

    @property
    def setting(self) -> str:
        """The settings that are not at their defaults, as arguments of a call; behind a front, its cut first."""
        given = ({} if self.k is None else {"k": _plain(self.k)}) | self._given
        return ", ".join(f"{name}={value!r}" for name, value in given.items())

    def pipeline(self, cascade: "EarlyExitRanker", front: Any = None, loader: Any = None) -> Any:
        """Returns the certified pipeline: ``front % k >> cascade(**settings)``, or the cascade alone where k is None.

        Args:
            cascade: The ranker that the certificate is for, with any settings.
            front: The front that the certificate is for.
            loader: A transformer between the cut and the cascade, such as a text loader.

        Raises:
            ValueError: If the certificate is for another cascade or another front.
        """
        # Imported here because this module knows numbers alone.
        from pyterrier_cascade.early_exit.front import certified_pipeline

        return certified_pipeline(self, cascade, front, loader)

    @property
    def _given(self) -> dict[str, Any]:
        defaults = asdict(Policy())
        given = {name: _plain(value) for name, value in self.settings.items() if value != defaults[name]}
        return given or dict(FULL)

    def to_config(self) -> dict[str, Any]:
        """Returns the certificate as JSON keeps it."""
        given = {name: list(value) if isinstance(value, tuple) else value for name, value in self._given.items()}
        return asdict(self) | {"settings": given, "k": _plain(self.k)}

    @classmethod
    def from_config(cls, found: Mapping[str, Any]) -> "Certificate":
        """Returns the certificate that a configuration holds.

        Args:
            found: What :meth:`to_config` returned.
        """
        known = {name: found[name] for name in (field.name for field in fields(cls))}
        return cls(**known | {"settings": asdict(Policy(**found["settings"]))})


def path_of(risks: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Returns the numbers of the settings that are tested, from dear to cheap, after the full cascade.

    They are those of the Pareto front, where no other setting is as cheap and has less risk, and at each
    :data:`STEP` of cost the one with the least risk, the dearest of them. Without these steps the path would begin with
    the cheapest of many settings that lose nothing on the queries that choose. Where these are few, that setting is
    lucky rather than good, and the test would end at once.

    Args:
        risks: The risk of each setting on the queries that choose; the first is the full cascade's ``(n_settings,)``.
        costs: The cost of each setting ``(n_settings,)``.
    """
    by_cost = np.lexsort((risks, costs))
    least = np.minimum.accumulate(risks[by_cost])
    front = by_cost[np.append(True, least[1:] < least[:-1])]
    by_risk = np.lexsort((-costs, risks))
    levels = np.arange(costs[0] - STEP, costs.min(), -STEP)
    steps = [by_risk[np.argmax(costs[by_risk] <= level)] for level in levels]
    found = np.unique([*front, *steps])
    found = found[costs[found] < costs[0]]
    return np.append(0, found[np.lexsort((risks[found], -costs[found]))])


def last_passed(losses: np.ndarray, at_most: float, confidence: float, binary: bool) -> tuple[int, float]:
    """Returns the place of the last setting of a path that passes in fixed sequence, and its p-value.

    Args:
        losses: The losses of the tested queries under each setting, in the order of the path; the first setting is the
            full cascade, which loses nothing ``(n_settings, n_queries)``.
        at_most: The bound of the risk.
        confidence: The probability, over the draw of queries, with which the bound must hold.
        binary: Whether every loss is 0 or 1 by its definition.
    """
    n, passed = losses.shape[1], (0, 1.0)
    for place, total in enumerate(losses.sum(1)):
        p = p_value(float(total), n, at_most, binary)
        if p > 1 - confidence:
            break
        passed = place, p
    return passed


def p_value(total: float, n: int, at_most: float, binary: bool) -> float:
    """Returns the p-value of the hypothesis that the mean of a loss from 0 to 1 is above a bound.

    It is the exact binomial one for losses of 0 or 1, and that of Hoeffding and Bentkus for all others.

    Args:
        total: The sum of the losses.
        n: The number of queries.
        at_most: The bound.
        binary: Whether every loss is 0 or 1 by its definition.
    """
    # Imported here because the import of a ranker must not wait for it.
    from scipy.special import bdtr

    # A sum that rounding put just above a whole number counts as this number.
    tail = float(bdtr(math.ceil(total - 1e-9), n, at_most))
    if binary:
        return tail
    return min(1.0, math.exp(-n * _divergence(min(total / n, at_most), at_most)), math.e * tail)


def queries_needed(at_most: float, confidence: float) -> int:
    """Returns the least number of tested queries with which a setting without any loss passes.

    Args:
        at_most: The bound of the risk.
        confidence: The probability with which it must hold.
    """
    return math.ceil(math.log(1 - confidence) / math.log(1 - at_most) - 1e-9)


def _divergence(a: float, b: float) -> float:
    """Returns the relative entropy of two coins that show heads with these probabilities, the first not above b < 1."""
    heads = a * math.log(a / b) if a > 0 else 0.0
    return heads + (1 - a) * math.log((1 - a) / (1 - b))


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _plain(value: Any) -> Any:
    """Returns a setting as a number of Python, a tuple of such numbers, or as it is."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if value is None or isinstance(value, str):
        return value
    return int(value) if isinstance(value, Integral) else float(value)
