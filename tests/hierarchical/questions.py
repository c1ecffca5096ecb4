"""Questions whose right answer repeats the word that is asked for: a model learns them in a second, from scratch."""

import numpy as np
import pandas as pd

from pyterrier_cascade import HierarchicalArchitecture, HierarchicalRanker, HierarchicalTraining

SMALL = HierarchicalArchitecture(embedding_width=16, width=16, channels=8, hidden=16)
QUICK = HierarchicalTraining(learning_rate=1e-2, epochs=8, questions_per_batch=10, precision="fp32")
THINGS = ["ship", "town", "bridge", "tower", "school", "river", "mill", "church"]


def candidates(n_questions: int, seed: int, n_candidates: int = 5) -> pd.DataFrame:
    rng, rows = np.random.default_rng(seed), []
    for number in range(n_questions):
        things = rng.permutation(THINGS)[:n_candidates]
        for place, thing in enumerate(things):
            right = place == number % n_candidates
            asked = things[number % n_candidates]
            text = f"{rng.choice(['the', 'a', 'this old'])} {thing} was {rng.choice(['founded', 'seen', 'sold'])} ."
            rows.append((f"{seed}-{number}", f"what became of the {asked} ?", f"{number}-{place}", text, int(right)))
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "label"])


TRAIN, DEV, TEST = candidates(40, 1), candidates(20, 2), candidates(20, 3)


def ranker(scheme="PRI", level="list", architecture=SMALL, training=QUICK, **settings) -> HierarchicalRanker:
    return HierarchicalRanker(scheme, level, architecture=architecture, training=training, **settings)


def vector_file(folder, width: int = 12, words=None, seed: int = 0) -> str:
    """A text file of random vectors for some words."""
    rng = np.random.default_rng(seed)
    known = ["the", "of", ".", *THINGS, "rare", "words"] if words is None else words
    path = folder / "vectors.txt"
    path.write_text("".join(f"{word} {' '.join(map(str, rng.normal(0, 0.5, width).round(4)))}\n" for word in known))
    return str(path)
