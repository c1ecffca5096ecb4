"""Noise in the labels, and what it costs (TA-23)."""

from fractions import Fraction

import numpy as np
import pandas as pd

from pyterrier_cascade import frames


def flipped(candidates: pd.DataFrame, share: float, seed: int = 0) -> pd.DataFrame:
    """Returns candidates with the labels of so many rows turned, drawn uniformly: exactly floor(share x rows) (TA-23).

    Args:
        candidates: A frame with ``label``, 0 or 1.
        share: What is turned, from 0 to 1.
        seed: Decides which.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share={share!r}: give a share of the labels from 0 to 1")
    candidates = frames.binary(candidates, "clean")
    n = int(Fraction(str(share)) * len(candidates))
    turned = np.random.default_rng(seed).choice(len(candidates), n, replace=False)
    labels = candidates["label"].to_numpy(copy=True)
    labels[turned] = 1 - labels[turned]
    return candidates.assign(label=labels)


def drops(measures: pd.DataFrame) -> pd.DataFrame:
    """Returns by how many percent measures fall with noise: (clean - noisy) / clean x 100 (TA-23).

    Args:
        measures: A row for each share of noise, the first without any, and a column for each measure.
    """
    return (measures.iloc[0] - measures) / measures.iloc[0] * 100
