"""Progress bars that exist only if somebody asked for them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyterrier as pt


@contextmanager
def progress(label: str, unit: str, verbose: bool, total: int | None = None) -> Iterator[Callable[[int], object]]:
    """Yields a function to call with the number of things that were done.

    A bar that is merely disabled takes a lock that forked processes share, and a process that is killed meanwhile
    blocks all others for ever. So without ``verbose`` there is no bar at all.

    Args:
        label: What is done.
        unit: What is counted.
        verbose: Whether to show a bar.
        total: How many there are, if it is known.
    """
    if not verbose:
        yield lambda n_done: None
        return
    with pt.tqdm(total=total, desc=label, unit=f" {unit}") as bar:
        yield bar.update
