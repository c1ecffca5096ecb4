"""The base of every reranker: PyTerrier's contract once, and training and weights for those that have them."""

import dataclasses
import inspect
import os
import pickle
from abc import abstractmethod
from collections.abc import Sequence
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.checks import KnownSettings, check_names, warn_user
from pyterrier_cascade.identity import combined
from pyterrier_cascade.saving import Saved
from pyterrier_cascade.store.store import DocumentStore
from pyterrier_cascade.training.settings import Training

if TYPE_CHECKING:
    from typing_extensions import Self

# The place where PyTerrier's site puts the pages of a plugin; a host name of our own could become anybody's.
HELP_URL = "https://pyterrier.readthedocs.io/en/latest/ext/pyterrier-cascade/index.html"

UNDECIDING = ("device", "token_budget", "torch_compile", "training", "verbose")
"""The settings that make no difference to scores, but for the precision that a device has by default."""

STORED = (
    *("fingerprint", "dtype", "parts", "passages", "precision"),
    *("max_length", "query_length", "document_length"),
)
"""The facts about stored documents that scores depend on."""


class Ranker(KnownSettings, pt.Transformer):
    """Scores a query's candidates and ranks them anew; all rows and input columns are kept.

    The rows of the result stand query by query in rank order. Ranks start at 0, and equal scores keep their earlier
    order: by rank, without ranks by score, then by docno (CT-2, X-4). A missing text is scored as an empty one, with a
    warning.

    A subclass stores every constructor argument under its own name. It implements :meth:`score`, or :meth:`rerank`
    where scores alone do not decide the order. The base gives it validation, empty frames, equality by value, a
    ``repr`` that can be typed back in, a short ``str`` for the rows of experiments, copies with other settings
    (``ranker(verbose=True)``), errors with the nearest name for misspelt settings, and schematics that draw offline.
    """

    text_field: str | None = "text"

    def score(self, frame: pd.DataFrame, blocks: frames.Blocks) -> dict[str, np.ndarray]:
        """Returns the new columns of a frame that is not empty, at least ``score``, each ``(n_rows,)``."""
        raise NotImplementedError(f"{type(self).__name__} implements neither score nor rerank")

    def rerank(self, frame: pd.DataFrame, blocks: frames.Blocks) -> pd.DataFrame:
        """Returns the result for a frame that is valid and not empty."""
        columns = self.score(frame, blocks)
        if frames.COST in columns:
            columns = frames.in_all(frame, columns, self.full_model())
        return frames.ranked(frame, blocks, **columns)

    def full_model(self) -> tuple[int, int] | None:
        """Returns the layers of the full model and the multiply-adds of one for a token, by which costs are counted.

        It is None for a ranker whose weights are not known.
        """
        holder = self.weighted()
        return None if holder is None else holder.model.loaded.full_model

    def weighted(self) -> "NeuralRanker | None":
        """Returns the ranker whose weights score: one among the settings, or the maker of stored documents."""
        values = self.settings().values()
        given = (value for value in values if isinstance(value, NeuralRanker))
        made = (maker for value in values if isinstance(maker := getattr(value, "maker", None), NeuralRanker))
        return next(given, None) or next(made, None)

    def fingerprint(self) -> str:
        """Returns a hash of everything that scores depend on: the weights, and the settings that decide scores."""
        holder = self.weighted()
        weights = None if holder in (None, self) else holder.fingerprint()
        decide = {name: _identity(value) for name, value in self.settings().items() if name not in UNDECIDING}
        return combined(type(self).__name__, decide, weights, getattr(self, "computed_precision", None))

    def new_columns(self) -> dict[str, type]:
        """Returns the columns that the ranker adds beside ``score`` and ``rank``, with their types."""
        return {}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the candidates of each query with new scores and ranks.

        Args:
            inp: A results frame with ``qid``, ``query``, ``docno`` and the text; rows in any order.
        """
        frames.validate(inp, context=self, text_field=self.text_field)
        blocks = frames.Blocks.of(inp)
        return self.rerank(inp, blocks) if len(inp) else self.empty(inp, blocks)

    def empty(self, frame: pd.DataFrame, blocks: frames.Blocks) -> pd.DataFrame:
        """Returns the result for a frame without rows: all columns that a result has."""
        columns = {name: np.empty(0, dtype) for name, dtype in self.new_columns().items()}
        if frames.COST in columns:
            columns |= {name: np.empty(0, dtype) for name, dtype in frames.COST_COLUMNS.items()}
        return frames.ranked(frame, blocks, np.empty(0), **columns)

    @overload
    def __call__(self, inp: Any) -> pd.DataFrame: ...

    @overload
    def __call__(self, **settings: Any) -> "Self": ...

    def __call__(self, inp=None, **settings):
        """Ranks ``inp``; or, given settings instead, returns a copy with these settings that shares the weights."""
        if inp is not None:
            if settings:
                raise TypeError(f"give either candidates or settings ({', '.join(settings)}), not both")
            return super().__call__(inp)
        check_names(settings, self.setting_names(), type(self).__name__)
        return type(self)(**(self.settings() | settings))

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the constructor's arguments with their defaults."""
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}

    @classmethod
    def setting_names(cls) -> list[str]:
        """Returns the names that the constructor takes."""
        return list(cls.defaults())

    def settings(self) -> dict[str, Any]:
        """Returns the constructor's arguments as they are now."""
        return {name: getattr(self, name) for name in self.defaults()}

    def weight_holders(self) -> "tuple[Ranker, ...]":
        """Returns the rankers whose weights score: this one, or the members of a ranker that is made of several."""
        return (self,)

    def __eq__(self, other):
        """Rankers are equal when their class and all their settings are."""
        if type(self) is not type(other):
            return NotImplemented
        return self.settings() == other.settings()

    def __hash__(self):
        """Equal rankers hash alike."""
        return hash((type(self), _hash_key(tuple(self.settings().values()))))

    def _arguments(self, skip: tuple[str, ...] = ()) -> list[str]:
        """Returns ``name=value`` for the settings that are not at their default."""
        return [
            f"{name}={value!r}"
            for (name, default), value in zip(self.defaults().items(), self.settings().values(), strict=True)
            if name not in skip and value != default
        ]

    def __repr__(self):
        """Returns an expression that makes the ranker again."""
        return f"{type(self).__name__}({', '.join(self._arguments())})"

    def schematic(self, *, input_columns=None) -> dict[str, Any]:
        """Returns the box that PyTerrier draws; the address in it keeps PyTerrier from looking the class up online."""
        settings = {name: value for name, value in self.settings().items() if value is not None}
        return {"label": type(self).__name__, "settings": settings, "help_url": HELP_URL}

    def subtransformers(self) -> dict:
        """Returns no inner transformers: PyTerrier draws a ranker as one box."""
        return {}

    def __mod__(self, kept: float) -> pt.Transformer:
        """Returns this ranker with a cutoff behind it: ``% 20`` keeps 20 candidates, ``% 0.6`` keeps 60% of them."""
        from pyterrier_cascade.early_exit.cutoff import cutoff

        return self >> cutoff(kept)


