"""Reading models that Hugging Face's libraries saved: from safetensors only, and without running code of theirs."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

PICKLED = "pytorch_model.bin"
"""The name of files with pickled weights."""
ADAPTER = "adapter_config.json"
"""The file that lets transformers read the weights of yet another model."""
MOST_LAYERS = 1_000
"""The most layers of an encoder; a configuration with more would be built for minutes before an error."""
CONFIG = "config.json"
JSON_FILES = (CONFIG, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""The files of a model that hold one object; ``tokenizer.json`` is long and read by its own library."""
IGNORED = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal", "dtype", "torch_dtype")
"""Fields of an encoder's configuration that this package decides: what computes the attention, which could be code on
the Hub, and the type of the weights, which are in fp32."""
ENCODER = re.compile(r"(?:^|\.)(?:layers?\.\d+|embeddings)\.")
"""The names of the weights that no encoder can do without."""


def pretrained(
    cls: type, source: str, config: Any, *, trust_remote_code: bool = False, truncated: bool = False, **options
) -> tuple[Any, dict[str, Any]]:
    """Returns the model that ``cls.from_pretrained`` reads from safetensors, and which weights were not as expected.

    Args:
        cls: A model class of transformers.
        source: The folder or the Hub name.
        config: The configuration, as :func:`config_from` returns it.
        trust_remote_code: Whether code that comes with the model may run.
        truncated: Whether the configuration has fewer layers than the weights on purpose.
        **options: Further arguments of ``from_pretrained``.
    """
    folder = Path(source)
    if folder.is_dir() and any(folder.glob(f"{PICKLED}*")) and not any(folder.glob("*.safetensors*")):
        raise ValueError(
            f"{source!r} has pickled weights only ({PICKLED}), which may run any code and are not loaded; load them "
            "where you trust them and save them again by transformers' save_pretrained, which writes safetensors"
        )
    if (folder / ADAPTER).is_file():
        raise ValueError(
            f"{source!r} has an adapter ({ADAPTER}) and not a whole model; merge it into its model by peft's "
            "merge_and_unload, and save that"
        )
    import torch

    check_sizes(cls, source, config, trust_remote_code)
    with undamaged(source):
        options |= {"config": config, "trust_remote_code": trust_remote_code, "output_loading_info": True}
        module, info = cls.from_pretrained(source, use_safetensors=True, dtype=torch.float32, **options)
    for kind, what in (("missing", "lacks weights that"), ("unexpected", "has weights of more layers than")):
        names = sorted(name for name in info[f"{kind}_keys"] if ENCODER.search(name))
        if names and not (truncated and kind == "unexpected"):
            raise ValueError(
                f"{source!r} {what} its config.json counts: {', '.join(names[:3])}{' ...' * (len(names) > 3)}; use the "
                "config.json that was saved with the weights"
            )
    return module, info


def config_from(source: str, trust_remote_code: bool = False, cls: type | None = None) -> Any:
    """Returns the configuration in a folder or on the Hub.

    Args:
        source: The folder or the Hub name.
        trust_remote_code: Whether code that comes with the model may run.
        cls: The class of the configuration; the one that its ``model_type`` names unless given.
    """
    from transformers import AutoConfig

    check_files(source)
    with undamaged(source, CONFIG):
        if cls is not None:
            config = cls.from_pretrained(source)
        else:
            config = AutoConfig.from_pretrained(source, trust_remote_code=trust_remote_code)
        return _checked(config)


def config_of(fields: Mapping[str, Any]) -> Any:
    """Returns the configuration of an encoder as its own class.

    Args:
        fields: Its fields, with ``model_type``.
    """
    from transformers import AutoConfig

    return _checked(AutoConfig.for_model(**{name: value for name, value in fields.items() if name not in IGNORED}))


def _checked(config: Any) -> Any:
    """Returns a configuration that names no code for its attention, after a check of its layers."""
    config._attn_implementation = None
    layers = getattr(config, "num_hidden_layers", None)
    if layers is not None and not 1 <= layers <= MOST_LAYERS:
        raise ValueError(f"num_hidden_layers is {layers}; an encoder has 1 to {MOST_LAYERS} layers")
    return config


def config_fields(source: str) -> dict[str, Any]:
    """Returns the fields of the ``config.json`` in a folder or on the Hub."""
    from transformers import PretrainedConfig

    check_files(source)
    with undamaged(source, CONFIG):
        return PretrainedConfig.get_config_dict(source)[0]


