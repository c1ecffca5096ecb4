"""Forks beside threads that score: the child scores too, and never hangs."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyterrier_cascade

PACKAGE = Path(pyterrier_cascade.__file__).parent

PROGRAM = """
import collections, itertools, os, signal, sys, threading, time, traceback, warnings
sys.path[:0] = {path!r}
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(2)
import numpy as np
from pyterrier_cascade import Cascade, CrossEncoder, DCBERT
from tests import lists, tiny

rankers = [
    CrossEncoder.from_pretrained(tiny.save({folder!r} + "/cross-encoder")),
    Cascade.from_pretrained(tiny.save({folder!r} + "/encoder", layers=3, outputs=None), layers=(1, 3), alpha=0.5),
    DCBERT.from_pretrained({folder!r} + "/encoder"),
]
many, few = lists.candidates([30, 30]), lists.candidates([3, 3], seed=1)
expected = [ranker(few)["score"] for ranker in rankers]
stopped = threading.Event()

def score(ranker):
    while not stopped.is_set():
        ranker(many)

def child(number):
    try:
        np.testing.assert_allclose(rankers[number](few)["score"], expected[number], atol=1e-5)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)

def exit_code(pid):
    for _ in range(2_000):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"

threads = [threading.Thread(target=score, args=[ranker]) for ranker in rankers]
for thread in threads:
    thread.start()
seen = collections.Counter()
for fork in range({n}):
    time.sleep(0.001 * (fork % 13))
    pid = os.fork()
    if pid == 0:
        child(fork % len(rankers))
    seen[exit_code(pid)] += 1
stopped.set()
for thread in threads:
    thread.join()
print(dict(seen))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("n", [pytest.param(20), pytest.param(300, marks=pytest.mark.slow)])
def test_children_of_forks_beside_scoring_score(tmp_path, n):
    program = PROGRAM.format(path=sys.path, folder=str(tmp_path), n=n)
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60 + 20 * n)
    assert out.stdout == f"{{0: {n}}}\n", out.stdout + out.stderr[-3_000:]


def uses(path: Path) -> set[str]:
    """The names of other modules that a file imports from them, or writes with a dot."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    imported = {f"{n.module}.{one.name}" for n in nodes if isinstance(n, ast.ImportFrom) for one in n.names}
    return imported | {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}


def test_every_lock_is_one_that_forks_know():
    """So is a cached property of functools, which has a lock before Python 3.12."""
    locks = {"threading.Lock", "threading.RLock", "threading.Condition", "functools.cached_property"}
    unknown = {str(path.relative_to(PACKAGE)): uses(path) & locks for path in PACKAGE.rglob("*.py")}
    assert {path: found for path, found in unknown.items() if found and path != "forks.py"} == {}
