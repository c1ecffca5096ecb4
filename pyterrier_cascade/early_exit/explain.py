"""Explanations: the head that dropped each candidate, and the scores that decided it."""

import numpy as np
import pandas as pd

from pyterrier_cascade import frames
from pyterrier_cascade.early_exit.groups import places
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker

COLUMNS = ["qid", "query", "docno", "layer", "score", "place", "kept"]


def explained(ranker: EarlyExitRanker, candidates: pd.DataFrame) -> pd.DataFrame:
    """Returns the score of each head for each candidate that reached it; the columns are those of ``explain``."""
    frames.validate(candidates, context=ranker, text_field=ranker.text_field)
    if not len(candidates):
        return pd.DataFrame({name: [] for name in COLUMNS})
    blocks, plan = frames.Blocks.of(candidates), ranker.plan_now()
    found = ranker.head_scores(candidates, blocks, plan)
    parts = []
    for number, layer in enumerate(plan.layers):
        scores = found.scores[:, : number + 1]
        here = np.flatnonzero(~np.isnan(scores[:, -1]))
        questions = blocks.codes[found.rows[here]]
        order = here[np.lexsort((*-scores[here].T, questions))]
        place, _ = places(blocks.codes[found.rows[order]])
        last = number == len(plan.layers) - 1
        rows = candidates[COLUMNS[:3]].iloc[found.rows[order]].reset_index(drop=True)
        kept = True if last else ~np.isnan(found.scores[order, number + 1])
        parts.append(rows.assign(layer=layer, score=found.scores[order, number], place=place, kept=kept))
    return pd.concat(parts, ignore_index=True)
