"""Early exit by the clock: after each head as many candidates go on as the rest of the time can pay for.

Times are read from :func:`perf_counter` in this module alone.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pyterrier_cascade.checks import is_number, warn_user
from pyterrier_cascade.early_exit.pace import Pace
from pyterrier_cascade.early_exit.policy import Plan, Policy
from pyterrier_cascade.early_exit.ranker import HeadScores
from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.encoder.executor import Executor
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.forks import Lock

SAFETY = 0.95
"""The share of the remaining time that is planned for."""

MEASURED = (16, 1_024)
"""The most candidates, and the most tokens, on which a pace is measured first."""

_paces: WeakKeyDictionary[Executor, Pace] = WeakKeyDictionary()
_lock = Lock()


def check_deadline(deadline_ms: Any, policy: Policy, passages: str) -> None:
    """Raises where a deadline is no time, or where it cannot be kept beside another setting."""
    if deadline_ms is None:
        return
    if not is_number(deadline_ms, above=0):
        raise ValueError(f"deadline_ms={deadline_ms!r}: give the milliseconds of a query, above 0, or None")
    batches = None if policy.batch_size is None else ("batch_size", policy.batch_size)
    whole = None if passages == "first" else ("passages", passages)
    for name, value in filter(None, (policy.pruned_by, batches, whole)):
        raise ValueError(f"deadline_ms={deadline_ms!r} and {name}={value!r} exclude each other; give one of them")


@dataclass
class Start:
    """The moment from which deadlines count.

    Attributes:
        began: The moment.
        own: Whether it is that of one cascade; otherwise its question entered a pipeline then, and the cascade later.
        was_read: Whether a ranker counted from it.
        warnings: What rankers said of a time that was too short, where the whole pipeline says it at its end.
    """

    began: float
    own: bool = True
    was_read: bool = False
    warnings: list[str] = field(default_factory=list)

    def warn(self, message: str) -> None:
        """Warns of a time that was too short, now or at the end of the pipeline."""
        if self.own:
            warn_user(message)
        else:
            self.warnings.append(message)


_start: ContextVar[Start | None] = ContextVar("start", default=None)


def start_of_query() -> Start:
    """Returns the moment from which a deadline counts: now, or when the question entered the pipeline."""
    start = _start.get() or Start(perf_counter())
    start.was_read = True
    return start


def is_started() -> bool:
    """Returns whether the clock of a pipeline is running."""
    return _start.get() is not None


@contextlib.contextmanager
def started() -> Iterator[Start]:
    """Starts the clock of a pipeline for one question: deadlines inside count from now on."""
    start = Start(perf_counter(), own=False)
    token = _start.set(start)
    try:
        yield start
    finally:
        _start.reset(token)


def pace_of(executor: Executor) -> Pace:
    """Returns the pace that is kept with an executor, for as long as the executor lives."""
    with _lock:
        return _paces.setdefault(executor, Pace())


class Countdown:
    """Decides by the clock who goes on, as the engine asks after each head; for one query.

    The survivors come best first. Equal scores keep the order that they had before (CT-2).

    Args:
        pace: What spans take; it learns from those that are run.
        layers: The layers of each span.
        tokens: The tokens of each input ``(n,)``.
        ends: The time at which the last span should end.
    """

    def __init__(self, pace: Pace, layers: Sequence[int], tokens: np.ndarray, ends: float):
        self.pace, self.layers, self.tokens, self.ends = pace, layers, tokens, ends
        self._running, self._began = tokens.sum(), perf_counter()

    def __call__(self, head: int, rows: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Returns the inputs that go on after a head; the arguments are those of the engine's ``Keep``."""
        self.ended(head)
        rows = rows[np.argsort(-scores, kind="stable")]
        left = SAFETY * (self.ends - perf_counter())
        rows = rows[: self.pace.go_on(self.tokens[rows], self.layers[head + 1 :], left)]
        self._running, self._began = self.tokens[rows].sum(), perf_counter()
        return rows

    def ended(self, head: int) -> None:
        """Notes that the span before a head has ended."""
        self.pace.ran(self.layers[head], self._running, perf_counter() - self._began)


