"""A process that dies at a chosen step of its work on files."""

import os
import signal
from collections.abc import Callable


def die_after(step: int) -> Callable:
    """Kills this process once it has made, moved or removed so many files and folders.

    Returns a function that wraps another one, so that its calls are steps too.
    """
    steps = iter(range(step))

    def counted(function):
        def one(*arguments, **options):
            if next(steps, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return one

    for name in ("mkdir", "replace", "rmdir", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    return counted
