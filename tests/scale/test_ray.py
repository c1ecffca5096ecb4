"""Workers on a Ray cluster: order, losses of workers, errors and warnings, and the same results as without them."""

import itertools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_cascade import DCBERT, Cascade, RayPool, Trace
from tests import tiny
from tests.store import made_up
from tests.store.made_up import content

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore:the heads of")


@pytest.fixture(scope="module")
def pool(cluster):
    with RayPool(2) as pool:
        yield pool


def candidates(n_queries: int = 9) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"qid": f"q{query}", "query": f"what ship {query}", "docno": f"d{i}", "text": f"the ship {'x' * i} {query}"}
            for i in range(6)
            for query in range(n_queries)
        ]
    )


@pytest.fixture(scope="module")
def cascade(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    made = Cascade.from_pretrained(tiny.save(folder / "bert", layers=3, outputs=None), layers=(1, 2, 3))
    made.save_pretrained(str(folder / "cascade"))
    return made


def test_results_come_in_order_whoever_is_quicker(pool):
    def slow_at_first(number):
        time.sleep(0.3 if number == 0 else 0)
        return number**2

    assert list(pool.map(slow_at_first, range(12))) == [number**2 for number in range(12)]
    assert list(pool.map(slow_at_first, [])) == []


def test_warnings_of_workers_are_shown_at_the_users_line(pool):
    def warning(number):
        if number == 3:
            warnings.warn("three is odd", DeprecationWarning, stacklevel=1)
        return number

    with pytest.warns(DeprecationWarning, match="three is odd") as seen:
        assert list(pool.map(warning, range(5))) == list(range(5))
    assert [one.filename for one in seen] == [__file__]


def test_workers_see_that_a_folder_was_written_anew(pool, tmp_path):
    for seed in (0, 1):
        tiny.save(tmp_path / "bert", layers=3, outputs=None, seed=seed)
        cascade = Cascade.from_pretrained(str(tmp_path / "bert"), layers=(1, 3))
        alone = cascade(candidates())
        pd.testing.assert_frame_equal(pool(cascade)(candidates()), alone, check_exact=False, atol=1e-5)


def test_a_bounded_number_of_units_is_read_ahead(pool):
    read = []

    def units():
        for number in range(30):
            read.append(number)
            yield number

    results = pool.map(lambda number: number, units())
    for number, result in enumerate(itertools.islice(results, 20)):
        assert result == number
        assert len(read) <= number + 1 + 2 * pool.in_flight
    results.close()
    assert len(read) < 30


def test_a_slow_unit_does_not_let_the_others_run_away(pool):
    read = []

    def units():
        for number in range(40):
            read.append(number)
            yield number

    def first_slow(number):
        time.sleep(1.5 if number == 0 else 0)
        return number

    assert next(pool.map(first_slow, units())) == 0
    assert len(read) <= 2 * pool.in_flight


def test_a_worker_keeps_what_it_has_loaded(pool):
    class Counting:
        def __init__(self):
            self.calls = 0

        def __call__(self, unit):
            self.calls += 1
            return os.getpid(), self.calls

    work = Counting()
    seen = list(pool.map(work, range(10))) + list(pool.map(work, range(10)))
    assert len({pid for pid, _ in seen}) == 2
    # One object in each worker served both calls.
    assert sum(max(calls for pid, calls in seen if pid == one) for one in {pid for pid, _ in seen}) == 20


def test_a_killed_worker_is_replaced_and_nothing_is_lost(pool, tmp_path):
    def dies_once(number, marker=str(tmp_path / "marker")):
        if number == 3 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), 9)
        return number

    assert list(pool.map(dies_once, range(10))) == list(range(10))
    assert (tmp_path / "marker").exists()


def test_a_block_that_kills_every_worker_is_named(cluster):
    def deadly(number):
        if number == 1:
            os.kill(os.getpid(), 9)
        return number

    with RayPool(1, retries=1, cpus=0) as pool:
        results = pool.map(deadly, range(4))
        assert next(results) == 0
        with pytest.raises(RuntimeError, match=r"^block 1 lost its worker 2 times, perhaps because memory was short: "):
            list(results)
        assert list(pool.map(lambda number: number, [7])) == [7]


def test_an_error_comes_back_as_it_was_raised(pool):
    def fails(number):
        raise KeyError(f"no {number}")

    with pytest.raises(KeyError, match=r"^'no \d'$"):
        list(pool.map(fails, range(3)))
    assert list(pool.map(str, range(3))) == ["0", "1", "2"]


class Particular(Exception):
    """An error with a constructor of its own, as libraries have them: its pickle cannot be read."""

    def __init__(self, what, where):
        super().__init__(f"{what} in {where}")


def test_an_error_without_a_pickle_comes_back_with_its_text(pool):
    def fail(number):
        raise Particular("no ink", f"pen {number}")

    with pytest.raises(RuntimeError, match=r"^Particular on a worker: no ink in pen \d$"):
        list(pool.map(fail, range(3)))


def test_a_frame_without_text_says_on_workers_too_what_to_do(pool, cascade):
    with pytest.raises(RuntimeError, match=r"^InputValidationError on a worker: .*put a text loader before this trans"):
        pool(cascade)(candidates().drop(columns="text"))


def test_a_pool_inside_a_pool_is_refused(pool, cascade):
    message = r"^RayPool\(2\) runs inside a worker of another pool, and could wait for that pool's cores forever; use"
    with pytest.raises(ValueError, match=message):
        pool(pt.Transformer.identity() >> pool(cascade))(candidates())


def test_rankers_give_what_they_give_alone(pool, cascade):
    frame = candidates()
    for ranker in (cascade, cascade(alpha=0.4), cascade[1] % 0.5 >> cascade[3] % 2):
        found = pool(ranker, rows_per_block=10)(frame)
        pd.testing.assert_frame_equal(found, ranker(frame).reset_index(drop=True), rtol=1e-5)


