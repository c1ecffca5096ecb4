"""Locks that a fork leaves usable, and values that are found once without a lock."""

import os
import threading
import time

import pytest

from pyterrier_cascade import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def exit_code_of_child(work) -> int | str:
    """The exit code of a forked process that does some work, or "hung"."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(3)
    for _ in range(500):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hung"


def take(*locks):
    for lock in locks:
        with lock, lock:
            pass
    os._exit(0)


def held_by_a_thread(lock, until: threading.Event) -> threading.Thread:
    """A thread that holds a lock by now, until an event."""
    holds = threading.Event()

    def hold():
        with lock:
            holds.set()
            until.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait()
    return thread


def test_a_fork_waits_for_work_under_a_lock():
    lock, until, ended = forks.Lock(), threading.Event(), []
    thread = held_by_a_thread(lock, until)
    threading.Timer(0.2, lambda: (ended.append("work"), until.set())).start()
    # The child sees what the thread had done by the time of the fork.
    assert exit_code_of_child(lambda: os._exit(0 if ended else 1)) == 0
    thread.join()
    with lock:
        assert ended == ["work"]


def test_a_lock_that_is_held_for_too_long_is_new_in_the_child(monkeypatch):
    monkeypatch.setattr(forks, "PATIENCE", 0.05)
    held, free, until = forks.Lock(), forks.Lock(), threading.Event()
    thread = held_by_a_thread(held, until)
    assert exit_code_of_child(lambda: take(held, free)) == 0
    assert not held._lock.acquire(blocking=False)
    take_in_thread = threading.Thread(target=lambda: free.__enter__())
    take_in_thread.start()
    take_in_thread.join(5)
    assert not take_in_thread.is_alive()
    until.set()
    thread.join()


def test_a_fork_inside_a_lock_keeps_it():
    lock, other = forks.Lock(), forks.Lock()

    def leave():
        # As at the end of the with statement below.
        lock.__exit__()
        take(lock, other)

    with lock:
        assert exit_code_of_child(leave) == 0
        assert lock._lock._is_owned()
    assert not lock._lock._is_owned() and not other._lock._is_owned()


def test_a_value_is_computed_once():
    class Owner:
        """With a value."""

        n_times = 0

        @forks.cached_property
        def value(self) -> int:
            """The value."""
            self.n_times += 1
            return 7

    one = Owner()
    assert (one.value, one.value, one.n_times) == (7, 7, 1)
    assert Owner.value.__doc__ == "The value."
    one.value = 8
    assert one.value == 8 and vars(one) == {"n_times": 1, "value": 8}


def test_the_first_of_two_values_found_at_once_stays():
    class Owner:
        """Finds a value while another thread has found one."""

        @forks.cached_property
        def value(self) -> str:
            """The value."""
            vars(self).setdefault("value", "first")
            return "second"

    assert Owner().value == "first"
