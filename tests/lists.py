"""Questions with candidates, made on the spot."""

import numpy as np
import pandas as pd

WORDS = ["the", "ship", "town", "who", "what", "when", "founded", "launched", "is", "of", "in", "was", "a", "b", "c"]


def candidates(sizes, seed: int = 0, ties: bool = False) -> pd.DataFrame:
    """Questions with so many candidates each; rows shuffled, an index that repeats."""
    rng = np.random.default_rng(seed)
    rows = []
    for number, size in enumerate(sizes):
        query = " ".join(rng.choice(WORDS, 3))
        for rank in range(size):
            text = " ".join(rng.choice(WORDS, 2 if ties else int(rng.integers(1, 30))))
            rows.append((f"q{number}", query, f"d{number}-{rank}", text, float(size - rank), rank))
    frame = pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score", "rank"])
    return frame.sample(frac=1, random_state=seed).set_index(np.zeros(len(frame), dtype=int))
