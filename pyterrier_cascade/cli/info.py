"""The content of a folder."""

import argparse
import json
from pathlib import Path
from typing import IO, Any

from pyterrier_cascade import registry

HELP = "describe a folder: a ranker, an encoder, a document cache, a trace, an index or a transfer set"
EXAMPLE = "my-cascade --json"
ARTIFACT = "pt_meta.json"
"""The file in which PyTerrier's artifacts say what they are."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("path", metavar="PATH", help="the folder")
    parser.add_argument("--json", action="store_true", help="print an object instead of lines of name, tab, value")


def run(options: argparse.Namespace, out: IO[str]) -> None:
    """Writes the description of a folder."""
    write(described(options.path), out, options.json)


def write(found: dict[str, Any], out: IO[str], as_json: bool = False) -> None:
    """Writes a description.

    Args:
        found: The description.
        out: The stream to write to.
        as_json: Whether to write an object instead of lines of name, tab, value.
    """
    if as_json:
        out.write(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    else:
        out.writelines(f"{name}\t{_in_words(value)}\n" for name, value in found.items())


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))
    words = {None: "none", True: "yes", False: "no"}
    return words[value] if value is None or isinstance(value, bool) else " ".join(str(value).split())


def described(path: str) -> dict[str, Any]:
    """Returns the description of a folder; JSON knows all of it.

    Args:
        path: The folder.
    """
    from pyterrier_cascade.datasets.asnq import built_folder

    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {path!r}")
    if (folder / ARTIFACT).is_file():
        found = _artifact(folder)
    elif (folder / built_folder.PLAN).is_file():
        found = built_folder.describe(folder)
    elif (folder / registry.CONFIG).is_file() or registry.holds(path):
        found = _model(path)
    else:
        raise ValueError(
            f"{path!r} holds nothing that this package writes: there is neither {ARTIFACT} (a cache, a trace or an "
            f"index) nor {registry.CONFIG} (a model) nor {built_folder.PLAN} (a transfer set)"
        )
    return {**found, "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())}


def _artifact(folder: Path) -> dict[str, Any]:
    """Returns the description of an artifact by its own class, which PyTerrier finds among the entry points."""
    import pyterrier as pt

    from pyterrier_cascade.text_files import read_json

    # An error of PyTerrier about damaged JSON would not name the file.
    read_json(folder / ARTIFACT)
    artifact = pt.Artifact.load(str(folder))
    if not hasattr(artifact, "describe"):
        raise ValueError(f"{str(folder)!r} holds a {type(artifact).__name__}, which is not of this package")
    return artifact.describe()


def _model(path: str) -> dict[str, Any]:
    """Returns the description of a ranker or an encoder.

    A ranker that is made of several models has lists: the values of each model in turn.
    """
    from pyterrier_cascade.cli import models

    reranker = models.held_by(path)
    if reranker is None:
        return _encoder(path)
    ranker = models.load(path, reranker, [])
    members = ranker.weight_holders()
    each = [_weights(member.model) for member in members]
    found = each[0] if members == (ranker,) else {name: [one[name] for one in each] for name in each[0]}
    loaded = [member.model.loaded for member in members]
    return {
        "kind": reranker.command,
        "trained": all(one.untrained is None for one in loaded),
        "parameters": sum(one.n_parameters for one in loaded),
        **found,
    }


def _weights(checkpoint: Any) -> dict[str, Any]:
    record = checkpoint.loaded.trained_on
    return {
        **checkpoint.loaded.describe(),
        "trained_on": None if record is None else record.to_config(),
        "fingerprint": checkpoint.fingerprint,
    }


def _encoder(path: str) -> dict[str, Any]:
    import transformers

    from pyterrier_cascade.encoder.pretrained import config_from, pretrained, silenced
    from pyterrier_cascade.identity import combined, deciding_fields, of_weights

    with silenced():
        config = config_from(path)
        module, _ = pretrained(transformers.AutoModel, path, config)
    return {
        "kind": "encoder",
        "encoder": config.model_type,
        "layers": config.num_hidden_layers,
        "width": config.hidden_size,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "fingerprint": combined(of_weights(module.state_dict()), deciding_fields(config)),
    }
