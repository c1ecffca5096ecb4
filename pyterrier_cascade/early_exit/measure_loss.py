"""Risks by judgements: what a measure loses against the full cascade."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade.early_exit.fates import fates
from pyterrier_cascade.early_exit.policy import Policy
from pyterrier_cascade.early_exit.rank_measures import MEASURES, Judgements
from pyterrier_cascade.early_exit.risks import Risk, Watched, lost
from pyterrier_cascade.early_exit.sweep import is_fast, judgements_of
from pyterrier_cascade.measures.names import parse_measures

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.trace import Trace

SHARES = (*MEASURES, "Bpref", "Compat", "ERR", "IPrec", "RBP", "Rprec", "SetAP", "SetF", "SetP", "SetR", "infAP")
"""Measures of ir-measures that go from 0 to 1 and grow with quality."""


class MeasureLoss(Risk):
    """A query loses what a measure loses against the full cascade; a gain counts as no loss.

    Args:
        measure: A measure that goes from 0 to 1.
        qrels: The judgements; queries without any are not tested.
    """

    def __init__(self, measure: ir_measures.Measure, qrels: pd.DataFrame):
        if measure.NAME not in SHARES:
            raise ValueError(
                f"{measure} is not known to go from 0 to 1, as a risk must; there are {', '.join(sorted(SHARES))}"
            )
        self.measure, self.qrels = measure, qrels
        self.binary = measure.NAME == "Success" or (measure.NAME == "P" and measure.params.get("cutoff") == 1)

    def watched(self, trace: "Trace") -> Watched:
        """Returns the judged questions and their relevant candidates."""
        rows, relevant, judged = judgements_of(trace, self.qrels)
        questions = np.unique(trace.questions[rows])
        return Watched(questions, rows[relevant], judged)

    def losses(self, positions: np.ndarray, judged: Judgements) -> np.ndarray:
        """Returns the losses of a measure that follows from positions, ``(n_policies, n_questions)``."""
        return lost(MEASURES[self.measure.NAME](positions, judged, self.measure.params.get("cutoff")))

    def __str__(self):
        return f"the mean loss of {self.measure} against the full cascade"


class OtherMeasureLoss(MeasureLoss):
    """The same for a measure that ir-measures computes, a policy at a time."""

    def outcomes(self, trace: "Trace", watched: Watched, policies: Sequence[Policy]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the losses ``(n_policies, n_questions)`` and the mean relative cost of each policy ``(n_policies,)``.

        Args:
            trace: The scores.
            watched: The questions.
            policies: The settings; the first is that of the full cascade.
        """
        qids = trace.qids[watched.questions]
        number = {qid: place for place, qid in enumerate(qids)}
        qrels = pt.model.to_ir_measures(self.qrels.astype({"qid": str, "docno": str}))
        evaluator = ir_measures.evaluator([self.measure], qrels[qrels["query_id"].isin(number)])
        values = np.zeros((len(policies), len(qids)))
        for row, policy in zip(values, policies, strict=True):
            results = trace.results(**asdict(policy))
            for found in evaluator.iter_calc(pt.model.to_ir_measures(results[results["qid"].isin(number)])):
                row[number[found.query_id]] = found.value
        costs = fates(trace, watched.candidates(trace), np.empty(0, np.int64), policies).costs
        return lost(values), costs / len(qids)


def risk_of(risk: Any, qrels: pd.DataFrame | None) -> Risk:
    """Returns the risk that a user means.

    Args:
        risk: A risk, or with judgements a measure or its name.
        qrels: The judgements, or None.
    """
    if isinstance(risk, Risk):
        if qrels is not None:
            raise ValueError(f"{risk!r} needs no qrels; leave them out, or give a measure as the risk, such as AP")
        return risk
    if isinstance(risk, type) and issubclass(risk, Risk):
        raise ValueError(f"risk={risk.__name__} is a class; give {risk.__name__}()")
    measures = parse_measures(risk)
    if len(measures) != 1:
        raise ValueError(f"risk={risk!r} is several measures; give one")
    if qrels is None:
        raise ValueError(f"risk={risk!r} is a measure; give its qrels too, or a risk without labels, FirstAnswerLost()")
    return (MeasureLoss if is_fast(measures[0]) else OtherMeasureLoss)(measures[0], qrels)
