"""Measures of the cost of early exit, and of the survival of relevant candidates, for ir-measures."""

from typing import ClassVar

import ir_measures

from pyterrier_cascade.frames import COST, FULL_COST, FULL_TOKEN_COST, TOKEN_COST


def _relative(spent: str, full: str, **names: str) -> ir_measures.measures.Measure:
    def calculate(qrels, run):
        if spent in run.columns and full in run.columns:
            # Other measures have no value for a query without judgements, and in an experiment all measures must have
            # a value for a query, or none.
            rows = run[run["query_id"].isin(qrels["query_id"])].drop_duplicates("query_id")
            # Rows of a retriever that are joined to those of a ranker state neither cost, and cost nothing. A ranker
            # of a user whose own cost is not known states only the second: its ratio and every mean with it are NaN.
            ratio = (rows[spent] / rows[full]).mask(rows[full].isna(), 0.0)
            yield from zip(rows["query_id"], ratio.astype(float), strict=True)

    return ir_measures.define(calculate, support_cutoff=False, run_inputs=["query_id"], **names)


RelativeCost = _relative(
    COST,
    FULL_COST,
    name="RelativeCost",
    pretty_name="Relative cost",
    short_desc=(
        "layers that all rankers ran over a query's candidates, relative to the last ranker's full model over all "
        "candidates of the first (CT-32 to CT-34)"
    ),
)
"""What all rankers of a pipeline spent, relative to the last one's full model over all candidates of the first.

It is 1 for the monolithic model, 1/2 for the first 6 of its 12 layers (CT-34), and 0 for a retriever; lower is better.
Use it in ``pt.Experiment`` beside other measures, on the results of the rankers of this package. A layer of another
size counts by its multiply-adds for a token, which are the weights of its linear maps. Embeddings, heads and attention
are not counted (CT-32), and queries without judgements have no value. The columns ``q_full_layers`` and
``q_layer_size`` of the results name the model that is counted against.
"""

RelativeTokenCost = _relative(
    TOKEN_COST,
    FULL_TOKEN_COST,
    name="RelativeTokenCost",
    pretty_name="Relative cost by tokens",
    short_desc="like RelativeCost, with each candidate weighted by its number of tokens",
)
"""Like :data:`RelativeCost`, with each candidate weighted by its number of tokens, which is closer to the time."""


class _Survival(ir_measures.measures.Measure):
    NAME = __name__ = "Survival"
    PRETTY_NAME = "Survival of a relevant candidate"
    SHORT_DESC = "whether at least one relevant candidate reaches the head after a layer (CT-30)"
    SUPPORTED_PARAMS: ClassVar = {"cutoff": ir_measures.ParamInfo(dtype=int, required=True, desc="the layer")}
    RUN_INPUTS: ClassVar = ["query_id", "doc_id"]
    QREL_INPUTS: ClassVar = ["query_id", "doc_id", "relevance"]

    def runtime_impl(self, qrels, run):
        if "exit_layer" not in run.columns:
            raise ValueError(
                f"{self} is a measure of cascades, but these results have no column 'exit_layer'; measure the results "
                f"of a ranker with early exit"
            )
        positive = qrels.loc[qrels["relevance"] > 0, ["query_id", "doc_id"]]
        there = run.loc[run["exit_layer"] >= self["cutoff"], ["query_id", "doc_id"]]
        alive = set(positive.merge(there)["query_id"])
        for qid in positive["query_id"].unique():
            yield ir_measures.Metric(qid, self, float(qid in alive))


Survival = _Survival()
"""Whether at least one relevant candidate of a query reaches the head after a layer: ``Survival @ 12`` (CT-30).

Measure it on results with all rows, as ``cascade(exited="below")`` gives them. Where rows were dropped, a relevant
candidate among them counts as lost at every layer.
"""
