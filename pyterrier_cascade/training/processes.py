"""Training one model in several processes, which torchrun starts."""

import os
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist

from pyterrier_cascade.checks import warn_user

Result = TypeVar("Result")


def from_first_process(compute: Callable[[], Result]) -> Result:
    """Computes something in the first process only, and returns the result in all processes.

    If the first process raises an error, all processes raise it.

    Args:
        compute: The function to call.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return compute()
    result_and_error = [None, None]
    if dist.get_rank() == 0:
        try:
            result_and_error[0] = compute()
        except Exception as error:
            result_and_error[1] = error
    dist.broadcast_object_list(result_and_error)
    result, error = result_and_error
    if error is not None:
        raise error
    return result


def leads() -> bool:
    """Returns whether this is the first process, the only one that writes files and prints."""
    return int(os.environ.get("RANK", "0")) == 0


def check_alone(what: str) -> None:
    """Raises a ValueError if torchrun started several processes for a training that runs in one process only.

    Args:
        what: The name of the model that is trained, for the error.
    """
    n_processes = int(os.environ.get("WORLD_SIZE", "1"))
    if n_processes > 1:
        raise ValueError(f"{what} is trained in one process, not in {n_processes}: start it without torchrun")


def copy_from_first_process(module: torch.nn.Module) -> None:
    """Copies the weights of the first process into the same module of all other processes."""
    if dist.is_available() and dist.is_initialized():
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)


def evenly_divisible(batches: list, n_processes: int) -> list:
    """Returns the batches, with the first ones repeated at the end until the processes can share them evenly.

    If one process had fewer batches than the others, these would wait for it forever.

    Args:
        batches: The batches of all epochs.
        n_processes: The number of processes.
    """
    missing = -len(batches) % n_processes
    return [*batches, *(batches[number % len(batches)] for number in range(missing))]


def warn_if_alone(n_processes: int) -> None:
    """Warns if ``accelerate launch`` was asked for several processes but started one, as it does on CPUs.

    Args:
        n_processes: The number of processes that run.
    """
    asked = "ACCELERATE_USE_CPU" in os.environ and "MASTER_ADDR" in os.environ
    if asked and n_processes == 1:
        warn_user(
            "accelerate launch was asked for several processes and started one, which trains alone; start them with "
            "`torchrun --nproc-per-node 2 script.py`"
        )
