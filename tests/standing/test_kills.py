"""Processes are killed at random moments while they write: the old or the new is there, whole, and writing goes on."""

import hashlib
import os
import random
import select
import shutil
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tqdm import tqdm

from pyterrier_cascade import BM25, Cascade, CrossEncoder, SequentialReranker, Trace
from pyterrier_cascade.datasets.asnq.build import build
from pyterrier_cascade.datasets.asnq.squad_shaped import SquadShaped
from pyterrier_cascade.early_exit import trace as traces
from pyterrier_cascade.store.publish import LEFTOVER
from tests import tiny
from tests.datasets.asnq.test_build import squad_file
from tests.few_docs import DOCS
from tests.lists import candidates
from tests.standing.written import read_data_set
from tests.store.made_up import content, in_memory

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
tmp_path = pytest.fixture(in_memory)
LISTS = candidates([6, 9, 4, 7], seed=2)
MINE = {
    "notes.txt": b"mine",
    ".git/objects/1f": b"\0git",
    "openvino/exact-1/0.xml": b"<net/>",
}
"""What a user, and the engine, keep beside a model."""


@dataclass(frozen=True)
class Work:
    """Something that is written again and again, and killed.

    Attributes:
        folder: The folder that it writes to.
        begin: Makes the old state.
        write: Writes the new state; called again, it goes on.
        check: Raises unless what is there is sound, and returns ``"old"``, ``"new"`` or ``"part of it"``.
    """

    folder: Path
    begin: Callable[[], object]
    write: Callable[[], object]
    check: Callable[[], str]


def run(work: Callable[[], object], moment: float | None = None) -> float:
    """Runs some work in a process of its own, kills it after so many seconds, and returns how long it took."""
    ready, begin = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # The lock of tqdm is shared by forked processes, and one that is killed with it would keep it for ever.
            tqdm.set_lock(threading.RLock())
            os.write(begin, b"1")
            warnings.simplefilter("ignore")
            work()
            os.write(begin, b"2")
            os._exit(0)
        finally:
            os._exit(1)
    os.read(ready, 1)
    start = time.perf_counter()
    os.close(begin)
    if moment is None:
        assert select.select([ready], [], [], 60)[0] and os.read(ready, 1) == b"2"
    else:
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
    took = time.perf_counter() - start
    _, status = os.waitpid(child, 0)
    os.close(ready)
    assert status in (0, signal.SIGKILL)
    return took


def leftovers(folder: Path) -> list[str]:
    return [str(path) for path in folder.parent.rglob("*") if LEFTOVER.fullmatch(path.name)]


def kill_often(work: Work, n: int, seed: int = 0) -> Counter:
    """Kills some work at so many moments, and returns what was found how often."""
    chance, found = random.Random(seed), Counter()
    times = []
    for _ in range(3):
        work.begin()
        times.append(run(work.write))
    for _ in range(n):
        if work.check() == "new":
            work.begin()
        run(work.write, chance.uniform(0, 1.2 * sorted(times)[1]))
        found[work.check()] += 1
        if chance.random() < 0.3:
            whole_after(work)
    whole_after(work)
    return found


def whole_after(work: Work) -> None:
    run(work.write)
    assert work.check() == "new"
    assert [str(path) for path in work.folder.parent.rglob("*") if LEFTOVER.fullmatch(path.name)] == []


def hashes(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(text).hexdigest()[:8] for name, text in files.items()}


def models(tmp_path: Path, rankers: list) -> Work:
    """A model is saved over another one, in a folder with files of the user."""
    folder, states = tmp_path / "model", []
    for number, ranker in enumerate(rankers):
        ranker.write(tmp_path / f"plain-{number}")
        states.append(content(tmp_path / f"plain-{number}") | MINE)
    known = [hashes(state) for state in states]

    def begin():
        shutil.rmtree(folder, ignore_errors=True)
        for name, text in states[0].items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text)

    def check() -> str:
        return ["old", "new"][known.index(hashes(content(folder)))]

    return Work(folder, begin, lambda: rankers[1].save_pretrained(folder), check)


def model(tmp_path: Path, monkeypatch) -> Work:
    return models(tmp_path, [CrossEncoder.from_pretrained(tiny.save(tmp_path / str(one), seed=one)) for one in (1, 2)])


def sequential(tmp_path: Path, monkeypatch) -> Work:
    """Two models in folders of their own give way to a single one."""
    encoder = tiny.save(tmp_path / "encoder", outputs=None)
    return models(tmp_path, [SequentialReranker.from_pretrained(encoder, layers=layers) for layers in ([1, 2], [2])])


def index(tmp_path: Path, monkeypatch) -> Work:
    """An index is saved over another one."""
    folder, (old, new) = tmp_path / "index", [BM25.from_docs(DOCS), BM25.from_docs(DOCS[:2])]

    def check() -> str:
        saved = BM25(folder)
        saved.search("cat")
        return {old.fingerprint: "old", new.fingerprint: "new"}[saved.fingerprint]

    return Work(folder, lambda: old.save(folder, overwrite=True), lambda: new.save(folder, overwrite=True), check)


def trace(tmp_path: Path, monkeypatch) -> Work:
    """A trace is recorded in a part for each of four questions."""
    folder = tmp_path / "trace"
    ranker = Cascade.from_pretrained(tiny.save(tmp_path / "encoder", outputs=None), layers=(1, 2))
    monkeypatch.setattr(traces, "ROWS", 1)
    expected = ranker.trace(LISTS)

    def check() -> str:
        if not (folder / "pt_meta.json").is_file():
            return "old"
        found = Trace(folder)
        n = len(found.qids)
        assert found.qids.tolist() == expected.qids[:n].tolist()
        np.testing.assert_allclose(found.scores, expected.scores[: len(found)], atol=1e-5)
        return "new" if n == len(expected.qids) else "part of it"

    return Work(folder, lambda: shutil.rmtree(folder, True), lambda: ranker.trace(LISTS, folder), check)


def data_set(tmp_path: Path, monkeypatch) -> Work:
    """A data set of two files is built in a shard for each of six articles."""
    folder = tmp_path / "built"
    paths = [squad_file(tmp_path / f"{one}.json", range(3), lambda number, one=one: f"{one}{number}") for one in "ab"]
    source = SquadShaped(paths, held_out=0.5)
    build(source, tmp_path / "expected", records_per_shard=1, verbose=False)
    expected = content(tmp_path / "expected")

    def check() -> str:
        if not (folder / "manifest.json").is_file():
            return "part of it" if folder.exists() else "old"
        read_data_set(folder)
        assert {name: text for name, text in content(folder).items() if not name.startswith(".")} == expected
        return "new"

    def write():
        build(source, folder, records_per_shard=1, verbose=False)

    return Work(folder, lambda: shutil.rmtree(folder, True), write, check)


WORKS = (model, sequential, index, trace, data_set)


@pytest.mark.parametrize("make", WORKS, ids=[one.__name__ for one in WORKS])
def test_a_kill_leaves_the_old_or_the_new(make, tmp_path, monkeypatch):
    found = kill_often(make(tmp_path, monkeypatch), n=8)
    assert found.total() == 8


@pytest.mark.slow
@pytest.mark.parametrize("make", WORKS, ids=[one.__name__ for one in WORKS])
def test_many_kills_leave_the_old_or_the_new(make, tmp_path, monkeypatch):
    found = kill_often(make(tmp_path, monkeypatch), n=200, seed=1)
    print(make.__name__, dict(found))
    assert found["new"] > 5 and found["old"] + found["part of it"] > 20
