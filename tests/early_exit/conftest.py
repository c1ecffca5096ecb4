"""The saved cascade of these tests, and a clock that computation drives."""

import pytest

from pyterrier_cascade import Cascade
from pyterrier_cascade.early_exit import deadline
from pyterrier_cascade.early_exit import ranker as early_exit_ranker
from pyterrier_cascade.encoder.executor import Executor
from tests.cascades import cascade, encoder, saved  # noqa: F401


class Clock:
    """A clock that computation drives: seconds for each layer and token, each character, and each query's result."""

    def __init__(self):
        self.now, self.per_token, self.per_character, self.per_result = 0.0, 1e-4, 1e-5, 1e-3

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    run, tokenize, ranked_by = Executor.run, Cascade._tokenize, early_exit_ranker.ranked_by

    def timed_run(self, spans, pairs, rows, states):
        first = self.heads[spans.start - 1].layer if spans.start else 0
        clock.now += clock.per_token * (self.heads[spans.stop - 1].layer - first) * int(pairs.lengths[rows].sum())
        return run(self, spans, pairs, rows, states)

    def timed_tokenize(self, queries, texts, *args):
        clock.now += clock.per_character * sum(map(len, queries + texts))
        return tokenize(self, queries, texts, *args)

    def timed_result(plan, found, frame, blocks, *args, **kwargs):
        clock.now += clock.per_result * len(blocks)
        return ranked_by(plan, found, frame, blocks, *args, **kwargs)

    monkeypatch.setattr(deadline, "perf_counter", clock)
    monkeypatch.setattr(Executor, "run", timed_run)
    monkeypatch.setattr(Cascade, "_tokenize", timed_tokenize)
    monkeypatch.setattr(early_exit_ranker, "ranked_by", timed_result)
    return clock
