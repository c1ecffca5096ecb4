"""Reliability: whether candidates with a probability of so much are relevant that often."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.checks import is_count


@dataclass(frozen=True, repr=False)
class Reliability:
    """The probabilities of results beside the share of candidates that are relevant; :func:`reliability` makes it.

    Attributes:
        frame: A row for each bin with candidates: ``low`` and ``high``, its edges; ``probability``, their mean;
            ``relevant``, the share of relevant ones; ``count``.
    """

    frame: pd.DataFrame

    @property
    def error(self) -> float:
        """The expected calibration error: the mean difference of both over the bins, each by its candidates."""
        difference = (self.frame["probability"] - self.frame["relevant"]).abs()
        return float(np.average(difference, weights=self.frame["count"]))

    def plot(self, label: str | None = None, ax=None):
        """Draws the share of relevant candidates against their probability, and returns the axes.

        Args:
            label: The name of the curve, for the legend.
            ax: Where to draw; a new figure unless given.
        """
        from pyterrier_cascade.early_exit.plots import reliability_curve

        return reliability_curve(self, label, ax)

    def __repr__(self):
        """Returns the numbers of candidates and bins, and the error."""
        n = int(self.frame["count"].sum())
        return f"<Reliability of {n} candidates in {len(self.frame)} bins, error {self.error:.3f}>"


def reliability(results: pd.DataFrame, qrels: pd.DataFrame, bins: int = 10, relevant_from: int = 1) -> Reliability:
    """Returns how often candidates are relevant beside the probability that a ranker gave them.

    Look at each exit layer by ``reliability(results[results["exit_layer"] == layer], qrels)``.

    Args:
        results: Results with ``probability``; rows without one are left out.
        qrels: Judgements; a candidate without one is irrelevant, and a query without any is left out.
        bins: The number of bins, all of the same width.
        relevant_from: The least label that counts as relevant.
    """
    if not is_count(bins):
        raise ValueError(f"bins={bins!r}: give a whole number, 1 or more")
    pt.validate.columns(results, includes=["qid", "docno", "probability"])
    rows = results[results["qid"].isin(qrels["qid"]) & results["probability"].notna()]
    if not len(rows):
        raise ValueError(f"none of {len(results)} rows has a probability and a judged query; are the qrels their own?")
    relevant = frames.labelled(rows, qrels)["label"].to_numpy() >= relevant_from
    probability = rows["probability"].to_numpy(dtype=float)
    number = np.minimum((probability * bins).astype(np.int64), bins - 1)
    count = np.bincount(number, minlength=bins)
    there = np.flatnonzero(count)
    means = (np.bincount(number, weights=values, minlength=bins)[there] / count[there]
             for values in (probability, relevant))  # fmt: skip
    columns = zip(("probability", "relevant"), means, strict=True)
    return Reliability(
        pd.DataFrame({"low": there / bins, "high": (there + 1) / bins, **dict(columns), "count": count[there]})
    )