def _hash_key(value: Any) -> Any:
    """Returns a hashable key of a setting; equal numbers of different types get equal keys."""
    if isinstance(value, tuple | list):
        return tuple(map(_hash_key, value))
    return value if isinstance(value, Number) else repr(value)


def _identity(value: Any) -> Any:
    """Returns what identifies a setting's value: weights and stored documents by a hash, anything else by itself."""
    if isinstance(value, Checkpoint):
        return value.fingerprint
    if isinstance(value, Ranker):
        return value.fingerprint()
    if isinstance(value, DocumentStore):
        return {name: value.meta.get(name) for name in STORED}
    return value


class NeuralRanker(Saved, Ranker, pt.Estimator):
    """A ranker with weights: loaded on first use, shared by its copies, trained by :meth:`fit`.

    A subclass implements ``score`` and :meth:`train`. Its argument ``model`` is a folder, a Hub name, or the
    :class:`~pyterrier_cascade.checkpoint.Checkpoint` of another ranker.
    """

    model: Checkpoint
    training: Training

    def weighted(self) -> "NeuralRanker":
        """Returns the ranker itself, which has the weights that score."""
        return self

    @abstractmethod
    def train(self, train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> None:
        """Trains the weights in place on candidates with a ``label`` of 0 or 1.

        Args:
            train: The training questions' candidates.
            dev: The same of the development questions, or None.
            dev_qrels: The judgements of the development questions, 0 or 1.
        """

    def fit(self, topics_or_res_tr, qrels_tr, topics_or_res_va=None, qrels_va=None) -> "Self":
        """Trains on retrieved candidates; ``(retriever >> ranker).fit(topics, qrels, dev_topics, dev_qrels)``.

        A candidate is positive if the qrels give it a label of ``training.relevant_from`` or more. Documents that were
        judged but not retrieved are not trained on. The development queries choose the best weights and stop the
        training early, by MAP.

        Args:
            topics_or_res_tr: Results frame to train on. In a pipeline the transformers before this one make it.
            qrels_tr: Its judgements.
            topics_or_res_va: Results frame of the development queries, or None to train for all epochs.
            qrels_va: Their judgements.
        """
        train = self._labelled(topics_or_res_tr, qrels_tr)
        if topics_or_res_va is None:
            return self._fit(train, None, None)
        if qrels_va is None:
            raise ValueError("development results were given without their qrels; give both or neither")
        # The qrels may judge many other questions.
        ours = qrels_va[qrels_va["qid"].isin(topics_or_res_va["qid"])]
        return self._fit(train, self._labelled(topics_or_res_va, qrels_va), ours)

    def fit_candidates(self, train: pd.DataFrame, dev: pd.DataFrame | None = None) -> "Self":
        """Trains on labelled lists, as ``dataset.get_candidates()`` gives them.

        Args:
            train: ``qid``, ``query``, ``docno``, the text and ``label``; a candidate is positive if its label is
                ``training.relevant_from`` or more.
            dev: The same for the development questions, or None to train for all epochs.
        """
        for frame in (train, dev):
            if frame is not None:
                frames.validate(frame, context=self, text_field=self.text_field)
                pt.validate.columns(frame, includes=["label"])
        return self._fit(train, dev, None if dev is None else dev[["qid", "docno", "label"]])

    def _labelled(self, results: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
        frames.validate(results, context=self, text_field=self.text_field)
        return frames.labelled(results, qrels)

    def _fit(self, train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> "Self":
        train = self._binary(train, "training")
        if dev is not None:
            dev = self._binary(dev, "development")
            judged = frames.grades(dev_qrels, "the development qrels") >= self.relevant_from
            dev_qrels = dev_qrels.assign(label=judged.astype(np.int64))
            asked, taught = (set(zip(frame["qid"], frame["query"], strict=True)) for frame in (dev, train))
            if asked <= taught:
                warn_user(
                    f"all {len(asked)} development queries are training queries too, so that they choose "
                    "weights that know them by heart; give other queries, or none"
                )
        with self.model.training():
            self.train(train, dev, dev_qrels)
        return self

    def _binary(self, data: pd.DataFrame, name: str) -> pd.DataFrame:
        """Returns labelled candidates with labels of 0 or 1; missing ids are errors."""
        frames.Blocks.of(data)
        missing = data["docno"].isna()
        if missing.any():
            raise ValueError(f"{int(missing.sum())} of {len(data)} candidates of the {name} data have no docno")
        return frames.binary(data, name, self.relevant_from)

    def reading(self) -> dict[str, Any]:
        """Returns the settings that decide which part of a text the model reads, with the lengths that hold."""
        return {"text_field": self.text_field}

    def digest(self, tables: Sequence[pd.DataFrame | None]) -> str | None:
        """Returns a hash of data as the model reads them; None if the first table is None.

        Args:
            tables: Candidates, and perhaps qrels.
        """
        return frames.digest(tables, self.text_field, self.reading(), self.model.loaded.tokenizer_identity)

    @property
    def relevant_from(self) -> int:
        """The least label that counts as relevant in training and development data."""
        return self.training.relevant_from

    def with_training(self, **changes: Any) -> "Self":
        """Returns the ranker on the same weights with other settings of its training, such as ``learning_rate``."""
        check_names(changes, self.training.setting_names(), type(self.training).__name__)
        return self(training=dataclasses.replace(self.training, **changes))

    def apart(self) -> "Self":
        """Returns the ranker on a copy of its present weights: training one of the two leaves the other alone."""
        return pickle.loads(pickle.dumps(self))

    def loaded_from(self, path: str) -> "Self":
        """Returns the ranker with its settings on the weights that :meth:`save_pretrained` wrote.

        Args:
            path: The folder.
        """
        return self(model=Checkpoint(self.model.load, path))

    @property
    def history(self) -> pd.DataFrame:
        """The course of the last training: a row for each report, with update, epoch, loss, and MAP where measured."""
        return pd.DataFrame(self.model.history)

    @classmethod
    def from_pretrained(cls, name_or_path: str, **settings: Any) -> "Self":
        """Returns a ranker on the weights in a folder or on the Hub; the weights are read when they are needed.

        Args:
            name_or_path: A folder, or a name on the Hugging Face Hub.
            **settings: Any of the class's settings.
        """
        return cls(model=name_or_path, **settings)

    def write_weights(self, path: str | os.PathLike) -> None:
        """Writes weights, configuration and tokenizer to a folder; the ranker does not stand for it."""
        self.model.write(path)

    def point_to(self, path: str | os.PathLike) -> None:
        """Lets the ranker, and all that share its weights, stand for a folder that holds them."""
        self.model.point_to(path)

    def __repr__(self):
        """Returns an expression that makes the ranker again; trained weights without a folder are named by a hash."""
        if self.model.fitted:
            arguments = [repr(self.model), *self._arguments(skip=("model",))]
            return f"<{type(self).__name__} {', '.join(arguments)}>"
        options = [f"{name}={value!r}" for name, value in self.model.options.items()]
        arguments = [repr(self.model.source), *options, *self._arguments(skip=("model",))]
        return f"{type(self).__name__}.from_pretrained({', '.join(arguments)})"

    def __str__(self):
        """Returns a short form for the rows of experiments: the folder's name without its path, and no training."""
        source = self.model.source
        name = Path(source).name if Path(source).is_absolute() or source.startswith(".") else source
        trained = ", trained" if self.model.fitted else ""
        arguments = [repr(name) + trained, *self._arguments(skip=("model", "training", "verbose"))]
        return f"{type(self).__name__}({', '.join(arguments)})"
