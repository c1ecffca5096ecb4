"""Locks between processes. A lock vanishes with the process that holds it, however that process ends."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
    import msvcrt

HELD = (BlockingIOError, PermissionError)
"""The errors of a system that say that somebody else holds a lock."""


def _take(file: IO) -> None:
    if fcntl:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)


def _own(path: str, flags: int) -> int:
    """Opens a file, and no other file that a link in its place names: a forged folder must not write outside."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def hold(path: Path) -> IO | None:
    """Returns an open file that holds the lock until it is closed; None while another process holds the lock.

    On a file system without locks everybody gets the lock.
    """
    while True:
        file = open(path, "a+b", opener=_own)  # noqa: SIM115
        try:
            _take(file)
        except HELD:
            file.close()
            return None
        except OSError:
            return file
        if _is_at(file, path):
            return file
        # Another process removed the file between the opening and the locking: this lock would guard nothing.
        file.close()


def _is_at(file: IO, path: Path) -> bool:
    if os.name != "posix":
        return True
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    return False


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Waits until no other process or thread is inside a block under the same path."""
    while not (file := hold(path)):
        time.sleep(0.02)
    with file:
        yield


def abandoned(path: Path) -> bool:
    """Returns whether the holder of a lock is gone; on a file system without locks it counts as alive."""
    try:
        with open(path, "r+b") as file:
            try:
                _take(file)
            except OSError:
                return False
    except FileNotFoundError:
        pass
    return True
