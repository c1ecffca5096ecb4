"""Several processes that train one model, as torchrun starts them."""

import os
import warnings
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist

Found = TypeVar("Found")


def agreed(compute: Callable[[], Found]) -> Found:
    """Returns what the first process computes, in all of them; its error is raised in all of them."""
    if not (dist.is_available() and dist.is_initialized()):
        return compute()
    found = [None, None]
    if dist.get_rank() == 0:
        try:
            found[0] = compute()
        except Exception as error:
            found[1] = error
    dist.broadcast_object_list(found)
    if found[1] is not None:
        raise found[1]
    return found[0]


def leads() -> bool:
    """Returns whether this is the first process, which alone writes and prints what all have."""
    return int(os.environ.get("RANK", "0")) == 0


def check_alone(what: str) -> None:
    """Raises where torchrun started several processes for what one process trains.

    Args:
        what: What is trained.
    """
    n_processes = int(os.environ.get("WORLD_SIZE", "1"))
    if n_processes > 1:
        raise ValueError(f"{what} is trained in one process, not in {n_processes}: start it without torchrun")


def share(module: torch.nn.Module) -> None:
    """Gives the first process's weights to all others."""
    if dist.is_available() and dist.is_initialized():
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)


def dealt(batches: list, n_processes: int) -> list:
    """Returns batches in a number that n processes can share out evenly; the first ones fill up.

    A process that had a batch less would be waited for without end.

    Args:
        batches: Of all epochs.
        n_processes: How many take turns.
    """
    missing = -len(batches) % n_processes
    return [*batches, *(batches[number % len(batches)] for number in range(missing))]


def warn_if_alone(n_processes: int) -> None:
    """Warns where ``accelerate launch`` was asked for several processes and started one, as it does on CPUs.

    Args:
        n_processes: How many there are.
    """
    asked = "ACCELERATE_USE_CPU" in os.environ and "MASTER_ADDR" in os.environ
    if asked and n_processes == 1:
        warnings.warn(
            "accelerate launch was asked for several processes and started one, which trains alone; start them with "
            "`torchrun --nproc-per-node 2 script.py`",
            stacklevel=2,
        )
