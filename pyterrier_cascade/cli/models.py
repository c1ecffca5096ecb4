"""Which ranker a folder holds, and how it is made with the settings of a command line."""

from collections.abc import Sequence
from pathlib import Path

import pyterrier_cascade
from pyterrier_cascade.cli import settings

RANKERS = {
    "crossencoder": "CrossEncoder",
    "cascade": "Cascade",
    "dcbert": "DCBERT",
    "hierarchical": "HierarchicalRanker",
    "sequential": "SequentialReranker",
}
TRAININGS = {
    "crossencoder": "Training",
    "cascade": "CascadeTraining",
    "dcbert": "DCBertTraining",
    "hierarchical": "HierarchicalTraining",
}
MODEL_TYPES = {"cascade_transformer": "cascade", "dc_bert": "dcbert", "hierarchical_ranker": "hierarchical"}
ENCODER = "encoder"
OF_DCBERT = ("dcbert", "crossencoder", ENCODER)
"""What a DC-BERT is, or is made of."""
ARTIFACT = "pt_meta.json"


def ranker_class(kind: str) -> type:
    """Returns the class of a kind of ranker."""
    return getattr(pyterrier_cascade, RANKERS[kind])


def training_class(kind: str) -> type:
    """Returns the class that says how a kind of ranker is trained."""
    return getattr(pyterrier_cascade, TRAININGS[kind])


def is_sequential(source: str) -> bool:
    """Returns whether a folder is that of a sequential reranker: one of models."""
    return any(Path(source).glob("layers-*/config.json"))


def kind_of(source: str) -> str:
    """Returns the kind of the ranker in a folder or on the Hub; ``"encoder"`` for a model without a classifier."""
    if is_sequential(source):
        return "sequential"
    from transformers import PretrainedConfig

    from pyterrier_cascade.checkpoint import check_folder

    check_folder(source)
    if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
        raise FileNotFoundError(f"{source!r} holds no model: it has no config.json")
    try:
        config, _ = PretrainedConfig.get_config_dict(source)
    except OSError as error:
        raise OSError(f"{source!r} is neither a folder nor a model on the Hub that can be read: {error}") from error
    if config.get("model_type") in MODEL_TYPES:
        return MODEL_TYPES[config["model_type"]]
    classifies = "ForSequenceClassification" in "".join(config.get("architectures") or [])
    return "crossencoder" if classifies else ENCODER


def load(source: str, kind: str, given: Sequence[str], skip: Sequence[str] = (), **more):
    """Returns a ranker; its weights are read when they are needed.

    Args:
        source: A folder or a Hub name.
        kind: One of :data:`RANKERS`.
        given: Settings, ``NAME=VALUE``.
        skip: Settings that have no use here.
        **more: Further settings, those alone that the class has.
    """
    cls = ranker_class(kind)
    functions = (cls.from_pretrained, cls)
    known = settings.declared(*functions, skip=settings.ELSEWHERE.union(skip))
    if kind == "hierarchical":
        from pyterrier_cascade.hierarchical.ranker import FRESH

        known = {name: hint for name, hint in known.items() if name not in FRESH}
    every = settings.declared(*functions, skip=frozenset())
    more = {name: value for name, value in more.items() if name in every}
    return cls.from_pretrained(source, **settings.parsed(given, known, "--with"), **more)
