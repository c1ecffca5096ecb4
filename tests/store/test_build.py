"""Caches that are built while processes die, disks fill, others build and others read."""

import errno
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from pyterrier_cascade.store import locks, publish
from pyterrier_cascade.store.build import SortedRuns
from pyterrier_cascade.store.folder import META
from pyterrier_cascade.store.store import DocumentStore
from tests.store.kills import die_after
from tests.store.made_up import build, content, corpus, encode, in_memory, right, started

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked and killed the POSIX way")
N = 43

tmp_path = pytest.fixture(in_memory)


def slowly(texts):
    time.sleep(0.002)
    return encode(texts)


def unsynced():
    publish.sync = lambda path: None


def left(folder):
    """What builds left behind."""
    return [path.name for path in folder.iterdir() if path.name.startswith((publish.TEMPORARY, publish.WRITER))]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return content(build(tmp_path_factory.mktemp("undisturbed") / "cache", corpus(N), dtype="int8").path)


def readable(folder):
    """How many documents a cache has, once each was found to be right."""
    if not (folder / META).is_file():
        return 0
    cache = DocumentStore(folder)
    n = right(cache, corpus(N))
    assert n == len(cache)
    return n


def whole(folder):
    unsynced()
    build(folder, corpus(N), slowly, dtype="int8")


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_kills_at_random_moments(tmp_path, undisturbed, kills):
    chance, n_kills, n_readable = random.Random(os.getpid()), 0, 0
    start = time.perf_counter()
    started(whole, tmp_path / "timed").join()
    took = time.perf_counter() - start
    folder, attempt = tmp_path / "cache0", 0
    while n_kills < kills:
        process = started(whole, folder)
        process.join(chance.uniform(0, took))
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            n_kills += process.exitcode == -signal.SIGKILL
        n_now = readable(folder) if folder.exists() else 0
        assert n_now >= n_readable and n_now % 5 in (0, N % 5)
        n_readable = n_now
        if process.exitcode == 0:
            assert content(folder) == undisturbed
            folder, attempt, n_readable = tmp_path / f"cache{attempt + 1}", attempt + 1, 0
    build(folder, corpus(N), dtype="int8")
    assert content(folder) == undisturbed and not left(folder)


def dies_at(folder, step):
    """Builds until a file or folder has been made, moved or removed so many times."""
    unsynced()
    counted = die_after(step)
    build(folder, corpus(12), counted(encode), dtype="int8")


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_each_step_of_publishing(tmp_path, stride):
    wanted = content(build(tmp_path / "wanted", corpus(12), dtype="int8").path)
    step, killed = 0, True
    while killed:
        folder = tmp_path / f"cache{step}"
        process = started(dies_at, folder, step)
        process.join()
        killed = process.exitcode == -signal.SIGKILL
        assert killed or process.exitcode == 0
        if (folder / META).is_file():
            cache = DocumentStore(folder)
            assert right(cache, corpus(12)) == len(cache) in (0, 5, 10, 12)
        build(folder, corpus(12), dtype="int8")
        assert content(folder) == wanted and not left(folder)
        step += stride
    assert step > 12


def test_two_processes_do_different_shards(tmp_path, undisturbed):
    def odd(folder):
        unsynced()
        build(folder, corpus(N), slowly, dtype="int8", shards=range(1, 9, 2))

    folder = tmp_path / "cache"
    other = started(odd, folder)
    build(folder, corpus(N), slowly, dtype="int8", shards=range(0, 9, 2))
    other.join()
    assert other.exitcode == 0 and content(folder) == undisturbed
    assert DocumentStore(folder).complete


def test_two_processes_do_the_same_shards(tmp_path, undisturbed):
    folder = tmp_path / "cache"
    other = started(whole, folder)
    whole(folder)
    other.join()
    assert other.exitcode == 0 and content(folder) == undisturbed and not left(folder)


