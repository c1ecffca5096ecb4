"""Which training a folder holds, so that another one there is an error and not a wrong continuation."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from pyterrier_cascade.checkpoint import weights_of
from pyterrier_cascade.training.settings import Training


def identity(
    settings: Training, module: torch.nn.Module, examples: Iterable[np.ndarray], dev: str | None
) -> dict[str, object]:
    """Returns what decides the result of a training, as JSON has it: its settings, and hashes of the rest.

    The weights do not say all of a model: a pooling, or which head is scored by, stands in its ``config`` only.

    Args:
        settings: How is trained.
        module: What is trained, as it is before.
        examples: What it is trained on.
        dev: A hash of the development data; None without such.
    """
    digest = hashlib.sha256()
    for name, tensor in weights_of(module).items():
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy())
    for values in examples:
        digest.update(np.ascontiguousarray(values))
    config = module.config if isinstance(module.config, Mapping) else module.config.to_dict()
    digest.update(json.dumps(_lasting(config), sort_keys=True, default=repr).encode())
    run = {name: value for name, value in asdict(settings).items() if name not in ("folder", "save_every")}
    run |= {"data_and_weights": digest.hexdigest(), "development_data": dev}
    return json.loads(json.dumps(run, default=lambda number: number.item()))


def _lasting(config: object) -> object:
    """Returns a configuration without what changes nothing: where it came from, what read it or has written it."""
    if not isinstance(config, Mapping):
        return config
    left_out = ("_name_or_path", "_attn_implementation", "architectures", "dtype", "transformers_version")
    return {str(name): _lasting(value) for name, value in config.items() if name not in left_out}


def refuse_another(folder: Path, before: Mapping, run: Mapping, kind: type[Training]) -> None:
    """Raises unless a folder holds this training.

    Args:
        folder: The folder.
        before: What :func:`identity` returned for the training that it holds.
        run: The same for this one.
        kind: The class of its settings.
    """
    differing = [name for name in run if before.get(name) != run[name]]
    if differing:
        raise ValueError(
            f"{folder} holds another training: "
            + ", ".join(f"{name} was {before.get(name)!r} and is {run[name]!r}" for name in differing)
            + f"; give another {kind.__name__}.folder, or remove this one"
        )
