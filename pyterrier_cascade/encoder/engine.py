"""The engine: it runs inputs through spans of layers, and after each head a rule decides which inputs go on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pyterrier_cascade.checks import check_scores
from pyterrier_cascade.encoder.chunks import chunks, waves
from pyterrier_cascade.encoder.device import free_memory
from pyterrier_cascade.encoder.executor import Executor
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.wave_states import WaveStates

WAVE_BYTES = 100_000_000
"""The most bytes of a wave's states; a single group of inputs may take more."""

WAVE_SHARE = 0.25
"""The share of a GPU's free memory that the states of a wave may take, in place of :data:`WAVE_BYTES`."""

Keep = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""The rule of an early exit: a function of a stop's number, the numbers of inputs, and their scores at that stop.

It returns the numbers of the inputs that go on.
"""


@dataclass(frozen=True)
class Begun:
    """The states with which inputs begin whose first spans an earlier run has computed.

    Attributes:
        spans: The number of these spans.
        states: The states behind them, of inputs in one or several groups.
        group: The number of the group that holds each input's states; -1 for inputs that begin with their tokens,
            ``(n_inputs,)``.
        numbers: The number of each input in its group, ``(n_inputs,)``.
    """

    spans: int
    states: Sequence[WaveStates]
    group: np.ndarray
    numbers: np.ndarray

    def fill(self, rows: np.ndarray, states: WaveStates) -> None:
        """Copies the states of some inputs, all of which have begun, to where a run reads them."""
        for group in np.unique(self.group[rows]):
            mine = rows[self.group[rows] == group]
            states.take(mine, self.states[group], self.numbers[mine])


def run(
    executor: Executor,
    pairs: TokenPairs,
    groups: np.ndarray | None = None,
    keep: Keep | None = None,
    stops: Sequence[int] | None = None,
    budget: int | None = None,
    progress: Callable[[int], object] = lambda n_done: None,
    begun: Begun | None = None,
    leave: Callable[[np.ndarray, WaveStates], object] | None = None,
) -> np.ndarray:
    """Returns the score of each input at each head, ``(n_inputs, n_heads)``, NaN at heads that the input did not reach.

    Apart from rounding, scores depend neither on the other inputs of a chunk nor on the number of threads. A score that
    is NaN or infinite is an error. On a GPU without memory for a chunk, this and later runs have smaller chunks.

    Args:
        executor: The encoder and its heads, ready to run.
        pairs: The inputs.
        groups: The group of each input as a number, ``(n_inputs,)``; ``keep`` always sees whole groups. Needed with
            ``keep``.
        keep: The rule that decides which inputs go on; None lets all inputs go to the end.
        stops: The numbers of the heads at which ``keep`` is called, ascending, and after them the number of the head
            where the last inputs end; all heads unless given.
        budget: The most tokens of a chunk; the executor's own number unless given.
        progress: Called with the number of inputs that have just been finished.
        begun: The states with which some inputs begin, before the first stop. Only with ``keep``.
        leave: Called with the numbers of the inputs that go on after the last stop, and with the states of their wave,
            which it may copy. ``keep`` is called at the last stop too then. Only with ``keep``.
    """
    n_inputs, n_heads = len(pairs.lengths), len(executor.heads)
    stops = range(n_heads) if stops is None else stops
    scores = np.full((n_inputs, n_heads), np.nan, dtype=np.float32)
    with executor.workers() as pool:

        def stage(spans: range, rows: np.ndarray, states: WaveStates | None) -> None:
            most = min(budget or executor.budget, executor.limit)
            parts = chunks(pairs.lengths[rows], most, pool.n_threads, executor.padding)
            # The largest chunks come first, so that the workers finish at about the same time.
            parts = sorted((rows[part] for part in parts), key=lambda part: -pairs.lengths[part].sum())
            found, rest = [], None
            try:
                for result in pool.map(lambda part: executor.run(spans, pairs, part, states), parts):
                    found.append(result)
                    if spans.stop > stops[-1]:
                        progress(result.shape[1])
            except torch.cuda.OutOfMemoryError:
                failed = parts[len(found)]
                if len(failed) == 1:
                    raise
                executor.limit = max(1, int(pairs.lengths[failed].sum()) // 2)
                rest = np.concatenate(parts[len(found) :])
            if found:
                done = np.concatenate(parts[: len(found)])
                scores[done, spans.start : spans.stop] = torch.cat(found, 1).cpu().numpy().T
                for number in spans:
                    name = f"scores after layer {executor.heads[number].layer}"
                    check_scores(scores[done, number], name, executor.precision)
            # Here and not above, because an exception under way keeps the tensors of what failed alive.
            if rest is not None:
                stage(spans, rest, states)

        def copy(work: Callable[[np.ndarray, WaveStates], object], rows: np.ndarray, states: WaveStates) -> None:
            # Like all computation on a CPU, copies run in a worker: torch's threads of the calling thread stay asleep.
            list(pool.map(lambda rows: work(rows, states), [rows]))

        if keep is None:
            stage(range(stops[-1] + 1), np.arange(n_inputs), None)
            return scores
        free = free_memory(executor.device)
        limit = int(WAVE_BYTES if free is None else WAVE_SHARE * free) // (executor.width * executor.dtype.itemsize)
        for wave in waves(pairs.lengths, groups, limit):
            states = WaveStates(pairs, wave, executor.width, executor.dtype, executor.device)
            rows, reached = wave, 0
            if begun is not None:
                fresh, reached = begun.group[wave] < 0, begun.spans
                stage(range(reached), wave[fresh], states)
                copy(begun.fill, wave[~fresh], states)
            for number, stop in enumerate(stops):
                stage(range(reached, stop + 1), rows, states)
                judged, reached = scores[rows, stop], stop + 1
                if stop != stops[-1]:
                    survivors = keep(number, rows, judged)
                    progress(len(rows) - len(survivors))
                    rows = survivors
            if leave is not None:
                copy(leave, keep(len(stops) - 1, rows, judged), states)
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
