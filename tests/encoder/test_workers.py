"""Threads that compute at the same time: settings of torch, order of the results, errors, forks and Ctrl-C."""

import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from pyterrier_cascade.encoder import engine
from pyterrier_cascade.encoder.workers import ahead, calling_thread, workers
from tests.encoder import spans


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


def test_an_error_in_a_chunk_reaches_the_caller_and_ends_the_threads(encoder, two_threads):
    made, threads = spans.executor(encoder("bert"), budget=20), set()

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
import transformers
from pyterrier_cascade.encoder import engine
from pyterrier_cascade.encoder.torch_executor import TorchExecutor
from tests import tiny
from tests.encoder import spans

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
import transformers
from pyterrier_cascade.encoder import engine, workers
from pyterrier_cascade.encoder.torch_executor import TorchExecutor
from tests import tiny
from tests.encoder import spans

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


def test_the_calling_thread_has_the_interface_of_a_pool():
    with calling_thread() as pool:
        assert pool.n_threads == 1
        assert [*pool.map(lambda n: (n, threading.current_thread()), [3, 1])] == [
            (3, threading.current_thread()),
            (1, threading.current_thread()),
        ]


def test_a_thread_works_one_item_ahead():
    made, threads = [], set()

    def work(item):
        made.append(item)
        threads.add(threading.current_thread())
        return 10 // item

    with ahead(work, [5, 2, 1, 0]) as results:
        assert next(results) == 2
        while len(made) < 2:
            time.sleep(0.001)
        assert next(results) == 5 and made[:2] == [5, 2] and 0 not in made
        assert next(results) == 10
        # An error comes where its result is wanted.
        with pytest.raises(ZeroDivisionError):
            next(results)
    assert made == [5, 2, 1, 0] and threading.current_thread() not in threads
    assert not any(thread.is_alive() for thread in threads)


def test_a_single_item_needs_no_thread():
    with ahead(lambda item: (item, threading.current_thread()), [3]) as results:
        assert [*results] == [(3, threading.current_thread())]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_thread_ends_with_the_item_under_way(error):
    made, threads = [], set()

    def work(item):
        threads.add(threading.current_thread())
        time.sleep(0.05)
        made.append(item)
        return item

    with pytest.raises(error), ahead(work, range(100)) as results:
        assert next(results) == 0
        raise error
    assert len(made) <= 2 and not any(thread.is_alive() for thread in threads)
