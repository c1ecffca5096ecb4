"""Labelled questions for two steps: many to transfer from, few of a target."""

import numpy as np
import pandas as pd

from pyterrier_cascade import Tanda

SMALL = {"tokens_per_batch": 300, "patience": 9}


def questions(n: int, seed: int, asked=("ship", "town")) -> pd.DataFrame:
    """Questions whose answer names what is asked for."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(n):
        which = str(rng.choice(asked))
        for rank in range(4):
            right = rank == number % 4
            text = f"the {which if right else asked[which == asked[0]]} was {rng.choice(['founded', 'launched'])}"
            rows.append((f"q{seed}-{number}", f"what {which} {number}", f"d{number}-{rank}", text, int(right)))
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "label"])


TRANSFER, TRAIN, DEV = questions(60, 1), questions(8, 2), questions(16, 3)


def recipe(ranker, **more) -> Tanda:
    settings = {"transfer_epochs": 6, "adapt_epochs": 2, "transfer_rate": 1e-3, "adapt_rate": 1e-4, **more}
    return Tanda(ranker, TRANSFER, transfer_training=SMALL, adapt_training=SMALL, **settings)


def weights(ranker) -> str:
    return ranker.model.fingerprint
