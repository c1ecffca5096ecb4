"""Traces whose scores are drawn at random, made without a model."""

import numpy as np

from pyterrier_cascade.early_exit.trace import KIND, Trace
from pyterrier_cascade.early_exit.trace_part import TracePart
from pyterrier_cascade.store.strings import Strings


def drawn_trace(sizes, layers=(2, 4, 6), noise: float = 1.0, seed: int = 0, ties: bool = False, seen=()) -> Trace:
    """Heads that agree with the last one the more, the deeper they are.

    Args:
        sizes: The number of candidates of each question.
        layers: Where the heads stand.
        noise: The disagreement of the first head, in deviations of the last one's scores.
        seed: Of the draw.
        ties: Whether scores are whole numbers, so that many are equal.
        seen: The numbers of the questions that the heads learned from.
    """
    rng, n = np.random.default_rng(seed), int(np.sum(sizes))
    spread = noise * np.linspace(1, 0, len(layers))
    scores = 3 * (rng.normal(size=(n, 1)) + spread * rng.normal(size=(n, len(layers))))
    scores = (scores.round() if ties else scores).astype(np.float32)
    part = TracePart(
        qids=Strings.pack([f"q{number}" for number in range(len(sizes))]),
        queries=Strings.pack([f"question {number}" for number in range(len(sizes))]),
        texts=np.zeros(len(sizes), np.uint64),
        seen=np.isin(np.arange(len(sizes)), seen),
        sizes=np.array(sizes),
        docnos=Strings.pack([f"d{number}" for number in range(n)]),
        scores=scores,
        tokens=rng.integers(5, 60, n).astype(np.int32),
        inputs=rng.integers(1, 4, n).astype(np.int32),
    )
    meta = {"ranker": "drawn", "fingerprint": "drawn", "layers": list(layers), "full_layers": 6}
    trace = Trace._in_memory(KIND | meta | {"reuses_encodings": True})
    trace._keep(part)
    return trace
