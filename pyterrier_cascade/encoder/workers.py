"""Threads that compute at the same time, each on a core of its own, and one that works ahead."""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from pyterrier_cascade.forks import Lock

AHEAD = 2
"""The number of items that wait for each thread."""

_idle: dict[int, "Pool"] = {}
"""Pools that are not in use, by their number of threads."""

_lock = Lock()


@contextlib.contextmanager
def workers() -> Iterator["Pool"]:
    """Yields a pool with as many threads as torch would use in the calling thread; no other caller uses it meanwhile.

    Several chunks at once, each on one core, use the cores better than one operation after the other on all cores. The
    calling thread itself computes nothing, so that a process that is forked from it can compute too. The next caller
    gets the same threads, because new threads are slower for some milliseconds. After an error the threads end.
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
    pool, barrier = Pool(n_threads), threading.Barrier(n_threads)
    try:
        # Every thread waits for all others, so that all of them are started.
        list(pool.map(lambda _: barrier.wait(), range(n_threads)))
    except BaseException:
        # If a thread could not be started, the others would wait forever.
        barrier.abort()
        pool.close()
        raise
    finally:
        # torch has a number of threads for each thread, and one more number for threads that start later. The workers
        # change this last number too, so it is set back.
        torch.set_num_threads(n_threads)
    return pool


def _forget() -> None:
    """Forgets the idle pools in a forked process, which does not have their threads."""
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _one_core() -> None:
    # A new thread reads torch's general setting when it first needs it. It reads it here, so that the number below
    # stays.
    torch.get_num_threads()
    torch.set_num_threads(1)


class Pool:
    """A pool of threads.

    Args:
        n_threads: The number of threads.
    """

    def __init__(self, n_threads: int):
        self.n_threads = n_threads
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix="encoder", initializer=_one_core)

    def map(self, work: Callable, items: Iterable) -> Iterator:
        """Yields the results in the order of the items; the next free thread takes the next item.

        The calling thread iterates over the items while the threads work, a few items ahead for each thread.

        Args:
            work: A function of an item.
            items: The items.
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
        """Waits for the items under way, drops the waiting ones, and ends the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)


class CallingThread:
    """The calling thread, with the interface of :class:`Pool`."""

    n_threads = 1
    map = staticmethod(map)


def calling_thread() -> contextlib.AbstractContextManager[CallingThread]:
    """Returns a context manager that opens the calling thread as a pool, for devices that have a queue of their own."""
    return contextlib.nullcontext(CallingThread())


@contextlib.contextmanager
def ahead(work: Callable, items: Sequence) -> Iterator[Iterator]:
    """Yields the results of the items in their order; a thread makes the next one while the caller uses the one before.

    An error in the thread is raised where the caller asks for that result. At the end, also after an error, the thread
    finishes the item under way and ends. A single item needs no thread.

    Args:
        work: A function of an item that computes nothing with torch.
        items: The items.
    """
    if len(items) < 2:
        yield map(work, items)
        return
    thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")

    def results() -> Iterator:
        coming = thread.submit(work, items[0])
        for item in items[1:]:
            found = coming.result()
            coming = thread.submit(work, item)
            yield found
        yield coming.result()

    try:
        yield results()
    finally:
        thread.shutdown(wait=True, cancel_futures=True)