def test_what_a_living_process_is_writing_is_not_swept(tmp_path):
    go, at_work = (multiprocessing.get_context("fork").Event() for _ in range(2))

    def waits(texts):
        at_work.set()
        go.wait(20)
        return encode(texts)

    folder = tmp_path / "cache"
    other = started(lambda: build(folder, corpus(10), waits, shards=[1]))
    assert at_work.wait(20)
    (folder / ".tmp-0123456789ab-shard-00007").mkdir()
    (folder / ".tmp-0123456789ab-shard-00007" / "tokens.bin").write_bytes(b"left")
    (folder / ".writer-ba9876543210-shard-00007").touch()
    build(folder, corpus(10), shards=[0])
    assert right(DocumentStore(folder), corpus(10)) == 5
    assert sorted(name.split("-")[0] for name in left(folder)) == [".tmp", ".writer"]
    go.set()
    other.join()
    assert other.exitcode == 0 and right(DocumentStore(folder), corpus(10)) == 10 and not left(folder)


def test_without_locks_nothing_is_swept(tmp_path, monkeypatch):
    def unsupported(file):
        raise OSError(errno.ENOLCK, "no locks")

    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / ".writer-ba9876543210-shard-00007").touch()
    monkeypatch.setattr(locks, "_take", unsupported)
    cache = build(tmp_path / "cache")
    assert right(cache, corpus()) == 23 and left(cache.path) == [".writer-ba9876543210-shard-00007"]


def test_readers_while_a_writer_adds(tmp_path):
    folder, seen, early = tmp_path / "cache", [], []

    def watched(texts):
        reader = DocumentStore(folder)
        seen.append(right(reader, corpus()))
        if len(reader) == 10 and not early:
            early.append((reader, reader.find(["d7", "d12"])))
        return encode(texts)

    build(folder, encode=watched)
    assert sorted(set(seen)) == [0, 5, 10, 15, 20]
    reader, found = early[0]
    assert found.tolist()[1] == -1 and len(reader) == 10 and right(reader, corpus()) == 10
    assert right(reader.refresh(), corpus()) == len(reader) == 23
    assert reader.find(["d7"]) == found[:1]


def test_readers_of_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    folder = build(tmp_path / "cache", shards=[0]).path
    (folder / "shard-00000").rename(folder / "shard-00003")
    before = content(folder)

    def forbidden(*arguments):
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(locks, "hold", forbidden)
    cache = DocumentStore(folder)
    assert right(cache, corpus()) == 5 and cache.missing == [0, 1, 2, 4]
    assert content(folder) == before
    aside = cache._aside.name
    assert os.path.isdir(aside)
    del cache
    assert not os.path.exists(aside)


def full(folder, documents):
    """What is raised where there is no room, and how many documents are there afterwards."""
    with pytest.raises(OSError) as caught:
        build(folder, iter(documents), slowly)
    assert caught.value.errno in publish.FULL
    assert f"the disk with {str(folder)!r} is full; what was finished is kept: make room" in str(caught.value)
    assert not left(folder)
    n = readable(folder)
    assert 0 < n < N
    return n


def test_a_full_disk(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted: {done.stderr.strip()}")
    try:
        n = full(mount / "cache", corpus(N))
        assert n % 5 == 0
        subprocess.run(["mount", "-o", "remount,size=4m", mount], check=True)
        build(mount / "cache", corpus(N))
        assert readable(mount / "cache") == N
        shutil.rmtree(next((mount / "cache").glob("index-*")))
        subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
        assert readable(mount / "cache") == N
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


def test_a_file_that_may_not_grow(tmp_path):
    documents = [{"docno": f"d{i}", "text": "harbour " * (2 if i < 10 else 200)} for i in range(N)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, before[1]))
    try:
        with pytest.raises(OSError, match="is full; what was finished is kept") as caught:
            build(tmp_path / "cache", documents)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG and not left(tmp_path / "cache")
    assert right(DocumentStore(tmp_path / "cache"), documents) == 10
    assert right(build(tmp_path / "cache", documents), documents) == N


def test_numbers_seen_before_are_found_in_few_arrays():
    rng, seen, all_of_them = np.random.default_rng(0), SortedRuns(), set()
    assert not seen.have(np.arange(3, dtype="<u8")).any()
    for size in (5, 0, 5, 1, 7, 100, *[5] * 60):
        values = rng.integers(0, 2_000, size, dtype="<u8")
        assert seen.have(values).tolist() == [value in all_of_them for value in values.tolist()]
        seen.add(values)
        all_of_them.update(values.tolist())
    assert sum(map(len, seen.runs)) == 5 + 5 + 1 + 7 + 100 + 300 and len(seen.runs) <= 7
