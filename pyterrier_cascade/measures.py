"""Measures of ir-measures that the papers need and trec_eval has not."""

import ir_measures

from pyterrier_cascade.frames import COST, FULL_COST


def _relative_cost(qrels, run):
    if COST not in run.columns or FULL_COST not in run.columns:
        for qid in run["query_id"].unique():
            yield qid, 0.0
        return
    rows = run.drop_duplicates("query_id")
    cost = (rows[COST] / rows[FULL_COST]).fillna(0.0)
    yield from zip(rows["query_id"], cost.astype(float), strict=True)


RelativeCost = ir_measures.define(
    _relative_cost,
    name="RelativeCost",
    support_cutoff=False,
    run_inputs=["query_id"],
    pretty_name="Relative cost",
    short_desc="layers run over a query's candidates, relative to the full encoder over all of them (CT-32 to CT-34)",
)
"""Layers run over a query's candidates, relative to the full encoder over all of them; 0 for a retriever.

Works in ``pt.Experiment`` beside other measures, on the results of this package's rankers: 1 for the monolithic model,
1/2 for its first 6 of 12 layers (CT-34). Lower is better. Embeddings and heads are not counted (CT-32).
"""
