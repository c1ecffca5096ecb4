"""Folders that somebody forged: with code beside a model, with seals that are valid, with links to other places."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyterrier_cascade.store import publish

CODE = """
from pathlib import Path

Path({marker!r}).touch()

import transformers


class NewConfig(transformers.PretrainedConfig):
    model_type = "new"


class NewModel(transformers.BertModel):
    pass


class NewTokenizer(transformers.PreTrainedTokenizerFast):
    pass
"""
"""A module that writes a file as soon as it is imported."""

AUTO_MAP = {
    "AutoConfig": "new.NewConfig",
    "AutoModel": "new.NewModel",
    "AutoModelForSequenceClassification": "new.NewModel",
    "AutoTokenizer": ["new.NewTokenizer", "new.NewTokenizer"],
}


def edited(path: Path, **fields: Any) -> None:
    """Changes fields of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def resealed(path: Path, **fields: Any) -> None:
    """Changes fields of a sealed file and seals it again, as anybody can."""
    path.write_bytes(publish.sealed(json.loads(path.read_bytes()) | fields))


def with_code(folder: str | Path, marker: Path, **config: Any) -> str:
    """Gives a model's folder code that would write the marker, and returns the folder."""
    folder = Path(folder)
    (folder / "new.py").write_text(CODE.format(marker=str(marker)))
    edited(folder / "config.json", auto_map=AUTO_MAP, **config)
    if (tokenizer := folder / "tokenizer_config.json").is_file():
        edited(tokenizer, auto_map={"AutoTokenizer": AUTO_MAP["AutoTokenizer"]}, tokenizer_class="NewTokenizer")
    return str(folder)


def files(folder: Path) -> dict[str, bytes]:
    """Returns the content of every file in a folder, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(action: Callable[[], Any]) -> str:
    """Returns the message of the error that an action raises; fails for raw errors and for long messages."""
    try:
        action()
    except (ValueError, OSError) as error:
        message = str(error)
        ours = isinstance(error, publish.Damaged) or type(error).__module__ == "builtins"
        assert ours and len(message) < 1_000, repr(error)
        return message
    raise AssertionError("it was taken")
