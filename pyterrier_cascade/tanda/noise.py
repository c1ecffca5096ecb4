"""Wrong labels in the training data, and how much quality they cost (TA-23)."""

from fractions import Fraction

import numpy as np
import pandas as pd

from pyterrier_cascade import frames


def flipped(candidates: pd.DataFrame, share: float, seed: int = 0) -> pd.DataFrame:
    """Returns candidates with the labels of exactly floor(share x rows) rows flipped, drawn uniformly (TA-23).

    Args:
        candidates: A frame with ``label``; the returned labels are 0 or 1.
        share: The share of the rows whose labels are flipped, from 0 to 1.
        seed: The seed that decides which rows these are.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share={share!r}: give a share of the labels from 0 to 1")
    candidates = frames.binary(candidates, "clean")
    n = int(Fraction(str(share)) * len(candidates))
    rows = np.random.default_rng(seed).choice(len(candidates), n, replace=False)
    labels = candidates["label"].to_numpy(copy=True)
    labels[rows] = 1 - labels[rows]
    return candidates.assign(label=labels)


def drops(measures: pd.DataFrame) -> pd.DataFrame:
    """Returns the loss of each measure to noise in percent: (clean - noisy) / clean x 100 (TA-23).

    Args:
        measures: A column for each measure, and a row for each share of noise; the first row is without noise.
    """
    return (measures.iloc[0] - measures) / measures.iloc[0] * 100
