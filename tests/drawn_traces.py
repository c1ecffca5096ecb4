"""Traces whose scores are drawn at random, made without a model."""

import numpy as np

from pyterrier_cascade.early_exit.front import FrontScores
from pyterrier_cascade.early_exit.trace import KIND, Trace
from pyterrier_cascade.early_exit.trace_part import TracePart
from pyterrier_cascade.store.strings import Strings


def drawn_trace(
    sizes, layers=(2, 4, 6), noise: float = 1.0, seed: int = 0, ties: bool = False, seen=(), front: float | None = None
) -> Trace:
    """Heads that agree with the last one the more, the deeper they are.

    Args:
        sizes: The number of candidates of each question.
        layers: Where the heads stand.
        noise: The disagreement of the first head, in deviations of the last one's scores.
        seed: Of the draw.
        ties: Whether scores are whole numbers, so that many are equal.
        seen: The numbers of the questions that the heads learned from.
        front: The disagreement of a front with the last head; none unless given.
    """
    rng, n = np.random.default_rng(seed), int(np.sum(sizes))
    spread = noise * np.linspace(1, 0, len(layers))
    scores = 3 * (rng.normal(size=(n, 1)) + spread * rng.normal(size=(n, len(layers))))
    scores = (scores.round() if ties else scores).astype(np.float32)
    tokens, inputs = rng.integers(5, 60, n).astype(np.int32), rng.integers(1, 4, n).astype(np.int32)
    part = TracePart(
        qids=Strings.pack([f"q{number}" for number in range(len(sizes))]),
        queries=Strings.pack([f"question {number}" for number in range(len(sizes))]),
        texts=np.zeros(len(sizes), np.uint64),
        seen=np.isin(np.arange(len(sizes)), seen),
        sizes=np.array(sizes),
        docnos=Strings.pack([f"d{number}" for number in range(n)]),
        scores=scores,
        tokens=tokens,
        inputs=inputs,
        **_front(scores[:, -1], sizes, inputs, tokens, front, rng),
    )
    meta = {"ranker": "drawn", "fingerprint": "drawn", "layers": list(layers), "full_layers": 6, "layer_size": 8}
    meta |= {"head_costs": list(layers), "reuses_encodings": True}
    meta["front"] = None if front is None else {"name": "drawn front", "fingerprint": "drawn front"}
    trace = Trace._in_memory(KIND | meta)
    trace._keep(part)
    return trace


def _front(last: np.ndarray, sizes, inputs, tokens, noise: float | None, rng) -> dict[str, np.ndarray]:
    """What a front says that runs 1 of 3 layers of half the size; of the first question it reads half the inputs."""
    n, n_questions = len(last), len(sizes)
    if noise is None:
        return _named(FrontScores.none(n, n_questions))
    scores = last + 3 * noise * rng.normal(size=n)
    ranks = np.concatenate([np.argsort(np.argsort(-part)) for part in np.split(scores, np.cumsum(sizes)[:-1])])
    questions = np.repeat(np.arange(n_questions), sizes)
    inputs, tokens = (np.bincount(questions, one) for one in (inputs, tokens))
    inputs[0] /= 2
    ones = np.ones(n_questions)
    costs = np.stack([inputs, 3 * inputs, tokens, 3 * tokens, 3 * ones, 4 * ones], 1)
    return _named(FrontScores(scores[:, None].astype(np.float32), ranks[:, None].astype(np.int32), costs))


def _named(found: FrontScores) -> dict[str, np.ndarray]:
    return {f"front_{name}": value for name, value in vars(found).items()}
