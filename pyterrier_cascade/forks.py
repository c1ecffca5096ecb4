"""The locks of the package, which a fork beside other threads leaves usable in both processes.

A fork copies a lock in its present state, but not the thread that holds it: the copy would stay locked forever. Every
lock of the package is therefore a :class:`Lock`. Before a fork the forking thread takes all of them, so that no other
thread is in the middle of the work that they guard, such as a tokenizer's; afterwards both processes release them.
"""

import functools
import os
import threading
from time import monotonic
from weakref import WeakSet

PATIENCE = 5.0
"""The most seconds that a fork waits for work that a lock guards. Loading a model can take longer; the forked process
then loads the model itself."""


class Lock:
    """A reentrant lock for a ``with`` statement, which a forked process can take whatever other threads did."""

    def __init__(self):
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class cached_property(functools.cached_property):
    """``functools.cached_property`` without the lock that it has before Python 3.12; the first value found stays."""

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        found = instance.__dict__
        return found[self.attrname] if self.attrname in found else found.setdefault(self.attrname, self.func(instance))


_locks: WeakSet[Lock] = WeakSet()
_fork = threading.local()
"""The locks that the forking thread took before its fork."""


def _take_all() -> None:
    """Takes all locks together; where others hold one for too long, those that are free."""
    locks = [lock._lock for lock in list(_locks)]
    first, give_up, _fork.taken = 0, monotonic() + PATIENCE, []
    # It waits while it holds no other lock, so that no order of the locks is needed.
    while locks and locks[first].acquire(timeout=max(0.0, give_up - monotonic())):
        _fork.taken.append(locks[first])
        held = next((n for n, lock in enumerate(locks) if not _take(lock)), None)
        if held is None:
            return
        _release()
        first = held
    for lock in locks:
        _take(lock)


def _take(lock: threading.RLock) -> bool:
    taken = lock.acquire(blocking=False)
    _fork.taken += [lock] * taken
    return taken


def _release() -> None:
    while _fork.taken:
        _fork.taken.pop().release()


def _renew() -> None:
    """Releases the locks in the forked process, and replaces those that a thread of the other process holds."""
    _release()
    for lock in _locks:
        if lock._lock.acquire(blocking=False):
            lock._lock.release()
        else:
            lock._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take_all, after_in_parent=_release, after_in_child=_renew)
