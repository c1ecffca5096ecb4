"""Reading models that Hugging Face's libraries saved, from safetensors only, because a pickle may run any code."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

PICKLED = "pytorch_model.bin"
"""The name of files with pickled weights."""


def pretrained(cls: type, source: str, **options) -> Any:
    """Returns the model that ``cls.from_pretrained`` reads from the safetensors in a folder or on the Hub.

    Args:
        cls: A model class of transformers.
        source: The folder or the Hub name.
        **options: Further arguments of ``from_pretrained``.
    """
    folder = Path(source)
    if folder.is_dir() and any(folder.glob(f"{PICKLED}*")) and not any(folder.glob("*.safetensors*")):
        raise ValueError(
            f"{source!r} has pickled weights only ({PICKLED}), which may run any code and are not loaded; load them "
            "where you trust them and save them again by transformers' save_pretrained, which writes safetensors"
        )
    with undamaged(source):
        return cls.from_pretrained(source, use_safetensors=True, **options)


def config_fields(source: str) -> dict[str, Any]:
    """Returns the fields of the ``config.json`` in a folder or on the Hub."""
    from transformers import PretrainedConfig

    return PretrainedConfig.get_config_dict(source)[0]


def is_classifier(config: Any) -> bool:
    """Returns whether a configuration is that of a sequence classifier and not of a bare encoder."""
    return "ForSequenceClassification" in "".join(getattr(config, "architectures", None) or [])


def portable(config: Any) -> dict[str, Any]:
    """Returns a configuration as a dictionary without its path on this machine, which concerns nobody else."""
    return {name: value for name, value in config.to_dict().items() if name != "_name_or_path"}


def fast_tokenizer(source: str, trust_remote_code: bool = False) -> Any:
    """Returns the fast tokenizer in a folder or on the Hub, or raises if it has only a slow one.

    Args:
        source: The folder or the Hub name.
        trust_remote_code: Whether to run code that comes with the model.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
    if not tokenizer.is_fast:
        raise ValueError(f"{source!r} has no fast tokenizer; save one beside it (tokenizer.json)")
    return tokenizer


@contextlib.contextmanager
def fixed_seed() -> Iterator[None]:
    """Makes fresh weights the same every time, so that two rankers on the same encoder without heads are equal."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


@contextlib.contextmanager
def undamaged(source: str) -> Iterator[None]:
    """Turns errors of reading damaged weights in a ``with`` block into an error that names their folder.

    Args:
        source: The folder or the Hub name.
    """
    try:
        yield
    except SafetensorError as error:
        raise ValueError(f"the weights in {source!r} are damaged ({error}); save or download them again") from error


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Hides transformers' progress bars and its report of missing weights in a ``with`` block.

    The errors and warnings of this package report missing weights instead.
    """
    from transformers.utils import logging

    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
