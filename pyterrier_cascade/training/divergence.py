"""Trainings that diverge: found before their weights are measured, kept or saved."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from pyterrier_cascade.checks import warn_user


def divergence(found: str, update: int, learning_rate: float) -> FloatingPointError:
    """Returns the error of a training that diverged.

    Args:
        found: The broken number, such as ``"the loss is nan"``.
        update: The number of the update where it was found.
        learning_rate: The peak learning rate.
    """
    return FloatingPointError(
        f"{found} at update {update} with learning_rate={learning_rate}; use a smaller one, or precision='fp32'"
    )


def check_finite(module: torch.nn.Module, update: int, learning_rate: float) -> None:
    """Raises a FloatingPointError where a module has weights that are NaN or infinite.

    The loss is computed before an update, so the last update of a training shows in the weights alone.

    Args:
        module: The module.
        update: The number of updates that it had.
        learning_rate: The peak learning rate.
    """
    broken = [name for name, weights in module.state_dict().items() if not weights.isfinite().all()]
    if broken:
        raise divergence(f"{len(broken)} weights ({broken[0]}, ...) are NaN or infinite", update, learning_rate)


@contextmanager
def best_kept(was_measured: Callable[[], bool]) -> Iterator[None]:
    """Ends a training in a ``with`` block that diverges: with a warning where it was measured before, else an error.

    After the warning the caller goes on with the weights of the best measurement.

    Args:
        was_measured: Returns whether there is a measurement on development questions.
    """
    try:
        yield
    except FloatingPointError as error:
        if not was_measured():
            raise
        warn_user(f"{error}. The training ends there, and the weights of its best measurement are kept")
