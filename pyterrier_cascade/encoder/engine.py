"""The engine: it runs inputs through spans of layers, and after each head a rule decides which inputs go on."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from pyterrier_cascade.encoder.chunks import chunks, waves
from pyterrier_cascade.encoder.executor import Executor
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.wave_states import WaveStates

WAVE_BYTES = 100_000_000
"""The most bytes of a wave's states; a single group of inputs may take more."""

Keep = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""The rule of an early exit: a function of a stop's number, the numbers of inputs, and their scores at that stop.

It returns the numbers of the inputs that go on.
"""


def run(
    executor: Executor,
    pairs: TokenPairs,
    groups: np.ndarray | None = None,
    keep: Keep | None = None,
    stops: Sequence[int] | None = None,
    budget: int | None = None,
    progress: Callable[[int], object] = lambda n_done: None,
) -> np.ndarray:
    """Returns the score of each input at each head, ``(n_inputs, n_heads)``, NaN at heads that the input did not reach.

    Apart from rounding, scores depend neither on the other inputs of a chunk nor on the number of threads.

    Args:
        executor: The encoder and its heads, ready to run.
        pairs: The inputs.
        groups: The group of each input as a number, ``(n_inputs,)``; ``keep`` always sees whole groups. Needed with
            ``keep``.
        keep: The rule that decides which inputs go on; None lets all inputs go to the end. With a rule, a NaN score is
            an error.
        stops: The numbers of the heads at which ``keep`` is called, ascending, and after them the number of the head
            where the last inputs end; all heads unless given.
        budget: The most tokens of a chunk; the executor's own number unless given.
        progress: Called with the number of inputs that have just been finished.
    """
    n_inputs, n_heads = len(pairs.lengths), len(executor.heads)
    stops = range(n_heads) if stops is None else stops
    scores = np.full((n_inputs, n_heads), np.nan, dtype=np.float32)
    with executor.workers() as pool:

        def stage(spans: range, rows: np.ndarray, states: WaveStates | None) -> None:
            parts = chunks(pairs.lengths[rows], budget or executor.budget, pool.n_threads, executor.padding)
            # The largest chunks come first, so that the workers finish at about the same time.
            parts = sorted((rows[part] for part in parts), key=lambda part: -pairs.lengths[part].sum())
            found = []
            for result in pool.map(lambda part: executor.run(spans, pairs, part, states), parts):
                found.append(result)
                if spans.stop > stops[-1]:
                    progress(result.shape[1])
            if found:
                scores[np.concatenate(parts), spans.start : spans.stop] = torch.cat(found, 1).cpu().numpy().T

        if keep is None:
            stage(range(stops[-1] + 1), np.arange(n_inputs), None)
            return scores
        limit = WAVE_BYTES // (executor.width * executor.dtype.itemsize)
        for wave in waves(pairs.lengths, groups, limit):
            states = WaveStates(pairs, wave, executor.width, executor.dtype, executor.device)
            rows, reached = wave, 0
            for number, stop in enumerate(stops):
                stage(range(reached, stop + 1), rows, states)
                judged, reached = scores[rows, stop], stop + 1
                if np.isnan(judged).any():
                    n_broken, layer = int(np.isnan(judged).sum()), executor.heads[stop].layer
                    raise ValueError(
                        f"{n_broken} of {len(judged)} scores after layer {layer} "
                        "are NaN; the model's weights are broken (a diverged training?)"
                    )
                if stop != stops[-1]:
                    survivors = keep(number, rows, judged)
                    progress(len(rows) - len(survivors))
                    rows = survivors
    return scores


def read(
    executor: Executor,
    pairs: TokenPairs,
    budget: int | None = None,
    progress: Callable[[int], object] = lambda n_done: None,
) -> np.ndarray:
    """Returns the vectors that each head's module makes of each input, ``(n_inputs, n_heads, width)`` in fp32.

    The heads are modules that return vectors ``(n, width)`` in place of scores, such as the pooled states themselves.

    Args:
        executor: The encoder and such heads, ready to run.
        pairs: The inputs.
        budget: The most tokens of a chunk; the executor's own number unless given.
        progress: Called with the number of inputs that have just been read.
    """
    found: list[np.ndarray] = []
    with executor.workers() as pool:
        parts = chunks(pairs.lengths, budget or executor.budget, pool.n_threads, executor.padding)
        for result in pool.map(lambda part: executor.run(range(len(executor.heads)), pairs, part, None), parts):
            found.append(result.float().cpu().numpy())
            progress(result.shape[1])
    order = np.argsort(np.concatenate(parts))
    return np.concatenate(found, axis=1).swapaxes(0, 1)[order]
