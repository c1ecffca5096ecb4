"""Locks between processes that vanish with the process that holds them, however it ends."""

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


def _take(file: IO) -> None:
    if fcntl:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)


def hold(path: Path) -> IO | None:
    """Returns the open file that holds a lock until it is closed; None where another process holds it.

    On a file system without locks everyone gets it.
    """
    file = open(path, "a+b")  # noqa: SIM115
    try:
        _take(file)
    except HELD:
        file.close()
        return None
    except OSError:
        pass
    return file


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Waits until no other process is inside a block under the same path."""
    while not (file := hold(path)):
        time.sleep(0.02)
    with file:
        yield


def abandoned(path: Path) -> bool:
    """Whether the holder of a lock is gone; on a file system without locks it counts as there."""
    if not os.path.exists(path):
        return True
    with open(path, "a+b") as file:
        try:
            _take(file)
        except OSError:
            return False
    return True