def check_files(source: str) -> None:
    """Raises where a file of the model in a folder is not one JSON object."""
    for path in (Path(source) / name for name in JSON_FILES):
        if path.is_file():
            json_object(path)


def json_object(path: Path) -> dict[str, Any]:
    """Returns the content of a file that holds one JSON object, or raises with the name of the file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else f"not JSON ({error})"
        raise ValueError(f"{str(path)!r} is {reason}; save or download it again") from error
    if not isinstance(found, dict):
        raise ValueError(f"{str(path)!r} holds a {type(found).__name__}, not an object; save or download it again")
    return found


def check_sizes(cls: type, source: str, config: Any, trust_remote_code: bool = False) -> None:
    """Raises where the layers or the sizes in a folder's ``config.json`` are not those of its weights.

    The sizes are compared before anything of such a size takes memory.

    Args:
        cls: A model class of transformers.
        source: The folder; the weights of a Hub name are not there yet and are not compared.
        config: The configuration.
        trust_remote_code: Whether code that comes with the model may run.
    """
    import torch

    with undamaged(source, CONFIG):
        found = _shapes(Path(source))
        if not found:
            return
        with torch.device("meta"):
            if hasattr(cls, "from_config"):
                module = cls.from_config(config, trust_remote_code=trust_remote_code)
            else:
                module = cls(config)
    prefix = f"{module.base_model_prefix}."
    wanted = {name.removeprefix(prefix): tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    for name, shape in found.items():
        if shape != wanted.get(name.removeprefix(prefix), shape):
            raise ValueError(
                f"the sizes in {str(Path(source) / CONFIG)!r} are not those of the weights beside it: {name} is of "
                f"{shape} and should be of {wanted[name.removeprefix(prefix)]}; use the {CONFIG} that was saved with "
                "the weights"
            )


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the weights in a folder by their names, read from the heads of the files."""
    from safetensors import safe_open

    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            found |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return found


def is_classifier(config: Any) -> bool:
    """Returns whether a configuration is that of a sequence classifier and not of a bare encoder."""
    return "ForSequenceClassification" in str(getattr(config, "architectures", None))


def portable(config: Any) -> dict[str, Any]:
    """Returns a configuration as a dictionary without its path on this machine, which concerns nobody else."""
    return {name: value for name, value in config.to_dict().items() if name != "_name_or_path"}


def tokenizer_for(module: Any, source: str, trust_remote_code: bool = False) -> Any:
    """Returns the fast tokenizer in a folder or on the Hub, or raises if the model cannot read what it gives.

    Args:
        module: The model of transformers that will read its words.
        source: The folder or the Hub name.
        trust_remote_code: Whether to run code that comes with the model.
    """
    from transformers import AutoTokenizer

    check_files(source)
    with undamaged(source, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
        last, word = max((number, word) for word, number in tokenizer.get_vocab().items())
    if not tokenizer.is_fast:
        raise ValueError(f"{source!r} has no fast tokenizer; save one beside it (tokenizer.json)")
    n_words = module.get_input_embeddings().num_embeddings
    if last >= n_words:
        raise ValueError(
            f"the tokenizer of {source!r} has a word of number {last}, {word!r}, but the model has embeddings of "
            f"{n_words} words; save the tokenizer that the model was trained with, or resize the model's embeddings"
        )
    return tokenizer


@contextlib.contextmanager
def fixed_seed() -> Iterator[None]:
    """Makes fresh weights the same every time, so that two rankers on the same encoder without heads are equal."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


@contextlib.contextmanager
def undamaged(source: str, what: str = "model") -> Iterator[None]:
    """Turns errors of reading damaged files in a ``with`` block into an error that names their folder.

    Errors of missing files and of missing libraries stay as they are.

    Args:
        source: The folder or the Hub name.
        what: The part of the model that the block reads.
    """
    try:
        yield
    except SafetensorError as error:
        raise ValueError(f"the weights in {source!r} are damaged ({error}); save or download them again") from error
    except (OSError, ImportError, MemoryError, Warning):
        raise
    except Exception as error:
        if source in str(error):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise ValueError(f"the {what} in {source!r} cannot be read ({reason}); save or download it again") from error


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
