"""Waves of questions through spans: who goes on, what it costs, and how it stops."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_cascade.encoder import engine
from pyterrier_cascade.encoder.executors import Executors, check_engine
from pyterrier_cascade.encoder.torch_executor import TorchExecutor
from pyterrier_cascade.encoder.workers import workers
from tests.encoder import spans

CPU = torch.device("cpu")


def executor(encoder, pooling="mean_nocls", **more) -> TorchExecutor:
    made = TorchExecutor(encoder, spans.heads(pooling), CPU)
    for name, value in more.items():
        setattr(made, name, value)
    return made


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
    made = executor(encoder("bert"), pooling, padding=padding)
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

    engine.run(executor(encoder("bert")), pairs, groups, keep, progress=done.append)
    assert seen == [(0, [0, 3, 6]), (1, [0, 3]), (0, [1, 4, 7]), (1, [1, 4]), (0, [2, 5, 8]), (1, [2, 5])]
    assert sum(done) == 9


def test_a_rule_may_drop_everyone(encoder):
    pairs = spans.inputs([5, 6])
    got = engine.run(executor(encoder("bert")), pairs, np.zeros(2, int), lambda head, rows, scores: rows[:0])
    assert np.isnan(got[:, 1:]).all() and not np.isnan(got[:, 0]).any()


def test_nobody_to_score(encoder):
    pairs = spans.inputs([])
    assert engine.run(executor(encoder("bert")), pairs).shape == (0, 3)
    assert engine.run(executor(encoder("bert")), pairs, np.array([], int), best(0.5, np.array([], int))).shape == (0, 3)


def test_layers_that_nobody_reaches_are_not_run(encoder):
    """A candidate that leaves at layer 1 costs one layer: the tokens that each layer sees."""
    made, seen = executor(encoder("bert")), []
    for number, layer in enumerate(made.encoder.layers, start=1):
        layer.register_forward_hook(lambda module, given, out, number=number: seen.append((number, len(out))))
    pairs, groups = spans.inputs([16] * 8), np.zeros(8, int)
    engine.run(made, pairs, groups, best(0.5, groups))
    tokens = {number: sum(n for layer, n in seen if layer == number) for number in (1, 2, 3, 4)}
    assert tokens == {1: 128, 2: 64, 3: 32, 4: 32}


def test_ten_thousand_candidates_of_one_query(encoder):
    lengths = np.random.default_rng(0).integers(3, 12, 10_000)
    pairs, groups, made = spans.inputs(lengths), np.zeros(10_000, int), executor(encoder("bert"))
    got = engine.run(made, pairs, groups, best(0.5, groups))
    assert (~np.isnan(got)).sum(0).tolist() == [10_000, 5_000, 2_500]
    some = np.flatnonzero(~np.isnan(got[:, 2]))[::500]
    np.testing.assert_allclose(got[some], engine.run(made, pairs.select(some)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("budget", [1, 37, 512, 100_000])
def test_scores_depend_neither_on_threads_nor_on_chunks(encoder, budget):
    pairs = spans.inputs(np.random.default_rng(1).integers(2, 90, 60))
    made, before = executor(encoder("bert")), torch.get_num_threads()
    expected = engine.run(made, pairs)
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            np.testing.assert_allclose(engine.run(made, pairs, budget=budget), expected, atol=1e-5, rtol=0)
    finally:
        torch.set_num_threads(before)


def test_each_worker_has_one_core_and_the_caller_its_own_setting(two_threads, monkeypatch):
    """Also a thread that is started while workers are open, and one after them."""
    # Workers that are kept from another test would have been started otherwise.
    monkeypatch.setattr("pyterrier_cascade.encoder.workers._idle", {})

    def setting():
        found = []
        thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        return found[0]

    with workers() as pool:
        assert pool.n_threads == 2
        # Work makes torch look its setting up once more.
        found = list(
            pool.map(lambda _: (torch.ones(300, 300) @ torch.ones(300, 300), torch.get_num_threads()), range(8))
        )
        assert {n_threads for _, n_threads in found} == {1}
        assert torch.get_num_threads() == 2 and setting() == 2
    assert torch.get_num_threads() == 2 and setting() == 2


def used(pool):
    """The threads of a pool, each seen by a piece of work that waits for the others."""
    barrier = threading.Barrier(pool.n_threads)
    return set(pool.map(lambda _: (barrier.wait(10), threading.current_thread())[1], range(pool.n_threads)))


def test_the_next_caller_has_the_same_threads_and_two_at_a_time_have_their_own(two_threads):
    with workers() as one:
        first = used(one)
    with workers() as one, workers() as other:
        inner, outer = used(other), used(one)
    assert len(first) == 2 and first == outer and not inner & outer
    # One pool is enough to keep.
    assert sorted(thread.is_alive() for thread in inner | outer) == [False, False, True, True]
    torch.set_num_threads(3)
    with workers() as three:
        assert len(used(three)) == 3 and not used(three) & (inner | outer)


def test_items_are_made_a_few_ahead(two_threads):
    made = []
    with workers() as pool:
        results = pool.map(lambda n: n * n, (made.append(n) or n for n in range(20)))
        assert next(results) == 0 and made == [0, 1, 2, 3, 4]
        assert [*results] == [n * n for n in range(1, 20)]


def test_few_candidates_are_dealt_to_all_threads(encoder, two_threads):
    """After each head anew: eight of ten tokens would be one chunk, and one thread would wait."""
    made, parts = executor(encoder("bert")), []
    run = made.run
    made.run = lambda spans, pairs, rows, states: (
        parts.append((spans.start, len(rows))),
        run(spans, pairs, rows, states),
    )[1]
    groups = np.zeros(8, int)
    engine.run(made, spans.inputs([10] * 8), groups, best(0.5, groups))
    assert sorted(parts) == [(0, 4), (0, 4), (1, 2), (1, 2), (2, 1), (2, 1)]


def test_chunks_have_the_tokens_that_are_asked_for_and_the_largest_are_first(encoder):
    made, parts = executor(encoder("bert")), []
    run = made.run
    made.run = lambda spans, pairs, rows, states: (
        parts.append(pairs.lengths[rows].sum()),
        run(spans, pairs, rows, states),
    )[1]
    engine.run(made, spans.inputs(range(2, 30)), budget=100)
    # 434 tokens; an input belongs to the chunk in which its middle lies, so that none is exactly a fifth.
    assert len(parts) == 5 and max(parts) < 120 and parts == sorted(parts, reverse=True)


def test_layers_above_the_last_stop_are_not_run(encoder):
    made, seen = executor(encoder("bert")), set()
    for number, layer in enumerate(made.encoder.layers, start=1):
        layer.register_forward_hook(lambda module, given, out, number=number: seen.add(number))
    got = engine.run(made, spans.inputs([5, 9]), stops=[1])
    assert seen == {1, 2} and np.isnan(got[:, 2]).all() and not np.isnan(got[:, :2]).any()


def test_two_callers_at_the_same_time(encoder, two_threads):
    pairs = spans.inputs(np.random.default_rng(2).integers(2, 90, 80))
    made = executor(encoder("bert"))
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


def test_an_error_in_a_chunk_reaches_the_caller_and_ends_the_threads(encoder, two_threads):
    made, threads = executor(encoder("bert"), budget=20), set()

    def fail(*args):
        threads.add(threading.current_thread())
        raise RuntimeError("out of memory")

    made.run = fail
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.run(made, spans.inputs([10] * 20))
    assert threads and not any(thread.is_alive() for thread in threads) and torch.get_num_threads() == 2


FORKED = """
import multiprocessing, os, sys
import numpy as np, torch
torch.set_num_threads(2)
sys.path[:0] = {path!r}
import spans, tiny, transformers
from pyterrier_cascade.encoder import engine
from pyterrier_cascade.encoder.torch_executor import TorchExecutor

