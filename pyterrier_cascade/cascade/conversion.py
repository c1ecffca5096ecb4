"""A cascade of a trained cross-encoder: its own classifier is the last head, and fresh heads stand before it."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import transformers

from pyterrier_cascade.cascade.loading import check_heads, check_last, load
from pyterrier_cascade.checkpoint import Checkpoint, check_folder
from pyterrier_cascade.crossencoder import model as crossencoder
from pyterrier_cascade.encoder.families import family_of
from pyterrier_cascade.encoder.pretrained import config_from, is_classifier
from pyterrier_cascade.ranker import Ranker
from pyterrier_cascade.registry import refuse_others


def checkpoint_of(source: Any, layers: Sequence[int] | None, trust_remote_code: bool) -> Checkpoint:
    """Returns the checkpoint of the cascade of a cross-encoder; raises where none can be made.

    Args:
        source: A folder, a Hub name, a :class:`~pyterrier_cascade.CrossEncoder`, or a
            ``sentence_transformers.CrossEncoder``.
        layers: As for :func:`~pyterrier_cascade.cascade.loading.load`.
        trust_remote_code: Likewise.
    """
    check_heads(layers, None, None)
    folder = _folder_of(source)
    check_folder(folder)
    refuse_others(folder, "CrossEncoder")
    config = config_from(folder, trust_remote_code)
    family_of(config)
    if not is_classifier(config):
        raise ValueError(
            f"{folder!r} is an encoder without a classifier; Cascade.from_pretrained gives it fresh heads to be "
            "trained with labels, and CrossEncoder.from_pretrained trains a classifier"
        )
    crossencoder.check_outputs(folder, config)
    if layers is not None:
        check_last(layers, config, folder)
    options = {"layers": None if layers is None else tuple(map(int, layers)), "trust_remote_code": trust_remote_code}
    return Checkpoint(load, folder, convert=True, **{name: value for name, value in options.items() if value})


def settings_of(source: Any) -> dict[str, Any]:
    """Returns the settings of a cross-encoder object on which its scores depend; none for a folder or a Hub name."""
    if isinstance(source, Ranker):
        return source.settings()
    return {"max_length": source.max_length} if hasattr(source, "max_length") else {}


def _folder_of(source: Any) -> str:
    """Returns the name of a cross-encoder's weights; an object's own weights are written to a temporary folder."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    model = getattr(source, "model", None)
    if isinstance(model, Checkpoint):
        if not model.fitted and not model.options:
            return model.source
        return _written(model.write)
    if hasattr(source, "predict") and isinstance(model, transformers.PreTrainedModel):
        # A CrossEncoder of sentence-transformers holds a Hugging Face model and its tokenizer.
        return _written(lambda folder: (model.save_pretrained(folder), source.tokenizer.save_pretrained(folder)))
    kind = f"{type(source).__module__}.{type(source).__name__}"
    raise TypeError(
        "Cascade.from_cross_encoder takes a folder, a Hub name, a CrossEncoder, or a CrossEncoder of "
        f"sentence-transformers, not an object of {kind}"
    )


def _written(write: Callable[[str], Any]) -> str:
    folder = tempfile.mkdtemp(prefix="pyterrier-cascade-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write(folder)
    return folder
