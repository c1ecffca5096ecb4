"""Threads that compute side by side, each on a core of its own."""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

AHEAD = 2
"""How many items wait for each thread."""

_idle: dict[int, "Pool"] = {}
"""Threads that nobody uses, by their number."""

_lock = threading.Lock()


@contextlib.contextmanager
def workers() -> Iterator["Pool"]:
    """Gives as many threads as the caller's torch would compute with, for as long as it uses them alone.

    Several inputs at once, each on one core, keep more of it busy than one operation after the other shared by all
    cores. Nothing is computed by the calling thread, so that a process forked from it can go on computing. The next
    caller gets the same threads, for new ones take some milliseconds until they compute as fast. After an error they
    end.
    """
    with _lock:
        n_threads = torch.get_num_threads()
        pool = _idle.pop(n_threads, None) or _started(n_threads)
    try:
        yield pool
    except BaseException:
        pool.close()
        raise
    with _lock:
        kept = _idle.setdefault(n_threads, pool)
    if kept is not pool:
        pool.close()


def _started(n_threads: int) -> "Pool":
    # torch keeps the number of threads for each thread, and one more for those that come: the workers' own setting
    # must not reach a thread that starts later, nor be read as another caller's.
    pool = Pool(n_threads)
    try:
        pool.each(_one_core)
    except BaseException:
        pool.close()
        raise
    finally:
        torch.set_num_threads(n_threads)
    return pool


def _forget() -> None:
    """Begins anew in a forked process, which has none of these threads."""
    global _idle, _lock
    _idle, _lock = {}, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _one_core() -> None:
    # A new thread takes the general setting when it first computes, unless it has asked for it before.
    torch.get_num_threads()
    torch.set_num_threads(1)


class Pool:
    """A number of threads.

    Args:
        n_threads: How many.
    """

    def __init__(self, n_threads: int):
        self.n_threads = n_threads
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix="encoder")

    def each(self, work: Callable[[], None]) -> None:
        """Does the work once in every thread."""
        barrier = threading.Barrier(self.n_threads)

        def once():
            barrier.wait()
            work()

        try:
            for done in [self._threads.submit(once) for _ in range(self.n_threads)]:
                done.result()
        finally:
            # Who waits for a thread that was never started is let go.
            barrier.abort()

    def map(self, work: Callable, items: Iterable) -> Iterator:
        """Returns the results in order; whoever is free takes the next item.

        The calling thread makes the items while others are worked on, some for each thread ahead.
        """
        begun: deque[Future] = deque()
        try:
            for item in items:
                begun.append(self._threads.submit(work, item))
                if len(begun) > AHEAD * self.n_threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for one in begun:
                one.cancel()

    def close(self) -> None:
        """Waits for the work under way and ends the threads; work that has not begun is dropped."""
        self._threads.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def here() -> Iterator["Caller"]:
    """Gives the calling thread itself, for devices that have their own queue."""
    yield Caller()


class Caller:
    """The calling thread in a pool's clothes."""

    n_threads = 1

    def map(self, work: Callable, items: Iterable) -> Iterator:
        """Returns the results in order."""
        return map(work, items)