@dataclass(frozen=True)
class TimedScoring:
    """Scores the candidates of one query after the other, each query by a deadline of its own.

    Attributes:
        executor: The encoder and its heads.
        tokenized: Returns the inputs of some candidates, given their numbers ``(n,)``.
        characters: The characters of query and text of each candidate ``(n,)``.
        most_tokens: The most tokens of an input.
        layers: The layers of the plan's heads.
        stops: The numbers of these heads.
        budget: The most tokens of a chunk, or None.
        progress: Called with the number of candidates that have just been finished.
    """

    executor: Executor
    tokenized: Callable[[np.ndarray], TokenPairs]
    characters: np.ndarray
    most_tokens: int
    layers: tuple[int, ...]
    stops: Sequence[int]
    budget: int | None = None
    progress: Callable[[int], object] = lambda n_done: None

    @property
    def pace(self) -> Pace:
        """The pace of the executor."""
        return pace_of(self.executor)

    @property
    def plan(self) -> Plan:
        """The plan whose first layer, 0, stands for the order of the input."""
        return Plan((0, *self.layers), ((),) * (len(self.layers) + 1))

    def measure(self, candidates: np.ndarray) -> None:
        """Measures the pace on a few candidates: what they take to tokenise, and in the first span.

        Args:
            candidates: The numbers of candidates like those to come.
        """
        candidates, rounds = candidates[: MEASURED[0]], []
        # The first time is slower, because threads start and caches are empty.
        self.tokenized(candidates)
        for _ in range(4):
            pairs = self._read(candidates)
            n_many = max(1, np.searchsorted(np.cumsum(pairs.lengths), MEASURED[1], side="right"))
            parts = [pairs.select(np.arange(n)) for n in (max(1, n_many // 8), n_many)]
            rounds.append([self._first_span(part) for part in parts])
        self.pace.measure([part.lengths.sum() for part in parts], np.median(rounds[1:], axis=0))

    def _first_span(self, pairs: TokenPairs) -> float:
        """Runs the first span and returns the seconds of each of its layers."""
        began = perf_counter()
        run(self.executor, pairs, stops=self.stops[:1], budget=self.budget)
        return (perf_counter() - began) / self.layers[0]

    def _read(self, candidates: np.ndarray) -> TokenPairs:
        """Returns the inputs of some candidates and notes the time that it took."""
        began = perf_counter()
        pairs = self.tokenized(candidates)
        self.pace.read(int(self.characters[candidates].sum()), int(pairs.lengths.sum()), perf_counter() - began)
        return pairs

    def nothing(self, n: int) -> HeadScores:
        """Returns the scores of ``n`` candidates that nothing was read of."""
        scores = np.full((n, 1 + len(self.stops)), np.nan)
        scores[:, 0] = -np.arange(n)
        return HeadScores(np.arange(n), scores, np.ones(n, dtype=np.int64))

    def scores(self, candidates: np.ndarray, ends: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns the scores and the tokens of a query's candidates.

        Candidates that the time does not suffice for are neither tokenised nor scored; their tokens are estimated.

        Args:
            candidates: The numbers of the query's candidates, in the order of the input ``(n,)``.
            ends: The time at which the last span should end.

        Returns:
            The scores at layer 0, which fall with the order of the input, and at the plan's heads, NaN where a
            candidate did not come ``(n, 1 + n_heads)``; the number of tokens of each ``(n,)``.
        """
        pace, spans = self.pace, np.diff(self.layers, prepend=0).tolist()
        characters = self.characters[candidates]
        tokens = np.minimum(np.ceil(pace.tokens_per_character * characters), self.most_tokens).astype(np.int64)
        scores = self.nothing(len(candidates)).scores
        n_read = pace.begin(tokens, spans, SAFETY * (ends - perf_counter()), characters)
        n_run = 0
        if n_read:
            pairs = self._read(candidates[:n_read])
            tokens[:n_read] = pairs.lengths
            n_run = pace.begin(pairs.lengths, spans, SAFETY * (ends - perf_counter()))
        if n_run:
            pairs = pairs.select(np.arange(n_run)) if n_run < n_read else pairs
            keep = Countdown(pace, spans, pairs.lengths, ends)
            groups = np.zeros(n_run, dtype=np.int64)
            found = run(self.executor, pairs, groups, keep, self.stops, self.budget, self.progress)
            keep.ended(len(spans) - 1)
            scores[:n_run, 1:] = found[:, self.stops]
        else:
            pace.rested()
        self.progress(len(candidates) - n_run)
        return scores, tokens

    def of_queries(
        self, rows: np.ndarray, questions: np.ndarray, seconds: float, start: Start, before: float = 0.0
    ) -> HeadScores:
        """Returns the scores of the candidates of all queries; layer 0 stands before the plan's.

        Args:
            rows: The numbers of the candidates, query by query in the order of the input ``(n,)``.
            questions: The query of each as a number ``(n,)``.
            seconds: The time that each query has.
            start: When the work on all queries began, which counts for each by its share.
            before: The seconds of it that went to the transformers before this one.
        """
        queries = np.split(rows, np.flatnonzero(np.diff(questions)) + 1)
        shared, found = (perf_counter() - start.began) / len(queries), []
        for candidates in queries:
            ends = perf_counter() - shared + seconds - self.pace.frame
            found.append(self.scores(candidates, ends))
        scores, tokens = (np.concatenate(parts) for parts in zip(*found, strict=True))
        n_unread = sum(bool(np.isnan(one[:, 1:]).all()) for one, _ in found)
        if n_unread:
            after = f" after {1000 * before:.1f} ms of the transformers before this one" if before else ""
            start.warn(self._late(f"{n_unread} of {len(queries)} queries{after}", seconds, int(tokens.min()), rows))
        return HeadScores(rows, scores, tokens)

    def _late(self, where: str, seconds: float, tokens: int, rows: np.ndarray) -> str:
        """Returns the warning that nothing was scored in some queries."""
        span = 1000 * self.pace.span(self.layers[0], tokens)
        around = 1000 * (self.pace.frame + self.pace.per_character * self.characters[rows].min())
        return (
            f"deadline_ms={1000 * seconds:g} left no time to score anything in {where}, whose candidates keep the "
            f"order of the input: on this machine the first span, {self.layers[0]} layers, takes {span:.1f} ms for the "
            f"shortest candidate, and tokens and the result {around:.1f} ms; give more time, a plan with an earlier "
            "first head, or a smaller model"
        )
