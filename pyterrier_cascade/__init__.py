"""Neural rerankers that follow a fast retriever, as PyTerrier transformers.

The names below are imported when they are first used, so that ``import pyterrier_cascade`` costs nothing.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOME = {
    "BM25": "pyterrier_cascade.bm25",
    "CachedRanker": "pyterrier_cascade.dcbert.cached_ranker",
    "Cascade": "pyterrier_cascade.cascade.ranker",
    "CascadeTraining": "pyterrier_cascade.cascade.training",
    "CrossEncoder": "pyterrier_cascade.crossencoder.ranker",
    "DCBERT": "pyterrier_cascade.dcbert.ranker",
    "DCBertTraining": "pyterrier_cascade.dcbert.settings",
    "DocumentCache": "pyterrier_cascade.dcbert.cache",
    "EM": "pyterrier_cascade.open_measures",
    "FineTune": "pyterrier_cascade.tanda.baselines",
    "FractionCutoff": "pyterrier_cascade.cascade.stages",
    "HierarchicalArchitecture": "pyterrier_cascade.hierarchical.model",
    "HierarchicalRanker": "pyterrier_cascade.hierarchical.ranker",
    "HierarchicalTraining": "pyterrier_cascade.hierarchical.settings",
    "PBT": "pyterrier_cascade.open_measures",
    "PTB": "pyterrier_cascade.open_measures",
    "RayPool": "pyterrier_cascade.scale.ray",
    "RelativeCost": "pyterrier_cascade.measures",
    "RelativeTokenCost": "pyterrier_cascade.measures",
    "Runs": "pyterrier_cascade.hierarchical.runs",
    "SequentialReranker": "pyterrier_cascade.crossencoder.sequential",
    "Survival": "pyterrier_cascade.measures",
    "Tanda": "pyterrier_cascade.tanda.tanda",
    "Trace": "pyterrier_cascade.cascade.trace",
    "Training": "pyterrier_cascade.training.settings",
    "answer_qrels": "pyterrier_cascade.dcbert.supervision",
    "em_drop": "pyterrier_cascade.open_measures",
    "river": "pyterrier_cascade.cascade.plots",
    "sampled_negatives": "pyterrier_cascade.dcbert.supervision",
}

__all__ = sorted(_HOME)


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__():
    return sorted([*globals(), *__all__])
