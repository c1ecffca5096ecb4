"""What lies in a folder."""

import argparse
import json
from pathlib import Path
from typing import IO, Any

HELP = "say what a folder holds: a ranker, an encoder, a document cache, a trace, an index, a transfer set"
EXAMPLE = "my-cascade --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("path", metavar="PATH", help="the folder")
    parser.add_argument("--json", action="store_true", help="print an object instead of lines of name, tab, value")


def run(options: argparse.Namespace, out: IO[str]) -> None:
    """Writes what the folder holds."""
    write(described(options.path), out, options.json)


def write(found: dict[str, Any], out: IO[str], as_json: bool = False) -> None:
    """Writes a description.

    Args:
        found: The description.
        out: Where to.
        as_json: As an object instead of lines of name, tab, value.
    """
    if as_json:
        out.write(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    else:
        out.writelines(f"{name}\t{_shown(value)}\n" for name, value in found.items())


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    words = {None: "none", True: "yes", False: "no"}
    return words[value] if value is None or isinstance(value, bool) else " ".join(str(value).split())


def described(path: str) -> dict[str, Any]:
    """Returns what a folder holds, all that JSON knows.

    Args:
        path: The folder.
    """
    from pyterrier_cascade.cli import models
    from pyterrier_cascade.datasets.asnq.built_folder import PLAN

    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {path!r}")
    if (folder / models.ARTIFACT).is_file():
        found = _artifact(folder)
    elif (folder / PLAN).is_file():
        found = _transfer_set(folder)
    elif models.is_sequential(path):
        found = _sequential(path)
    elif (folder / "config.json").is_file():
        kind = models.kind_of(path)
        found = _encoder(path) if kind == models.ENCODER else _ranker(path, kind)
    else:
        raise ValueError(
            f"{path!r} is nothing that is known here: it has neither {models.ARTIFACT} (a cache, a trace or an index) "
            f"nor config.json (a model) nor {PLAN} (a transfer set)"
        )
    return {**found, "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())}


def _artifact(folder: Path) -> dict[str, Any]:
    from pyterrier_cascade.cli import models

    kinds = {"dcbert_cache": _cache, "cascade_trace": _trace, "sparse_index": _index}
    try:
        kind = json.loads((folder / models.ARTIFACT).read_text(encoding="utf-8")).get("type")
    except ValueError as error:
        raise ValueError(f"{str(folder / models.ARTIFACT)!r} is damaged ({error})") from error
    if kind not in kinds:
        raise ValueError(f"{str(folder)!r} holds a {kind!r}, which is not of this package")
    return kinds[kind](folder)


def _cache(folder: Path) -> dict[str, Any]:
    from pyterrier_cascade import DocumentCache

    cache = DocumentCache(folder)
    return {
        "kind": "document cache",
        "documents": len(cache),
        "entries": cache.n_entries,
        "tokens": cache.n_tokens,
        "dtype": cache.dtype,
        "width": cache.width,
        "complete": cache.complete,
        "missing_shards": cache.missing,
        "model": cache.meta["model"],
        "parts": cache.meta.get("parts", {}),
        "document_fingerprint": cache.meta["fingerprint"],
    }


def _trace(folder: Path) -> dict[str, Any]:
    from pyterrier_cascade import Trace

    trace = Trace(folder)
    return {
        "kind": "trace",
        "questions": len(trace.sizes),
        "candidates": len(trace),
        "heads": list(trace.layers),
        "layers": trace.meta["full_layers"],
        "model": trace.meta["ranker"],
        "fingerprint": trace.meta["fingerprint"],
    }


def _index(folder: Path) -> dict[str, Any]:
    from pyterrier_cascade import BM25

    index = BM25(folder)
    return {
        "kind": "BM25 index",
        "documents": index.n_docs,
        **index.settings.as_dict(),
        "fingerprint": index.fingerprint,
    }


def _transfer_set(folder: Path) -> dict[str, Any]:
    """Returns the questions and pairs of an ASNQ-like folder, as far as it is built."""
    from pyterrier_cascade.datasets.asnq.built_folder import MANIFEST, read_manifest, total_counts

    if not (folder / MANIFEST).is_file():
        return {"kind": "transfer set", "complete": False}
    shards = read_manifest(folder)["shards"]
    counts = {}
    for part, counter in total_counts(shard["counts"] for shard in shards).items():
        counts[f"{part}_questions"] = counter.pop("questions")
        counts[f"{part}_pairs_by_label"] = dict(sorted(counter.items()))
    return {"kind": "transfer set", "complete": True, "shards": len(shards), **counts}


def _sequential(path: str) -> dict[str, Any]:
    from pyterrier_cascade import SequentialReranker

    ranker = SequentialReranker.from_pretrained(path)
    models = [_ranker(model.model.source, "crossencoder") for model in ranker.models]
    return {
        "kind": "sequential",
        "trained": all(model["trained"] for model in models),
        "layers": [model["layers"] for model in models],
        "parameters": sum(model["parameters"] for model in models),
        "fingerprints": [model["fingerprint"] for model in models],
    }


def _ranker(path: str, kind: str) -> dict[str, Any]:
    from pyterrier_cascade.cli import models

    ranker = models.load(path, kind, [])
    model = ranker.model.loaded
    more = {"crossencoder": _paired, "cascade": _cascade, "dcbert": _dcbert, "hierarchical": _hierarchical}[kind]
    return {
        "kind": kind,
        "trained": model.untrained is None,
        **more(ranker, model),
        "parameters": sum(parameter.numel() for parameter in model.module.parameters()),
        "fingerprint": ranker.model.fingerprint,
    }


def _paired(ranker, model) -> dict[str, Any]:
    config = model.encoder_config
    return {
        "encoder": config.model_type,
        "layers": model.layers,
        "full_layers": model.full_layers,
        "width": config.hidden_size,
        "heads": [head.layer for head in model.heads],
        "pooling": model.heads[0].pooling,
        "tokens": model.length_limit,
    }


def _cascade(ranker, model) -> dict[str, Any]:
    config = model.module.config
    return {**_paired(ranker, model), "outputs": config.outputs, "trained_on": config.trained_on or None}


def _dcbert(ranker, model) -> dict[str, Any]:
    config = model.module.config
    return {
        "encoder": config.encoder_config().model_type,
        "layers": model.full_layers,
        "width": config.encoder_config().hidden_size,
        "lower_layers": model.lower_layers,
        "joint_layers": model.joint_layers,
        "variant": config.variant,
        "tied": config.tied,
        "head": config.head,
        "tokens": model.length_limit,
        "trained_on": config.trained_on or None,
        "document_fingerprint": ranker.document_fingerprint(),
    }


def _hierarchical(ranker, model) -> dict[str, Any]:
    config = model.module.config
    return {
        "scheme": config["scheme"],
        "level": config["level"],
        "vectors": config["vectors"],
        "words": len(model.tokenizer.words),
        "architecture": config["architecture"],
    }


def _encoder(path: str) -> dict[str, Any]:
    import hashlib

    import transformers
    from safetensors.torch import save

    from pyterrier_cascade.checkpoint import weights_of
    from pyterrier_cascade.encoder.pretrained import pretrained, silenced

    with silenced():
        module = pretrained(transformers.AutoModel, path)
    config = module.config
    return {
        "kind": "encoder",
        "encoder": config.model_type,
        "layers": config.num_hidden_layers,
        "width": config.hidden_size,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "fingerprint": hashlib.sha256(save(weights_of(module))).hexdigest(),
    }
