"""Measures of ir-measures that the papers need and trec_eval has not."""

from typing import ClassVar

import ir_measures

from pyterrier_cascade.frames import COST, FULL_COST, FULL_TOKEN_COST, TOKEN_COST


def _relative(spent, full):
    def calculate(qrels, run):
        if spent in run.columns and full in run.columns:
            # No other measure has a value for a query that nobody judged, and an experiment wants all or none.
            rows = run[run["query_id"].isin(qrels["query_id"])].drop_duplicates("query_id")
            # Rows of a retriever, joined to those of a ranker, state neither cost. A ranker whose cost is unknown, as
            # it has no layers to count, states the second one alone: the ratio and all means with it are NaN.
            ratio = (rows[spent] / rows[full]).mask(rows[full].isna(), 0.0)
            yield from zip(rows["query_id"], ratio.astype(float), strict=True)

    return calculate


RelativeCost = ir_measures.define(
    _relative(COST, FULL_COST),
    name="RelativeCost",
    support_cutoff=False,
    run_inputs=["query_id"],
    pretty_name="Relative cost",
    short_desc="layers run over a query's candidates, relative to the full encoder over all of them (CT-32 to CT-34)",
)
"""Layers run over a query's candidates, relative to the full encoder over all of them; 0 for a retriever.

Works in ``pt.Experiment`` beside other measures, on the results of this package's rankers: 1 for the monolithic model,
1/2 for its first 6 of 12 layers (CT-34). Lower is better. Embeddings and heads are not counted (CT-32), and neither are
queries without judgements. It is NaN for a pipeline with a :class:`~pyterrier_cascade.HierarchicalRanker`, which has no
layers to count.
"""

RelativeTokenCost = ir_measures.define(
    _relative(TOKEN_COST, FULL_TOKEN_COST),
    name="RelativeTokenCost",
    support_cutoff=False,
    run_inputs=["query_id"],
    pretty_name="Relative cost by tokens",
    short_desc="like RelativeCost, each candidate counted by its tokens",
)
"""Like :data:`RelativeCost`, with each candidate counted by its tokens, which is nearer to the time that it takes."""


class _Survival(ir_measures.measures.Measure):
    NAME = __name__ = "Survival"
    PRETTY_NAME = "Survival of a positive"
    SHORT_DESC = "whether at least one positive is still there at the head after a layer (CT-30)"
    SUPPORTED_PARAMS: ClassVar = {"cutoff": ir_measures.ParamInfo(dtype=int, required=True, desc="the layer")}
    RUN_INPUTS: ClassVar = ["query_id", "doc_id"]
    QREL_INPUTS: ClassVar = ["query_id", "doc_id", "relevance"]

    def runtime_impl(self, qrels, run):
        if "exit_layer" not in run.columns:
            raise ValueError(f"{self} is a measure of cascades, but these results have no column 'exit_layer'")
        positive = qrels.loc[qrels["relevance"] > 0, ["query_id", "doc_id"]]
        there = run.loc[run["exit_layer"] >= self["cutoff"], ["query_id", "doc_id"]]
        alive = set(positive.merge(there)["query_id"])
        for qid in positive["query_id"].unique():
            yield ir_measures.Metric(qid, self, float(qid in alive))


Survival = _Survival()
"""Whether at least one of a query's positives comes as far as the head after a layer: ``Survival @ 12`` (CT-30).

On results with all rows, as ``cascade(exited="below")`` gives them, this is for any layer; where rows were dropped, for
those that are left.
"""
