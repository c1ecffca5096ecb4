"""Every public name once: the exports, the command line, ``info`` and the API page are made from these tables.

A new reranker is a folder and one line in :data:`RERANKERS`. After a change here, write the stub for type checkers:
``python -c "from pyterrier_cascade import registry; print(registry.stub(), end='')" > pyterrier_cascade/__init__.pyi``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = "pyterrier_cascade"
CONFIG = "config.json"


@dataclass(frozen=True)
class Reranker:
    """A reranker that can be loaded, trained and run by its name.

    Attributes:
        name: Its class.
        home: The module of the class, below this package.
        command: Its name on the command line.
        training: The class with the settings of its training; None if it has no such settings of its own.
        more: Further public names of its folder, with their modules; the training class is one of them or is
            :class:`~pyterrier_cascade.Training`.
        model_type: The ``model_type`` in the ``config.json`` that it writes; None if that file is another library's.
        files: A pattern of files that mark its folder where one ``config.json`` does not.
    """

    name: str
    home: str
    command: str
    training: str | None = "Training"
    more: Mapping[str, str] = field(default_factory=dict)
    model_type: str | None = None
    files: str | None = None

    @property
    def cls(self) -> type:
        """The class, imported now."""
        return public(self.name)

    @property
    def training_class(self) -> type | None:
        """The class with the settings of its training, imported now."""
        return None if self.training is None else public(self.training)


RERANKERS = (
    Reranker("CrossEncoder", "crossencoder.ranker", "crossencoder"),
    Reranker("SequentialReranker", "crossencoder.sequential", "sequential", files="layers-*/config.json"),
    Reranker(
        *("Cascade", "cascade.ranker", "cascade", "CascadeTraining"),
        more={"CascadeTraining": "cascade.training", "Distillation": "cascade.head_learning"},
        model_type="cascade_transformer",
    ),
    Reranker(
        *("DCBERT", "dcbert.ranker", "dcbert", "DCBertTraining"),
        more={"CachedRanker": "dcbert.cached_ranker", "DCBertTraining": "dcbert.settings"},
        model_type="dc_bert",
    ),
    Reranker(
        *("HierarchicalRanker", "hierarchical.ranker", "hierarchical", "HierarchicalTraining"),
        more={"HierarchicalArchitecture": "hierarchical.model", "HierarchicalTraining": "hierarchical.training"},
        model_type="hierarchical_ranker",
    ),
)

OTHERS = {
    "BM25": "bm25",
    "Certificate": "early_exit.certificate",
    "DocumentCache": "dcbert.cache",
    "EM": "measures.open_domain",
    "FineTune": "tanda.baselines",
    "FirstAnswerLost": "early_exit.risks",
    "FractionCutoff": "early_exit.cutoff",
    "MarginCutoff": "early_exit.cutoff",
    "OneClock": "early_exit.one_clock",
    "PBT": "measures.open_domain",
    "PTB": "measures.open_domain",
    "RankingLoss": "early_exit.risks",
    "RayPool": "scale.ray",
    "RelativeCost": "measures.cost",
    "RelativeTokenCost": "measures.cost",
    "Runs": "runs",
    "Survival": "measures.cost",
    "Tanda": "tanda.tanda",
    "TopLost": "early_exit.risks",
    "Trace": "early_exit.trace",
    "Training": "training.settings",
    "answer_qrels": "dcbert.supervision",
    "em_drop": "measures.open_domain",
    "reliability": "early_exit.reliability",
    "river": "early_exit.plots",
    "sampled_negatives": "dcbert.supervision",
}
"""The public names that are no rerankers, with their modules."""


def homes() -> dict[str, str]:
    """Returns the module of every public name, sorted by name."""
    found = dict(OTHERS)
    for one in RERANKERS:
        found |= {one.name: one.home, **one.more}
    return {name: f"{ROOT}.{found[name]}" for name in sorted(found)}


def public(name: str) -> Any:
    """Returns the object of a public name, imported now."""
    return getattr(import_module(homes()[name]), name)


def by_command(command: str) -> Reranker:
    """Returns the reranker that the command line calls so."""
    return next(one for one in RERANKERS if one.command == command)


def holds(source: str, config: Mapping[str, Any] | None = None) -> Reranker | None:
    """Returns the reranker of this package that a folder or a configuration says it is; None for any other model.

    Args:
        source: A folder or a Hub name.
        config: The content of its ``config.json``, where it was read before.
    """
    folder = Path(source)
    for one in RERANKERS:
        if one.files is not None and any(folder.glob(one.files)):
            return one
    if config is None and (folder / CONFIG).is_file():
        # Imported here because the command line's help must not wait for pandas.
        from pyterrier_cascade.text_files import read_json

        config = read_json(folder / CONFIG)
    kind = config.get("model_type") if isinstance(config, Mapping) else None
    return next((one for one in RERANKERS if one.model_type is not None and one.model_type == kind), None)


def refuse_others(source: str, wanted: str, config: Mapping[str, Any] | None = None) -> None:
    """Raises where a folder holds no model or another reranker of this package, and names what can be loaded.

    Args:
        source: A folder or a Hub name.
        wanted: The class that is about to load it.
        config: As in :func:`holds`.
    """
    found = holds(source, config)
    if found is not None and found.name != wanted:
        raise ValueError(f"{source!r} holds a {found.name}, not a {wanted}; use {found.name}.from_pretrained")
    if found is None and Path(source).is_dir() and not (Path(source) / CONFIG).is_file():
        inner = [file for file in sorted(Path(source).glob(f"*/{CONFIG}")) if b'"model_type"' in file.read_bytes()]
        example = f", such as {str(inner[0].parent)!r}" if inner else ""
        raise FileNotFoundError(f"{source!r} has no {CONFIG}; give a folder that save_pretrained wrote{example}")


def stub() -> str:
    """Returns the stub of the package, by which type checkers know the names that are imported on first use."""
    lines = [f"from {home} import {name} as {name}" for name, home in homes().items()]
    return "\n".join(sorted(lines)) + "\n\n__version__: str\n__all__: list[str]\n"
