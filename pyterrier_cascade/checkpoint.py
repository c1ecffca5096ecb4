"""Weights that are read when they are first needed."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyterrier_cascade.encoder.pretrained import CONFIG, silenced, undamaged
from pyterrier_cascade.forks import Lock
from pyterrier_cascade.model import LoadedModel, TrainedOn
from pyterrier_cascade.store.user_cache import user_cache


def weights_of(module) -> dict:
    """Returns a module's tensors by name, on the CPU and contiguous, as safetensors and hashes want them."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}


def check_folder(source: str) -> None:
    """Raises where a source looks like a path and no folder is there."""
    if source.startswith((".", "/", "~")) and not Path(source).is_dir():
        raise FileNotFoundError(f"there is no folder {source!r}; give one with a config.json, or a name on the Hub")


class Checkpoint:
    """A model that is loaded on first use and shared by all copies of a ranker.

    Pickling leaves the weights behind, and the copy loads them again from the source. Weights that were trained and not
    saved exist nowhere else and travel with the pickle; so do the inputs that int8 was calibrated on.

    Args:
        load: A function of this package that returns a :class:`~pyterrier_cascade.model.LoadedModel`.
        source: A folder or a Hub name, the first argument of ``load``.
        **options: The further arguments of ``load`` (for example ``layers``).

    Attributes:
        fitted: The fingerprint of a model that was trained and not saved, else None.
        history: The course of their training.
        notes: Fields of the configuration that were set and not saved; they travel with the pickle too.
    """

    def __init__(self, load: Callable[..., LoadedModel], source: str, **options):
        self.load, self.source, self.options = load, str(source), options
        self.fitted: str | None = None
        self.history: list[dict] = []
        self.notes: dict[str, Any] = {}
        self._loaded, self._lock, self._weights = None, Lock(), None
        self._calibration, self._record = None, None

    @classmethod
    def of(cls, load: Callable[..., LoadedModel], model: Any, owner: str, **options: Any) -> "Checkpoint":
        """Returns the checkpoint that the ``model`` argument of a ranker means.

        Args:
            load: The ranker's loader.
            model: A checkpoint, a folder or a Hub name.
            owner: The ranker's class, for the error.
            **options: The further arguments of ``load``; those that are None are left out.
        """
        if isinstance(model, Checkpoint):
            return model
        if isinstance(model, str | os.PathLike):
            options = {name: value for name, value in options.items() if value is not None}
            return cls(load, os.fspath(model), **options)
        kind = f"{type(model).__module__}.{type(model).__name__}"
        raise TypeError(
            f"a {owner} takes a folder or a Hub name, not an object of {kind}; save that object to a folder "
            "(most have save_pretrained or save) and give the folder"
        )

    @property
    def loaded(self) -> LoadedModel:
        """The model; the first use loads it."""
        # Another thread may hold the lock while it tokenises.
        if (loaded := self._loaded) is not None:
            return loaded
        with self._lock:
            if self._loaded is None:
                import torch

                # Weights that are first used in inference mode can be trained nevertheless.
                with torch.inference_mode(False):
                    loaded = self.load(self.source, **self.options)
                with undamaged(self.source, CONFIG):
                    loaded.check()
                if self._weights is not None:
                    from safetensors.torch import load as from_bytes

                    loaded.module.load_state_dict(from_bytes(self._weights))
                    loaded.mark_trained(self._record)
                    self._weights = None
                if self.notes:
                    loaded.module.config.update(self.notes)
                if self._calibration is not None:
                    loaded.executors.calibrate(self._calibration)
                self._loaded = loaded
            return self._loaded

    @property
    def lock(self) -> Lock:
        """The lock to hold while using the tokenizer, which two threads must not share."""
        return self._lock

    def _state(self) -> bytes:
        from safetensors.torch import save

        return save(weights_of(self.loaded.module))

    @property
    def fingerprint(self) -> str:
        """The hash of the present model: its weights, its tokenizer, and the deciding fields of its configuration."""
        return self.loaded.identity

    def mark_fitted(self, history: list[dict], record: TrainedOn) -> None:
        """Notes that the weights are no longer those of the source.

        Args:
            history: The course of the training.
            record: The record of the training, for the configuration.
        """
        self.loaded.mark_trained(record)
        self.history, self._record, self.notes = history, record, {}
        self.fitted = self.fingerprint

    def note(self, **fields: Any) -> None:
        """Sets fields of the model's configuration, for all rankers on these weights."""
        self.loaded.module.config.update(fields)
        self.notes = self.notes | fields

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Restores the weights from before where the training inside ends with an error."""
        before = self._state() if self.fitted else None
        attributes = {name: getattr(self, name) for name in ("fitted", "history", "options", "notes", "_record")}
        try:
            yield
        except BaseException:
            with self._lock:
                self.__dict__.update(attributes, _loaded=None, _weights=before)
            raise

    def cache(self, name: str) -> Path | None:
        """Returns a folder for files that follow from the weights: beside them, or the user's cache for a Hub name.

        It is None for weights that were trained and not saved: there is no folder beside which files could lie.
        """
        if self.fitted:
            return None
        if Path(self.source).is_dir() and os.access(self.source, os.W_OK):
            return Path(self.source) / name
        return user_cache(name)

    def write(self, path: str | os.PathLike) -> None:
        """Writes the weights, configuration and tokenizer as Hugging Face's libraries do."""
        with silenced():
            self.loaded.module.save_pretrained(path)
        self.loaded.tokenizer.save_pretrained(path)

    def point_to(self, path: str | os.PathLike) -> None:
        """Re-points the checkpoint at a folder that holds its weights."""
        self.source, self.options, self.fitted, self.notes = str(path), {}, None, {}

    def __eq__(self, other):
        """Checkpoints are equal when they name the same weights."""
        if not isinstance(other, Checkpoint):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self):
        """Equal checkpoints hash alike."""
        return hash(self._identity())

    def _identity(self) -> tuple:
        return (self.load, self.source, tuple(sorted(self.options.items())), self.fitted, repr(self.notes))

    def __repr__(self):
        """Returns the source, with the hash of the weights that a training made of it."""
        return f"{self.source!r} fitted to {self.fitted[:8]}" if self.fitted else repr(self.source)

    def __getstate__(self):
        state = self.__dict__.copy()
        state["_weights"] = (self._weights or self._state()) if self.fitted else None
        if self._loaded is not None and self._loaded.executors is not None:
            state["_calibration"] = self._loaded.executors.calibration
        state["_loaded"] = state["_lock"] = None
        # A pool's worker that loaded the folder before knows by this that it was written anew.
        stats = [(path.name, path.stat()) for path in sorted(Path(self.source).glob("*.safetensors"))]
        state["_files"] = [(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state, _lock=Lock())
