"""Weights that are read when they are first needed."""

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyterrier_cascade.encoder.pretrained import silenced


def weights_of(module) -> dict:
    """Returns a module's tensors by name, on the CPU and contiguous, as safetensors and hashes want them."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}


def check_folder(source: str) -> None:
    """Raises where a source looks like a folder and is none."""
    if source.startswith((".", "/", "~")) and not Path(source).is_dir():
        raise FileNotFoundError(f"there is no folder {source!r}; give one with a config.json, or a name on the Hub")


class Checkpoint:
    """A module and its tokenizer, loaded on first use and shared by all copies of a ranker.

    Pickling leaves the weights behind and loads them again from the source, except weights that were trained and not
    saved: those exist nowhere else and travel with the pickle, and so do the inputs that int8 was calibrated on.

    Args:
        load: A function of this package that returns an object with ``module`` and ``tokenizer``.
        source: A folder or a Hub name, handed to ``load``.
        **options: What else is handed to ``load`` (for example ``layers``).
    """

    def __init__(self, load: Callable[..., Any], source: str, **options):
        self.load, self.source, self.options = load, str(source), options
        self.fitted: str | None = None
        self.history: list[dict] = []
        self.notes: dict[str, Any] = {}
        self._loaded, self._lock, self._weights = None, threading.RLock(), None
        self._calibration = None

    @property
    def loaded(self):
        """What ``load`` returned; the first use loads it."""
        with self._lock:
            if self._loaded is None:
                import torch

                # Weights that are first used in inference mode can be trained nevertheless.
                with torch.inference_mode(False):
                    loaded = self.load(self.source, **self.options)
                if self._weights is not None:
                    from safetensors.torch import load as from_bytes

                    loaded.module.load_state_dict(from_bytes(self._weights))
                    loaded.untrained = None
                    self._weights = None
                if self._calibration is not None:
                    loaded.executors.calibrate(self._calibration)
                self._loaded = loaded
            return self._loaded

    @property
    def lock(self) -> threading.RLock:
        """Held by whoever uses the tokenizer, which two threads must not share."""
        return self._lock

    def _state(self) -> bytes:
        from safetensors.torch import save

        return save(weights_of(self.loaded.module))

    @property
    def fingerprint(self) -> str:
        """The hash of the weights as they are."""
        return hashlib.sha256(self._state()).hexdigest()

    def mark_fitted(self, history: list[dict], **notes) -> None:
        """Notes that the weights are no longer those of the source.

        Args:
            history: The course of the training.
            **notes: What the saved configuration is to say of it.
        """
        self.loaded.untrained = None
        self.history, self.notes = history, notes
        self.fitted = self.fingerprint

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Gives back the weights from before where a training ends with an error, so that they are what they say."""
        before = self._state() if self.fitted else None
        said = {name: getattr(self, name) for name in ("fitted", "history", "notes", "options")}
        try:
            yield
        except BaseException:
            with self._lock:
                self.__dict__.update(said, _loaded=None, _weights=before)
            raise

    def cache(self, name: str) -> Path | None:
        """Returns a folder for what follows from the weights: beside them, or the user's cache for a Hub name.

        None for weights that were trained and not saved: they are nowhere that anything could lie beside.
        """
        if self.fitted:
            return None
        if Path(self.source).is_dir() and os.access(self.source, os.W_OK):
            return Path(self.source) / name
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pyterrier_cascade" / name

    def write(self, path: str) -> None:
        """Writes the weights, configuration and tokenizer the Hugging Face way."""
        target = Path(path)
        if target.exists() and not target.is_dir():
            raise FileExistsError(f"{path} is a file; save_pretrained writes a folder")
        self.loaded.module.config.update(self.notes)
        with silenced():
            self.loaded.module.save_pretrained(path)
        self.loaded.tokenizer.save_pretrained(path)

    def stand_for(self, path: str) -> None:
        """Makes the checkpoint that of a folder which holds its weights."""
        self.source, self.options, self.fitted = str(path), {}, None

    def __eq__(self, other):
        """Checkpoints are equal when they name the same weights."""
        if not isinstance(other, Checkpoint):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self):
        """Equal checkpoints hash alike."""
        return hash(self._identity())

    def _identity(self) -> tuple:
        return (self.load, self.source, tuple(sorted(self.options.items())), self.fitted)

    def __repr__(self):
        """Returns the source, with the hash of what training made of it."""
        return f"{self.source!r} fitted to {self.fitted[:8]}" if self.fitted else repr(self.source)

    def __getstate__(self):
        state = self.__dict__.copy()
        state["_weights"] = (self._weights or self._state()) if self.fitted else None
        if executors := getattr(self._loaded, "executors", None):
            state["_calibration"] = executors.calibration
        state["_loaded"] = state["_lock"] = None
        # What loaded the folder before, such as a pool's worker, knows by this that it was written anew.
        stats = [(path.name, path.stat()) for path in sorted(Path(self.source).glob("*.safetensors"))]
        state["_files"] = [(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state, _lock=threading.RLock())
