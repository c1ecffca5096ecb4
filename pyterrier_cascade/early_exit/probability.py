"""Probabilities that mean the same at every exit layer: a curve for each head, from its scores to relevance."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pyterrier_cascade import frames

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.trace import Trace

Curves = Mapping[str, Sequence[float]]
"""The slope and the offset of each head's curve by the number of its layer, which JSON keeps as text."""


def curves_of(trace: "Trace", qrels: pd.DataFrame | None = None, relevant_from: int = 1) -> Curves:
    """Returns a Platt curve for each head of a trace: ``sigmoid(slope * score + offset)``.

    Platt (1999): the curves have the greatest likelihood, and the targets of judged candidates are a little inside of 0
    and 1, so that few judgements do not make a curve too sure of itself.

    Args:
        trace: The scores of all heads.
        qrels: Judgements; a candidate without one is irrelevant, and a question without any is left out. Unless given,
            the last head's own probabilities are the targets.
        relevant_from: The least label that counts as relevant.
    """
    if not len(trace):
        raise ValueError("the trace has no candidates; give one of some hundred questions")
    scores = np.asarray(trace.scores, dtype=np.float64)
    if qrels is None:
        targets = sigmoid(scores[:, -1])
    else:
        rows, labels = _judged(trace, qrels, relevant_from)
        scores, targets = scores[rows], smoothed(labels)
    return {str(layer): curve(own, targets) for layer, own in zip(trace.layers, scores.T, strict=True)}


def _judged(trace: "Trace", qrels: pd.DataFrame, relevant_from: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the candidates of judged questions, and which of these are relevant."""
    # A trace has its ids as strings.
    qrels = qrels.astype({"qid": str, "docno": str})
    judged = np.isin(trace.qids.astype(str), qrels["qid"].to_numpy(dtype=str))
    rows = np.flatnonzero(judged[trace.questions])
    found = pd.DataFrame({"qid": trace.qids[trace.questions], "docno": trace.docnos})
    labelled = frames.binary(frames.labelled(found, qrels).iloc[rows], "trace's", relevant_from)
    return rows, labelled["label"].to_numpy()


def smoothed(labels: np.ndarray) -> np.ndarray:
    """Returns Platt's targets of labels of 0 and 1, ``(n,)``: (n1 + 1) / (n1 + 2) and 1 / (n0 + 2)."""
    n_relevant = labels.sum()
    return np.where(labels > 0, (n_relevant + 1) / (n_relevant + 2), 1 / (len(labels) - n_relevant + 2))


def curve(scores: np.ndarray, targets: np.ndarray) -> list[float]:
    """Returns slope and offset for which ``sigmoid(slope * score + offset)`` gives the targets the most likelihood.

    Newton's method with steps that are halved until they improve (Lin, Lin and Weng 2007).

    Args:
        scores: A head's scores ``(n,)``.
        targets: Probabilities ``(n,)``.
    """
    middle, width = scores.mean(), scores.std() or 1.0
    inputs = np.stack([(scores - middle) / width, np.ones(len(scores))], 1)

    def loss(weights: np.ndarray) -> float:
        logits = inputs @ weights
        return np.mean(np.logaddexp(0, logits) - targets * logits)

    weights = np.zeros(2)
    for _ in range(100):
        found = sigmoid(inputs @ weights)
        gradient = inputs.T @ (found - targets) / len(scores)
        # Equal scores leave the slope open; the small number keeps it at 0.
        curvature = (inputs.T * (found * (1 - found))) @ inputs / len(scores) + 1e-12 * np.eye(2)
        step, now = np.linalg.solve(curvature, gradient), loss(weights)
        while np.abs(step).max() > 1e-12 and not loss(weights - step) <= now:
            step /= 2
        weights = weights - step
        if np.abs(step).max() < 1e-10:
            break
    slope = weights[0] / width
    return [float(slope), float(weights[1] - slope * middle)]


def probabilities(curves: Curves, layers: Sequence[int], scores: np.ndarray) -> np.ndarray:
    """Returns each candidate's probability from its own score at the head where it left, ``(n,)``.

    Args:
        curves: The curve of each head.
        layers: The layers of a plan; 0 stands for candidates that were not read, whose probability is NaN.
        scores: The score at each of these layers, NaN behind the one where a candidate left ``(n, n_layers)``.
    """
    exits = (~np.isnan(scores)).sum(1) - 1
    found = np.full(len(scores), np.nan)
    for number, layer in enumerate(layers):
        if layer:
            mine, (slope, offset) = exits == number, curves[str(layer)]
            found[mine] = sigmoid(slope * scores[mine, number] + offset)
    return found


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities for log-odds, ``(n,)``."""
    return np.exp(-np.logaddexp(0, -logits))
