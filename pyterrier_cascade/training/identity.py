"""Tells trainings apart, so that a folder with the files of another training is an error and not continued wrongly."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from pyterrier_cascade.identity import combined, deciding_fields, of_arrays, of_weights
from pyterrier_cascade.training.settings import Training


def identity(
    settings: Training, module: torch.nn.Module, examples: Iterable[np.ndarray], dev: str | None
) -> dict[str, object]:
    """Returns everything that decides the result of a training, as JSON values: its settings, and hashes of the rest.

    The hash covers the deciding fields of the module's ``config`` too, because some choices, such as the pooling, are
    not in the weights.

    Args:
        settings: The settings of the training.
        module: The module before the training.
        examples: The arrays of the training examples.
        dev: A hash of the development data; None without development data.
    """
    fields = deciding_fields(module.config, training=True)
    run = {name: value for name, value in asdict(settings).items() if name not in ("folder", "save_every")}
    run["data_and_weights"] = combined(of_weights(module.state_dict()), of_arrays(examples), fields)
    run["development_data"] = dev
    return json.loads(json.dumps(run, default=lambda number: number.item()))


def refuse_another(folder: Path, before: Mapping, now: Mapping, owner: type, holds: str = "another training") -> None:
    """Raises a ValueError that names all differences if a folder holds the files of another training.

    Args:
        folder: The folder.
        before: The identity that the folder's note holds; fields that ``now`` does not have are ignored.
        now: The identity of the present training.
        owner: The class whose argument ``folder`` the user gave.
        holds: The contents of the folder, for the error.
    """
    differing = [name for name in now if before.get(name) != now[name]]
    if differing:
        raise ValueError(
            f"{folder} holds {holds}: "
            + ", ".join(f"{name} was {before.get(name)!r} and is {now[name]!r}" for name in differing)
            + f"; give another {owner.__name__}.folder, or remove this one"
        )
