"""Waves of questions through spans: which inputs go on, what they cost, and what the rule sees."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_cascade.encoder import engine
from tests.encoder import spans


def best(share: float, groups: np.ndarray):
    """The best share of each group goes on, rounded up."""

    def keep(head, rows, scores):
        kept = []
        for group in np.unique(groups[rows]):
            of_group = groups[rows] == group
            order = rows[of_group][np.argsort(-scores[of_group], kind="stable")]
            kept.append(order[: int(np.ceil(share * len(order)))])
        return np.sort(np.concatenate([rows[:0], *kept]))

    return keep


def by_hand(whole: np.ndarray, groups: np.ndarray, share: float) -> np.ndarray:
    """The same from the scores of a full pass."""
    expected, keep = np.full_like(whole, np.nan), best(share, groups)
    rows = np.arange(len(whole))
    for head in range(whole.shape[1]):
        expected[rows, head] = whole[rows, head]
        rows = keep(head, rows, whole[rows, head])
    return expected


@given(
    lengths=st.lists(st.integers(2, 60), min_size=1, max_size=60),
    n_groups=st.integers(1, 7),
    share=st.sampled_from([0.1, 0.5, 0.7, 1.0]),
    wave_bytes=st.sampled_from([1, 5_000, 10**8]),
    padding=st.sampled_from([None, 0.08]),
    pooling=st.sampled_from(["mean_nocls", "cls"]),
    seed=st.integers(0, 3),
)
def test_early_exit_is_a_full_pass_cut_short(encoder, lengths, n_groups, share, wave_bytes, padding, pooling, seed):
    """Whatever the sizes, waves and layout: the scores of the full pass where an input got to, NaN elsewhere."""
    pairs = spans.inputs(lengths, seed=seed)
    groups = np.random.default_rng(seed).integers(0, n_groups, len(lengths))
    made = spans.executor(encoder("bert"), pooling, padding=padding)
    whole = engine.run(made, pairs)
    assert whole.shape == (len(lengths), 3) and not np.isnan(whole).any()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "WAVE_BYTES", wave_bytes)
        got = engine.run(made, pairs, groups, best(share, groups))
    np.testing.assert_allclose(got, by_hand(whole, groups, share), atol=1e-5, rtol=0)


def test_the_rule_sees_whole_groups_and_progress_every_input_once(encoder, monkeypatch):
    monkeypatch.setattr(engine, "WAVE_BYTES", 32 * 4 * 40)
    pairs, groups = spans.inputs([10] * 9), np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
    seen, done = [], []

    def keep(head, rows, scores):
        seen.append((head, rows.tolist()))
        assert scores.shape == rows.shape
        return rows[: 2 - head]

    engine.run(spans.executor(encoder("bert")), pairs, groups, keep, progress=done.append)
    assert seen == [(0, [0, 3, 6]), (1, [0, 3]), (0, [1, 4, 7]), (1, [1, 4]), (0, [2, 5, 8]), (1, [2, 5])]
    assert sum(done) == 9


def test_a_rule_may_drop_everyone(encoder):
    pairs = spans.inputs([5, 6])
    got = engine.run(spans.executor(encoder("bert")), pairs, np.zeros(2, int), lambda head, rows, scores: rows[:0])
    assert np.isnan(got[:, 1:]).all() and not np.isnan(got[:, 0]).any()


def test_no_inputs(encoder):
    pairs = spans.inputs([])
    assert engine.run(spans.executor(encoder("bert")), pairs).shape == (0, 3)
    assert engine.run(
        spans.executor(encoder("bert")), pairs, np.array([], int), best(0.5, np.array([], int))
    ).shape == (0, 3)


def test_layers_that_no_input_reaches_are_not_run(encoder):
    """A candidate that leaves at layer 1 costs one layer: the tokens that each layer sees."""
    made, seen = spans.executor(encoder("bert")), []
    for number, layer in enumerate(made.encoder.layers, start=1):
        layer.register_forward_hook(lambda module, given, out, number=number: seen.append((number, len(out))))
    pairs, groups = spans.inputs([16] * 8), np.zeros(8, int)
    engine.run(made, pairs, groups, best(0.5, groups))
    tokens = {number: sum(n for layer, n in seen if layer == number) for number in (1, 2, 3, 4)}
    assert tokens == {1: 128, 2: 64, 3: 32, 4: 32}


def test_ten_thousand_candidates_of_one_query(encoder):
    lengths = np.random.default_rng(0).integers(3, 12, 10_000)
    pairs, groups, made = spans.inputs(lengths), np.zeros(10_000, int), spans.executor(encoder("bert"))
    got = engine.run(made, pairs, groups, best(0.5, groups))
    assert (~np.isnan(got)).sum(0).tolist() == [10_000, 5_000, 2_500]
    some = np.flatnonzero(~np.isnan(got[:, 2]))[::500]
    np.testing.assert_allclose(got[some], engine.run(made, pairs.select(some)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("budget", [1, 37, 512, 100_000])
def test_scores_depend_neither_on_threads_nor_on_chunks(encoder, budget):
    pairs = spans.inputs(np.random.default_rng(1).integers(2, 90, 60))
    made, before = spans.executor(encoder("bert")), torch.get_num_threads()
    expected = engine.run(made, pairs)
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            np.testing.assert_allclose(engine.run(made, pairs, budget=budget), expected, atol=1e-5, rtol=0)
    finally:
        torch.set_num_threads(before)


def test_few_candidates_are_dealt_to_all_threads(encoder, two_threads):
    """After each head anew: eight of ten tokens would be one chunk, and one thread would wait."""
    made, parts = spans.executor(encoder("bert")), []
    run = made.run
    made.run = lambda spans, pairs, rows, states: (
        parts.append((spans.start, len(rows))),
        run(spans, pairs, rows, states),
    )[1]
    groups = np.zeros(8, int)
    engine.run(made, spans.inputs([10] * 8), groups, best(0.5, groups))
    assert sorted(parts) == [(0, 4), (0, 4), (1, 2), (1, 2), (2, 1), (2, 1)]


def test_chunks_have_the_tokens_that_are_asked_for_and_the_largest_are_first(encoder):
    made, parts = spans.executor(encoder("bert")), []
    run = made.run
    made.run = lambda spans, pairs, rows, states: (
        parts.append(pairs.lengths[rows].sum()),
        run(spans, pairs, rows, states),
    )[1]
    engine.run(made, spans.inputs(range(2, 30)), budget=100)
    # 434 tokens; an input belongs to the chunk in which its middle lies, so that none is exactly a fifth.
    assert len(parts) == 5 and max(parts) < 120 and parts == sorted(parts, reverse=True)


def test_layers_above_the_last_stop_are_not_run(encoder):
    made, seen = spans.executor(encoder("bert")), set()
    for number, layer in enumerate(made.encoder.layers, start=1):
        layer.register_forward_hook(lambda module, given, out, number=number: seen.add(number))
    got = engine.run(made, spans.inputs([5, 9]), stops=[1])
    assert seen == {1, 2} and np.isnan(got[:, 2]).all() and not np.isnan(got[:, :2]).any()


def test_two_callers_at_the_same_time(encoder, two_threads):
    pairs = spans.inputs(np.random.default_rng(2).integers(2, 90, 80))
    made = spans.executor(encoder("bert"))
    expected, found = engine.run(made, pairs), {}

    def call(name):
        for _ in range(5):
            found[name] = engine.run(made, pairs)

    callers = [threading.Thread(target=call, args=(name,)) for name in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for got in found.values():
        np.testing.assert_allclose(got, expected, atol=1e-5, rtol=0)
    assert torch.get_num_threads() == 2


def test_memory_does_not_grow_with_the_number_of_queries(encoder, monkeypatch):
    """What lives between heads is one wave: the largest number of states at a time."""
    most = []
    monkeypatch.setattr(engine, "WAVE_BYTES", 32 * 4 * 1_000)
    original = engine.WaveStates.__init__

    def counted(self, pairs, rows, *more):
        original(self, pairs, rows, *more)
        most.append(len(self._states))

    monkeypatch.setattr(engine.WaveStates, "__init__", counted)
    for n_queries in (10, 40):
        pairs, groups = spans.inputs([10] * 20 * n_queries), np.repeat(np.arange(n_queries), 20)
        engine.run(spans.executor(encoder("bert")), pairs, groups, best(0.5, groups))
    assert max(most) <= 1_000 and len(most) == 2 + 8


@pytest.mark.parametrize("wave_bytes", [5_000, 10**8])
@pytest.mark.parametrize("n_fresh", [0, 7, 30])
def test_inputs_go_on_from_states_that_an_earlier_run_left(encoder, monkeypatch, wave_bytes, n_fresh):
    """Some inputs begin with states after the first span, in another order and other waves; the others from tokens."""
    monkeypatch.setattr(engine, "WAVE_BYTES", wave_bytes)
    lengths, made = np.random.default_rng(3).integers(2, 40, 30), spans.executor(encoder("bert"))
    pairs, groups, left = spans.inputs(lengths), np.arange(30) % 4, []
    whole = engine.run(made, pairs)

    def everyone(head, rows, scores):
        return rows

    def leave(rows, states):
        left.append((rows, states.copied(pairs.select(rows), rows)))

    engine.run(made, pairs, groups, best(0.5, groups), stops=[0], leave=leave)
    kept = np.sort(np.concatenate([rows for rows, _ in left]))
    assert kept.tolist() == np.sort(best(0.5, groups)(0, np.arange(30), whole[:, 0])).tolist()
    left.clear()
    engine.run(made, pairs, groups, everyone, stops=[0], leave=leave)
    place, number = np.full(30, -1), np.zeros(30, int)
    for piece, (rows, _) in enumerate(left):
        place[rows], number[rows] = piece, np.arange(len(rows))
    order = np.random.default_rng(4).permutation(30)
    place[order[:n_fresh]] = -1
    begun = engine.Begun(1, [states for _, states in left], place[order], number[order])
    seen, run = [], made.run
    made.run = lambda spans, *more: seen.append((spans.start, len(more[1]))) or run(spans, *more)
    got = engine.run(made, pairs.select(order), groups[order] // 2, everyone, stops=[1, 2], begun=begun)
    np.testing.assert_allclose(got[:, 1:], whole[order, 1:], atol=1e-5, rtol=0)
    assert [sum(n for start, n in seen if start == one) for one in (0, 1, 2)] == [n_fresh, 30, 30]
