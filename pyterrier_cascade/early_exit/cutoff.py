"""Cutoffs behind a transformer: ``% 0.6`` keeps 60% of a query's candidates, and a margin those with close scores."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.checks import check_choices, is_count
from pyterrier_cascade.early_exit.policy import Policy
from pyterrier_cascade.early_exit.pruning import survivors
from pyterrier_cascade.early_exit.rules.base import Rule
from pyterrier_cascade.early_exit.rules.fraction import ROUNDINGS, KeepFraction
from pyterrier_cascade.early_exit.rules.margin import KeepWithin
from pyterrier_cascade.ranker import HELP_URL


class Cutoff(pt.Transformer):
    """Keeps some of each query's candidates, by a rule.

    A subclass implements :meth:`rule` and ``__repr__``, an expression that makes the cutoff again.
    """

    reads: ClassVar[tuple[str, ...]] = ("rank",)
    """The columns that decide."""

    @abstractmethod
    def rule(self) -> Rule:
        """Returns the rule that the attributes mean now."""

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the rows that are kept, in their order.

        Args:
            inp: A results frame with ranks.
        """
        pt.validate.result_frame(inp, extra_columns=list(self.reads), context=self)
        groups = frames.Blocks.of(inp).codes
        order = np.lexsort((frames.numbers(inp, "rank", missing=np.inf), groups))
        scores = frames.numbers(inp, "score", missing=np.nan) if "score" in self.reads else np.full(len(inp), np.nan)
        kept = survivors([self.rule()], groups[order], scores[order])
        return inp.iloc[np.sort(order[kept])].reset_index(drop=True)

    def __eq__(self, other):
        """Cutoffs are equal when they keep the same candidates."""
        return self.rule() == other.rule() if isinstance(other, Cutoff) else NotImplemented

    def __hash__(self):
        """Equal cutoffs hash alike."""
        return hash(self.rule())


class FractionCutoff(Cutoff):
    """Keeps the best fraction of each query's candidates, at least one; ``% 0.6`` behind a stage makes it.

    The number kept is the one that :class:`~pyterrier_cascade.Cascade` keeps (CT-25).

    Args:
        fraction: The fraction to keep, between 0 and 1.
        rounding: How it becomes a number: ``"floor"`` of the discards, or ``"nearest"``.
    """

    def __init__(self, fraction: float, rounding: str = "floor"):
        self.fraction, self.rounding = fraction, rounding
        check_choices(rounding=(rounding, ROUNDINGS))
        self.rule()

    def rule(self) -> KeepFraction:
        """Returns the rule that the attributes mean now."""
        rule = KeepFraction.of_kept(self.fraction, self.rounding)
        if rule is None:
            raise ValueError(
                f"FractionCutoff({self.fraction!r}): give a share between 0 and 1, or use % k for a number"
            )
        return rule

    def __repr__(self):
        """Returns an expression that makes the cutoff again."""
        rounding = "" if self.rounding == "floor" else f", rounding={self.rounding!r}"
        return f"FractionCutoff({self.fraction!r}{rounding})"

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the box that PyTerrier draws."""
        return {"label": f"% {self.fraction}", "help_url": HELP_URL}


class MarginCutoff(Cutoff):
    """Keeps the candidates of each query whose score is close to that of the best: ``margin`` between two stages.

    ``cascade[4] >> MarginCutoff(3.0, k=10) >> cascade[12]`` is the cascade with the heads 4 and 12 and the same margin.

    Args:
        margin: The largest distance from the score of the k-th best candidate, 0 or more.
        k: The place of that candidate, from 1; at least so many are kept.
    """

    reads = ("rank", "score")

    def __init__(self, margin: float, k: int = 1):
        self.margin, self.k = margin, k
        self.rule()

    def rule(self) -> KeepWithin:
        """Returns the rule that the attributes mean now."""
        return KeepWithin.from_setting("margin", self.margin, Policy(margin_k=self.k))

    def __repr__(self):
        """Returns an expression that makes the cutoff again."""
        return f"MarginCutoff({self.margin!r}{'' if self.k == 1 else f', k={self.k!r}'})"

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the box that PyTerrier draws."""
        return {"label": f"within {self.margin}", "help_url": HELP_URL}


def cutoff(kept: float, rounding: str = "floor") -> pt.RankCutoff | FractionCutoff:
    """Returns the transformer that ``% kept`` means: ``% 20`` keeps 20 candidates, ``% 0.6`` keeps 60% of them.

    Args:
        kept: A whole number from 1, or a fraction between 0 and 1.
        rounding: How a fraction becomes a number.
    """
    if is_count(kept):
        return pt.RankCutoff(int(kept))
    if KeepFraction.of_kept(kept) is not None:
        return FractionCutoff(kept, rounding)
    raise ValueError(f"cutoff {kept!r}: give how many candidates to keep (1 or more), or a share between 0 and 1")
