"""The handover between stages that a pipeline runs one after the other: the next stage goes on where the last ended."""

import dataclasses
import weakref
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from pyterrier_cascade.checks import warn_user
from pyterrier_cascade.encoder.engine import Begun
from pyterrier_cascade.encoder.executor import Executor
from pyterrier_cascade.encoder.pairs import TokenPairs, runs, together
from pyterrier_cascade.encoder.wave_states import WaveStates
from pyterrier_cascade.forks import Lock

LIMIT = 1_000_000_000
"""The most bytes of states that stages leave for later ones, in all frames together.

It is a fixed number, and not a share of the free memory, so that a pipeline costs the same on every machine.
"""

_alive: "weakref.WeakSet[LeftStates]" = weakref.WeakSet()
_lock = Lock()


class LeftStates:
    """The states that candidates have after a stage, and their tokens; found by the words of query and document.

    They live as long as the frame that the stage returned. No stage changes them.

    Args:
        executor: The executor that computed the states.
        reading: The settings that tokens and states depend on beside the executor.
        spans: The number of spans that were run.
        replaced: The states that the stage itself began with: they need no room once the stage has ended.

    Attributes:
        n_bytes: The bytes of the states.
        n_left_out: The number of candidates whose states had no room.
    """

    def __init__(self, executor: Executor, reading: Hashable, spans: int, replaced: "LeftStates | None"):
        self.executor, self.reading, self.spans = weakref.ref(executor), reading, spans
        self.n_bytes = self.n_left_out = 0
        self._replaced = weakref.ref(replaced) if replaced is not None else lambda: None
        self._pairs: list[TokenPairs] = []
        self._states: list[WaveStates] = []
        self._found: dict[tuple[str, str], tuple[int, int, int]] = {}
        with _lock:
            _alive.add(self)

    def add(
        self, queries: Sequence[str], texts: Sequence[str], pairs: TokenPairs, rows: np.ndarray, states: WaveStates
    ) -> None:
        """Copies the states of candidates as far as there is room.

        Args:
            queries: The query of each pair.
            texts: The document of each pair.
            pairs: All pairs.
            rows: The numbers of the inputs to copy, those of a pair together.
            states: The states of these inputs.
        """
        rows = self._reserved(pairs.owner[rows], rows, states.size(rows))
        if not len(rows):
            return
        some = pairs.select(rows)
        starts, (n_inputs, _) = some.first_inputs, some.sizes
        for pair, start, n in zip(some.owner[starts].tolist(), starts.tolist(), n_inputs.tolist(), strict=True):
            self._found[queries[pair], texts[pair]] = len(self._pairs), start, n
        self._pairs.append(some)
        self._states.append(states.copied(some, rows))

    def _reserved(self, owner: np.ndarray, rows: np.ndarray, n_bytes: np.ndarray) -> np.ndarray:
        """Returns the rows that there is room for; a pair has room for all its inputs or for none."""
        with _lock:
            room = LIMIT - sum(one.n_bytes for one in _alive if one is not self._replaced())
            out = np.unique(owner[np.cumsum(n_bytes) > room])
            fits = ~np.isin(owner, out)
            self.n_bytes += int(n_bytes[fits].sum())
        self.n_left_out += len(out)
        return rows[fits]

    def continues(self, reading: Hashable, executor_for: Callable[[TokenPairs], Executor]) -> bool:
        """Returns whether a stage with these settings computes the same states, so that it may go on from here.

        An executor is made anew when weights or calibration change, so the same executor means the same states.

        Args:
            reading: The stage's settings, as in the constructor.
            executor_for: A function of inputs that returns the stage's executor.
        """
        return self.reading == reading and all(self.executor() is executor_for(pairs) for pairs in self._pairs[:1])

    def begin(
        self, queries: Sequence[str], texts: Sequence[str], tokenize: Callable[..., TokenPairs]
    ) -> tuple[TokenPairs, Begun]:
        """Returns candidates as inputs, and the states of those that are known; only the others are tokenised.

        Args:
            queries: The query of each candidate.
            texts: The document of each candidate.
            tokenize: A function of queries and texts.
        """
        nowhere = (-1, 0, 0)
        found = [self._found.get(words, nowhere) for words in zip(queries, texts, strict=True)]
        group, first, sizes = np.array(found, dtype=np.int64).reshape(-1, 3).T
        parts, fresh = [], np.flatnonzero(group < 0)
        if len(fresh):
            new = tokenize([queries[row] for row in fresh], [texts[row] for row in fresh])
            parts.append(dataclasses.replace(new, owner=fresh[new.owner]))
        for number in np.unique(group[group >= 0]):
            rows = np.flatnonzero(group == number)
            part = self._pairs[number].select(runs(first[rows], sizes[rows]))
            parts.append(dataclasses.replace(part, owner=np.repeat(rows, sizes[rows])))
        pairs = together(parts)
        sizes, _ = pairs.sizes
        return pairs, Begun(self.spans, self._states, np.repeat(group, sizes), runs(first, sizes))


