"""Documents of several passages: each passage is an input of the encoder, and the document has one score."""

import numpy as np

from pyterrier_cascade.encoder.engine import Keep
from pyterrier_cascade.encoder.pairs import runs

PASSAGES = ("first", "max", "mean")
"""The scores that a long document may have: its first passage's, or the greatest or the mean of all its passages'."""


def over_passages(scores: np.ndarray, starts: np.ndarray, passages: str) -> np.ndarray:
    """Returns the scores of documents, ``(n_documents, ...)``, of the type of the passages' scores.

    Args:
        scores: The scores of all passages; those of a document stand together, ``(n_inputs, ...)``.
        starts: The number of each document's first passage, ascending, ``(n_documents,)``.
        passages: One of :data:`PASSAGES`.
    """
    if passages == "first":
        return scores[starts]
    if passages == "max":
        return np.maximum.reduceat(scores, starts)
    sizes = np.diff(starts, append=len(scores))
    return (np.add.reduceat(scores, starts, dtype=np.float64).T / sizes).T.astype(scores.dtype)


def keep_documents(keep: Keep, owner: np.ndarray, passages: str) -> Keep:
    """Returns the rule of an early exit over inputs that applies a rule over documents: passages stay together.

    Args:
        keep: The rule, which is called with the numbers and the scores of documents.
        owner: The number of the document that each input belongs to, ascending, ``(n_inputs,)``.
        passages: One of :data:`PASSAGES`.
    """
    sizes = np.bincount(owner)
    first = np.cumsum(sizes) - sizes

    def keep_inputs(head: int, rows: np.ndarray, scores: np.ndarray) -> np.ndarray:
        starts = np.flatnonzero(np.diff(owner[rows], prepend=-1))
        kept = keep(head, owner[rows[starts]], over_passages(scores, starts, passages))
        return runs(first[kept], sizes[kept])

    return keep_inputs
