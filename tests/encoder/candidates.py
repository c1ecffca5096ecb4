"""Candidates that are enough to calibrate int8 on, and their scores."""

import numpy as np
import pandas as pd


def frame(n: int = 40) -> pd.DataFrame:
    texts = [f"the town was founded in {1800 + i} by the ship " + "of the town " * (i % 7) for i in range(n)]
    return pd.DataFrame(
        {"qid": "1", "query": "who founded the town", "docno": [f"d{i}" for i in range(n)], "text": texts}
    )


def scores(ranker, candidates=None) -> np.ndarray:
    return ranker(frame() if candidates is None else candidates).sort_values("docno")["score"].to_numpy()
