"""Scores of many pairs, each core with a part of them."""

import numpy as np
import torch

from pyterrier_cascade.encoder.workers import workers
from pyterrier_cascade.hierarchical.model import CompareAggregate, relevance
from pyterrier_cascade.hierarchical.packing import Pairs

TOKENS = 2_000
"""Words that a core computes at a time, unless the user says."""
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def score(
    module: CompareAggregate, pairs: Pairs, budget: int | None = None, precision: str = "fp32", progress=lambda n: None
) -> np.ndarray:
    """Returns the score of each pair by the scheme's main level, ``(n_pairs,)``.

    Args:
        module: The backbone.
        pairs: Questions and answers.
        budget: The most words that a core computes at a time (a longer pair stands alone).
        precision: In which the CNN multiplies, ``"fp32"`` or ``"bf16"``.
        progress: Called with the number of pairs that are done.
    """
    found = np.empty(len(pairs))

    def compute(rows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            main = module.scheme.main
            return relevance(module(pairs.take(rows), PRECISIONS[precision], main)[main]).double().numpy()

    with workers() as pool:
        parts = portions(pairs, budget or TOKENS, pool.n_threads)
        for rows, values in zip(parts, pool.map(compute, parts), strict=True):
            found[rows] = values
            progress(len(rows))
    return found


def portions(pairs: Pairs, budget: int, n_workers: int) -> list[np.ndarray]:
    """Returns the numbers of all pairs in parts of similar lengths and equal work, whole rounds of the workers."""
    order = np.lexsort((pairs.answers.lengths, pairs.question_lengths))
    words = np.cumsum(pairs.lengths[order])
    n_parts = -(-int(words[-1]) // (budget * n_workers)) * n_workers
    ends = np.searchsorted(words, words[-1] * np.arange(1, n_parts) / n_parts)
    return [rows for rows in np.split(order, ends) if len(rows)]
