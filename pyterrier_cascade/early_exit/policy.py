"""The settings of early exit as one value, and the plan that follows from them for a model's heads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from pyterrier_cascade.checks import KnownSettings, check_choices, is_count
from pyterrier_cascade.early_exit.rules.base import Rule
from pyterrier_cascade.early_exit.rules.count import KeepCount
from pyterrier_cascade.early_exit.rules.fraction import ROUNDINGS, KeepFraction
from pyterrier_cascade.early_exit.rules.margin import KeepWithin
from pyterrier_cascade.forks import cached_property

EXITED = ("below", "drop")

FULL = {"alpha": 0.0}
"""The settings of the full cascade, which drops nothing."""


def _pruned_by(rule: type[Rule], default: Any) -> Any:
    """Declares a setting of :class:`Policy` that prunes by a rule. At its default it drops nothing."""
    return field(default=default, metadata={"rule": rule})


@dataclass(frozen=True)
class Plan:
    """The heads of one model that score candidates, and the rules that prune after each of them.

    Attributes:
        layers: The layers whose heads score, ascending.
        rules: The rules that prune after each head, applied one after the other; no rule lets everything through. Those
            behind the last head remove candidates, however the ones that left earlier are treated.
        batch_size: How many of a question's candidates compete at a time, in order; None for all of them (CT-26).
    """

    layers: tuple[int, ...]
    rules: tuple[tuple[Rule, ...], ...]
    batch_size: int | None = None

    @property
    def drops(self) -> bool:
        """Whether a candidate may leave before the last head."""
        return not all(rule.keeps_all for rules in self.rules[:-1] for rule in rules)


@dataclass(frozen=True)
class Policy(KnownSettings):
    """Who leaves early: all settings of a cascade that its weights do not decide, checked when the value is made.

    Args:
        alpha: The fraction of a query's candidates that each head but the last drops, from 0 to below 1; one number,
            or one for each of these heads.
        counts: How many candidates each head but the last keeps, in place of ``alpha``; the numbers must not grow.
        margin: How far below the ``margin_k``-th best score of its query a candidate may be and still go on, in place
            of ``alpha``, in log-odds; one number, or one for each of these heads. The paper has no such rule (CT-27).
        margin_k: The place of the candidate from whose score the margin is measured, from 1; so many go on at least.
        plan: The layers whose heads score; all heads by default.
        batch_size: How many of a query's candidates compete at a time, in order, as in the paper's experiments (CT-26);
            all of them by default.
        rounding: How a fraction becomes a number: ``"floor"`` of the discards, or ``"nearest"`` (CT-25).
        exited: ``"below"`` returns all candidates, ``"drop"`` only those that reach the last head (CT-28).
    """

    alpha: float | Sequence[float] = _pruned_by(KeepFraction, 0.0)
    counts: Sequence[int] | None = _pruned_by(KeepCount, None)
    margin: float | Sequence[float] | None = _pruned_by(KeepWithin, None)
    margin_k: int = field(default=1, metadata={"goes_with": "margin"})
    plan: Sequence[int] | None = None
    batch_size: int | None = None
    rounding: str = "floor"
    exited: str = "below"

    k: ClassVar[int | float | None] = None
    """The cut of a front before the cascade; there is none."""

    def __post_init__(self):
        for one in fields(self):
            if np.ndim(value := getattr(self, one.name)) == 1:
                object.__setattr__(self, one.name, tuple(value))
        check_choices(rounding=(self.rounding, ROUNDINGS), exited=(self.exited, EXITED))
        if self.plan is not None and not are_layers(self.plan):
            raise ValueError(f"plan={self.plan!r}: give layers in ascending order, each once")
        if self.batch_size is not None and not is_count(self.batch_size):
            raise ValueError(f"batch_size={self.batch_size!r}: give 1 or more, or None for all of a query's candidates")
        if not is_count(self.margin_k):
            raise ValueError(f"margin_k={self.margin_k!r}: give the place of a candidate, 1 or more")
        # Made now, so that a bad value is an error where it is given.
        _ = self._pruning

    @cached_property
    def _pruning(self) -> tuple[str, Any, tuple[Rule, ...] | Rule]:
        """The setting that prunes, its value, and its rule: one for each head, or one for all."""
        found = {
            one.name: (value, _rules(one.metadata["rule"], one.name, value, self))
            for one in fields(self)
            if "rule" in one.metadata and ((value := getattr(self, one.name)) is not None or one.default is not None)
        }
        # A setting that drops nothing, such as alpha=0, leaves the word to another one.
        given = [name for name, (_, rules) in found.items() if not all(rule.keeps_all for rule in _listed(rules))]
        if len(given) > 1:
            values = " and ".join(f"{name}={found[name][0]!r}" for name in given)
            raise ValueError(f"{values} exclude each other; give one of them")
        name = given[0] if given else "alpha"
        return (name, *found[name])

    @property
    def pruned_by(self) -> tuple[str, Any] | None:
        """The name and the value of the setting that drops candidates; None where nothing is dropped."""
        name, value, rules = self._pruning
        return None if all(rule.keeps_all for rule in _listed(rules)) else (name, value)

    def resolve(self, heads: Sequence[int]) -> Plan:
        """Returns the plan for a model with heads after these layers, ascending; bad combinations are errors here."""
        layers = tuple(heads) if self.plan is None else self.plan
        if not set(layers) <= set(heads):
            raise ValueError(f"plan={layers!r}, but there are heads at layers {tuple(heads)} only")
        name, value, rules = self._pruning
        n_drops = len(layers) - 1
        rules = (rules,) * n_drops if isinstance(rules, Rule) else rules
        if len(rules) != n_drops:
            raise ValueError(
                f"{name}={value!r} has {len(rules)} values, but {n_drops} heads drop candidates, those at layers "
                f"{layers[:-1]}; the last, at {layers[-1]}, only scores"
            )
        return Plan(layers, (*((rule,) for rule in rules), ()), self.batch_size)


def is_cut(k: object) -> bool:
    """Returns whether ``% k`` is a cut: a number of candidates from 1, or a share between 0 and 1."""
    return is_count(k) or KeepFraction.of_kept(k) is not None


@dataclass(frozen=True)
class CutPolicy(Policy):
    """All settings of a pipeline ``front % k >> cascade(...)``: the cut behind the front, and the cascade's policy.

    Args:
        k: How many of a query's candidates the front lets through, or which share of them.
    """

    k: int | float | None = None

    def __post_init__(self):
        super().__post_init__()
        if not is_cut(self.k):
            raise ValueError(
                f"k={self.k!r}: give how many candidates go on behind the front (1 or more), or a share between 0 and 1"
            )


def policies_of(settings: Sequence[Mapping[str, Any]], fixed: Mapping[str, Any]) -> list[Policy]:
    """Returns the policy of each of some settings.

    Args:
        settings: For each policy, fields of :class:`Policy` by name, and ``k`` for one behind a front.
        fixed: Fields that are the same for all.
    """
    if isinstance(settings, str | Mapping) or not all(isinstance(one, Mapping) for one in settings):
        raise ValueError(
            f"settings={settings!r}: give a list of dictionaries, such as [{{'alpha': 0.3}}, {{'alpha': (0.5, 0.2)}}]"
        )
    if not len(settings):
        raise ValueError("settings is empty; give at least one setting")
    return [policy_of(**{**fixed, **one}) for one in settings]


def policy_of(k: int | float | None = None, **settings: Any) -> Policy:
    """Returns the policy of some settings; that of a pipeline with a front where there is a cut.

    Args:
        k: The cut behind the front, or None.
        **settings: Fields of :class:`Policy`.
    """
    return Policy(**settings) if k is None else CutPolicy(**settings, k=k)


class PolicySetting:
    """An attribute of a ranker that reads and sets one field of its ``policy``, so that a grid search can set it."""

    def __init__(self, name: str):
        self.name = name

    def __get__(self, ranker, owner=None):
        return self if ranker is None else getattr(ranker.policy, self.name)

    def __set__(self, ranker, value) -> None:
        ranker.policy = replace(ranker.policy, **{self.name: value})


def default_heads(depth: int) -> tuple[int, ...]:
    """Returns where heads stand by default: after layers 4, 6, 8, 10 and 12 of 12 (CT-7), alike for other depths."""
    return tuple(sorted({max(1, depth * sixths // 6) for sixths in range(2, 7)}))


def are_layers(values: object) -> bool:
    """Returns whether values are numbers of layers in ascending order."""
    return np.ndim(values) == 1 and len(values) > 0 and all(map(is_count, values)) and bool((np.diff(values) > 0).all())


def _listed(rules: tuple[Rule, ...] | Rule) -> tuple[Rule, ...]:
    return (rules,) if isinstance(rules, Rule) else rules


def _rules(rule: type[Rule], name: str, value: Any, policy: Policy) -> tuple[Rule, ...] | Rule:
    """Returns the rules that a setting means: one for each head, or one for all of them."""
    if not isinstance(value, tuple):
        one = rule.from_setting(name, value, policy)
        if rule.one_for_all:
            return one
        raise ValueError(f"{name}={value!r}: give whole numbers, one for each head but the last")
    rules = tuple(rule.from_setting(name, one, policy) for one in value)
    rule.check_all(name, value, rules)
    return rules