def test_a_trace_is_the_same(pool, cascade, tmp_path, monkeypatch):
    monkeypatch.setattr("pyterrier_cascade.early_exit.trace.ROWS", 12)
    frame = candidates()
    alone = cascade.trace(frame)
    begun = cascade.trace(frame[frame["qid"] < "q3"], str(tmp_path / "trace"), pool=pool)
    assert len(begun.sizes) == 3
    found = cascade.trace(frame, str(tmp_path / "trace"), pool=pool)
    assert len(found.parts) > 3
    pd.testing.assert_frame_equal(found.results(alpha=0.4), alone.results(alpha=0.4), rtol=1e-5)
    assert isinstance(Trace(tmp_path / "trace"), Trace)


def test_a_cache_is_the_same_to_the_byte(pool, tmp_path):
    dcbert = DCBERT.from_pretrained(tiny.save(tmp_path / "bert", outputs=None, max_position_embeddings=64))
    corpus = made_up.corpus(23)
    alone = dcbert.encode(corpus, tmp_path / "alone", shard_size=5)
    found = dcbert.encode(iter(corpus), tmp_path / "pool", shard_size=5, pool=pool)
    assert found.complete and content(found.path) == content(alone.path)
    # What is there is compared and left, what is missing is done.
    for shard in ("shard-00001", "shard-00003"):
        shutil.rmtree(found.path / shard)
    kept = {path: path.stat().st_mtime_ns for path in found.path.glob("shard-*")}
    again = dcbert.encode(corpus, tmp_path / "pool", shard_size=5, pool=pool)
    assert again.complete and content(again.path) == content(alone.path)
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
    repeated = [*corpus, {"docno": "d1", "text": "again"}]
    with pytest.raises(ValueError, match=r"^docno 'd1' given to more than one document"):
        dcbert.encode(repeated, tmp_path / "repeated", shard_size=5, pool=pool)


DRIVER = """
import sys, time, os, signal
import ray
sys.path[:0] = {path!r}
from tests.store import made_up
from pyterrier_cascade import DocumentCache, RayPool
ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
PATH = {tests!r}

def encode(texts):
    import os, sys, time
    sys.path[:0] = PATH
    from tests.store import made_up
    open({pids!r} + "/" + str(os.getpid()), "w").close()
    time.sleep(0.05)
    return made_up.encode(texts)

with RayPool(2) as pool:
    made_up.build({folder!r}, made_up.corpus(60), encode, pool=pool)
"""


def test_workers_and_driver_may_be_killed_at_any_moment(tmp_path):
    tests = [str(Path(__file__).parents[2])]
    alone = made_up.build(tmp_path / "alone", made_up.corpus(60))
    folder = tmp_path / "cache"
    pids = tmp_path / "pids"
    pids.mkdir()
    script = DRIVER.format(path=tests, tests=tests, folder=str(folder), pids=str(pids))

    def start():
        return subprocess.Popen([sys.executable, "-c", script], start_new_session=True, stderr=subprocess.PIPE)

    def wait_for(event):
        end = time.monotonic() + 90
        while not event():
            assert time.monotonic() < end
            time.sleep(0.01)

    driver = start()
    wait_for(lambda: len(list(folder.glob("shard-*"))) > 1)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    there = {path.name: path.stat().st_mtime_ns for path in folder.glob("shard-*")}
    assert 2 <= len(there) < 12
    first = set(os.listdir(pids))
    driver = start()
    wait_for(lambda: set(os.listdir(pids)) - first)
    os.kill(int(min(set(os.listdir(pids)) - first)), signal.SIGKILL)
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 0, errors.decode()
    assert len(os.listdir(pids)) >= len(first) + 2
    assert content(folder) == content(alone.path)
    assert all((folder / name).stat().st_mtime_ns == time for name, time in there.items())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_workers": 0}, "n_workers must be a whole number of 1 or more, not 0"),
        ({"n_workers": True}, "n_workers must be a whole number of 1 or more, not True"),
        ({"n_workers": 1.5}, "n_workers must be a whole number of 1 or more, not 1.5"),
        ({"n_workers": 2, "in_flight": 0}, "in_flight must be a whole number of 1 or more, not 0"),
        ({"n_workers": 2, "retries": -1}, "retries must be a whole number of 0 or more, not -1"),
    ],
)
def test_settings_are_checked_at_the_door(settings, message):
    with pytest.raises(ValueError, match=message):
        RayPool(**settings)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'^RayPool needs ray: pip install "pyterrier_cascade\[ray\]"$'):
        RayPool(2).actors  # noqa: B018


def test_more_workers_than_there_is_room_for_are_refused(cluster):
    with pytest.raises(ValueError) as error:
        RayPool(2, cpus=1.5).actors  # noqa: B018
    assert str(error.value) == (
        "2 workers of 1.5 CPU need more than the 2 of the cluster; take fewer, or give each less"
    )


def test_a_warning_where_workers_wait_for_room(pool):
    assert pool.actors
    waiting = RayPool(1)
    with pytest.warns(UserWarning, match=r"^1 workers of 1 CPU wait for room: 0 of the cluster's 2 are free$") as seen:
        assert waiting.actors
    assert seen[0].filename == __file__
    waiting.close()


def test_it_pickles_without_its_actors(pool):
    assert pool.actors
    copy = pickle.loads(pickle.dumps(pool))
    assert repr(copy) == repr(pool) == "RayPool(2)" and copy._actors is None
    assert repr(RayPool(4, address="auto", gpus=0.5)) == "RayPool(4, address='auto', gpus=0.5)"