tiny.save({folder!r}, layers=4, outputs=None)
encoder = transformers.AutoModel.from_pretrained({folder!r}, dtype=torch.float32).eval()
made = TorchExecutor(encoder, spans.heads(), torch.device("cpu"))
pairs = spans.inputs(np.random.default_rng(3).integers(2, 90, 200))
expected = engine.run(made, pairs)
# The calling process has computed with all its threads before.
torch.ones(2_000, 2_000) @ torch.ones(2_000, 2_000)
pid = os.fork()
if pid == 0:
    np.testing.assert_allclose(engine.run(made, pairs), expected, atol=1e-5)
    print("child scored", flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
np.testing.assert_allclose(engine.run(made, pairs), expected, atol=1e-5)
print("parent scored, child ended with", status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_goes_on_scoring(tmp_path):
    program = FORKED.format(path=sys.path, folder=str(tmp_path))
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert "child scored\nparent scored, child ended with 0\n" in out.stdout, out.stderr[-2_000:]


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np, torch
torch.set_num_threads(2)
sys.path[:0] = {path!r}
import spans, tiny, transformers
from pyterrier_cascade.encoder import engine, workers
from pyterrier_cascade.encoder.torch_executor import TorchExecutor

tiny.save({folder!r}, layers=4, outputs=None)
encoder = transformers.AutoModel.from_pretrained({folder!r}, dtype=torch.float32).eval()
made = TorchExecutor(encoder, spans.heads(), torch.device("cpu"))
pairs = spans.inputs([100] * 100)
# Who runs the tests in the background ignores the signal, and what it starts inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        engine.run(made, pairs, budget=100)
except KeyboardInterrupt:
    # Those that wait for a next caller are meant to, if the signal came between two calls.
    waiting = set().union(*(pool._threads._threads for pool in workers._idle.values()))
    left = [thread.name for thread in set(threading.enumerate()) - waiting if "encoder" in thread.name]
    print("stopped", left, torch.get_num_threads(), flush=True)
print(engine.run(made, pairs).shape)
"""


def test_ctrl_c_leaves_nothing_hanging(tmp_path):
    program = INTERRUPTED.format(path=sys.path, folder=str(tmp_path))
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert out.stdout == "stopped [] 2\n(100, 3)\n", out.stderr[-2_000:]


def test_memory_does_not_grow_with_the_number_of_queries(encoder, monkeypatch):
    """What lives between heads is one wave: the largest number of states at a time."""
    most = []
    monkeypatch.setattr(engine, "WAVE_BYTES", 32 * 4 * 1_000)
    original = engine.States.__init__

    def counted(self, pairs, rows, *more):
        original(self, pairs, rows, *more)
        most.append(len(self._states))

    monkeypatch.setattr(engine.States, "__init__", counted)
    for n_queries in (10, 40):
        pairs, groups = spans.inputs([10] * 20 * n_queries), np.repeat(np.arange(n_queries), 20)
        engine.run(executor(encoder("bert")), pairs, groups, best(0.5, groups))
    assert max(most) <= 1_000 and len(most) == 2 + 8


def test_executors_are_made_once_and_anew_when_weights_change(encoder):
    model, pairs = encoder("bert", hidden_dropout_prob=0.0), spans.inputs([5, 9])
    made = Executors(model, spans.heads())
    first = made.get("torch", "fp32", None, pairs)
    assert made.get("torch", "fp32", "cpu", pairs) is first
    assert made.get("torch", "bf16", None, pairs) is not first
    before = engine.run(first, pairs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(**pairs.batch([0, 1])).last_hidden_state.square().sum().backward()
    optimizer.step()
    second = made.get("torch", "fp32", None, pairs)
    after = engine.run(second, pairs)
    assert second is not first and np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, spans.reference(model, pairs, "mean_nocls"), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("onnx", "fp32", None), "engine must be one of torch, openvino, not 'onnx'"),
        (
            ("torch", "int8", None),
            "precision must be one of fp32, bf16 with engine='torch', not 'int8' (int8 needs engine='openvino')",
        ),
        (
            ("openvino", "fp16", None),
            "precision must be one of fp32, bf16, int8, mixed with engine='openvino', not 'fp16'",
        ),
        (
            ("openvino", "bf16", "cuda:0"),
            "engine='openvino' computes on the CPU, not on device='cuda:0'; use engine='torch'",
        ),
    ],
)
def test_engines_are_checked_at_the_door(given, message):
    with pytest.raises(ValueError) as error:
        check_engine(*given)
    assert str(error.value) == message
