"""The folder of a training: its identity, its checkpoints, and its best weights."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from pyterrier_cascade.checkpoint import weights_of
from pyterrier_cascade.store.publish import publish_file, publishing_file
from pyterrier_cascade.training.identity import refuse_another
from pyterrier_cascade.training.processes import from_first_process
from pyterrier_cascade.training.settings import Training

BEST, RUN = "best.safetensors", "training.json"
"""The files of a training's folder with its best weights and its identity."""


@contextlib.contextmanager
def training_folder(settings: Training) -> Iterator[Path]:
    """Yields the folder for checkpoints, or a temporary one; raises at once where a given folder is not writable."""
    if settings.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(from_first_process(lambda: folder))
        return
    yield writable_folder(settings)


def writable_folder(settings: Training) -> Path:
    """Returns the folder for the checkpoints of a training, or raises a PermissionError if it is not writable."""
    folder = Path(settings.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        owner = type(settings).__name__
        raise PermissionError(f"cannot write checkpoints to {folder}: {error}; give another {owner}.folder") from error
    return folder


def claim(folder: Path, run: Mapping[str, object], owner: type = Training) -> None:
    """Writes the identity of a training to its folder, or raises if the folder holds another training.

    Args:
        folder: The folder.
        run: The identity of the training.
        owner: The class whose argument ``folder`` the user gave.
    """
    note = folder / RUN
    if note.exists():
        refuse_another(folder, json.loads(note.read_text()), run, owner)
    else:
        publish_file(note, json.dumps(run, indent=1).encode())


def last_checkpoint(folder: Path) -> str | None:
    """Returns the newest complete checkpoint, and removes checkpoints that a killed process left incomplete."""
    complete = None
    for path in sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1])):
        # The Trainer writes this file last, so a checkpoint that has it is complete.
        state = path / "trainer_state.json"
        try:
            json.loads(state.read_text())
            complete = str(path)
        except (OSError, ValueError):
            shutil.rmtree(path)
    return complete


def save_best(module: torch.nn.Module, folder: Path) -> None:
    """Writes the weights of a module as the best ones of its training."""
    with publishing_file(folder / BEST) as unfinished:
        save_file(weights_of(module), unfinished)
