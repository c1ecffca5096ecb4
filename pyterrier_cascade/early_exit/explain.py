"""Which head dropped which candidate, at what score."""

import numpy as np
import pandas as pd

from pyterrier_cascade import frames
from pyterrier_cascade.early_exit import pruning
from pyterrier_cascade.early_exit.ranker import Staged

COLUMNS = ["qid", "query", "docno", "layer", "score", "place", "kept"]


def explained(ranker: Staged, candidates: pd.DataFrame) -> pd.DataFrame:
    """Returns what each head said of each candidate that came to it; the columns are those of ``Staged.explain``."""
    frames.validate(candidates, context=ranker, text_field=ranker.text_field)
    if not len(candidates):
        return pd.DataFrame({name: [] for name in COLUMNS})
    blocks, plan = frames.Blocks.of(candidates), ranker.schedule()
    judged = ranker.judge(candidates, blocks, plan)
    parts = []
    for number, layer in enumerate(plan.layers):
        scores = judged.scores[:, : number + 1]
        here = np.flatnonzero(~np.isnan(scores[:, -1]))
        questions = blocks.codes[judged.rows[here]]
        order = here[np.lexsort((*-scores[here].T, questions))]
        place, _ = pruning.places(blocks.codes[judged.rows[order]])
        last = number == len(plan.layers) - 1
        rows = candidates[COLUMNS[:3]].iloc[judged.rows[order]].reset_index(drop=True)
        kept = True if last else ~np.isnan(judged.scores[order, number + 1])
        parts.append(rows.assign(layer=layer, score=judged.scores[order, number], place=place, kept=kept))
    return pd.concat(parts, ignore_index=True)