class Mark(tuple):
    """The attribute that a stage gives to its frame: the name of the weights, the layer, and the states behind it.

    pandas copies attributes deeply whenever it makes a frame from another, and writes them as JSON to a file; all
    copies share the states. A pickle and a file hold only name and layer.

    Args:
        weights: The name of the weights.
        layer: The layer whose head judged the frame last.
        left: The states.
    """

    left: LeftStates | None

    def __new__(cls, weights: str, layer: int, left: LeftStates | None = None):
        """Returns the mark, a tuple of name and layer."""
        mark = super().__new__(cls, (weights, layer))
        mark.left = left
        return mark

    def __copy__(self) -> "Mark":
        return self

    def __deepcopy__(self, memo: dict) -> "Mark":
        return self

    def __reduce__(self):
        return Mark, tuple(self)


class Handover:
    """The states that one stage takes over and those that it leaves.

    Args:
        given: The states that came with the frame, or None.
        leaves: Whether a later stage can go on from this one.

    Attributes:
        left: The states that the stage left; None before it ran, and where it leaves none.
    """

    def __init__(self, given: LeftStates | None = None, leaves: bool = False):
        self.left: LeftStates | None = None
        self._given, self._leaves = given, leaves
        self._n_again = 0

    @property
    def is_empty(self) -> bool:
        """Whether the stage takes nothing over and leaves nothing."""
        return self._given is None and not self._leaves

    def open(self, reading: Hashable, executor_for: Callable[[TokenPairs], Executor]) -> None:
        """Forgets the given states if the stage cannot go on from them; the arguments are those of ``continues``."""
        self._reading = reading
        if self._given is not None and not self._given.continues(reading, executor_for):
            self._given = None

    def take(
        self, queries: Sequence[str], texts: Sequence[str], tokenize: Callable[..., TokenPairs]
    ) -> tuple[TokenPairs, Begun | None]:
        """Returns candidates as inputs, and the states of those that were handed over; see ``LeftStates.begin``."""
        if self._given is None:
            return tokenize(queries, texts), None
        pairs, begun = self._given.begin(queries, texts, tokenize)
        self._n_again += int((begun.group[pairs.first_inputs] < 0).sum())
        return pairs, begun

    def leave(
        self, executor: Executor, spans: int, queries: Sequence[str], texts: Sequence[str], pairs: TokenPairs
    ) -> Callable[[np.ndarray, WaveStates], None] | None:
        """Returns the function by which the engine leaves states for the next stage; None if there cannot be one.

        Args:
            executor: The executor.
            spans: The number of spans that are run.
            queries: The query of each candidate.
            texts: The document of each candidate.
            pairs: The candidates as inputs.
        """
        if not self._leaves:
            return None
        if self.left is None:
            self.left = LeftStates(executor, self._reading, spans, self._given)
        return lambda rows, states: self.left.add(queries, texts, pairs, rows, states)

    def warn(self, n_candidates: int) -> None:
        """Warns if candidates began again because their states had no room.

        Args:
            n_candidates: The number of the stage's candidates.
        """
        if self._given is not None and self._given.n_left_out and self._n_again:
            warn_user(
                f"{self._n_again} of {n_candidates} candidates begin again at layer 1, because stages may hand over "
                f"{LIMIT / 1e6:,.0f} MB of states; pipeline.compile() fuses the stages, which then hand nothing over"
            )
