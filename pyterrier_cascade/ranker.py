"""The base of every reranker: PyTerrier's contract once."""

import dataclasses
import inspect
import pickle
from abc import abstractmethod
from numbers import Number
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.training.settings import Training

if TYPE_CHECKING:
    from typing_extensions import Self

# Where PyTerrier's site puts a plugin's pages; a name of our own that nobody holds could become anybody's.
HELP_URL = "https://pyterrier.readthedocs.io/en/latest/ext/pyterrier-cascade/index.html"


class Ranker(pt.Transformer):
    """Scores a query's candidates and ranks them anew; all rows and input columns are kept.

    The result's rows stand query by query in rank order, ranks start at 0, and equal scores keep their earlier order
    (CT-2, X-4: rank, else score, else docno). Missing texts are scored as empty ones, with a warning.

    A subclass stores every constructor argument under its own name and implements :meth:`score`, or :meth:`rerank`
    where scores alone do not say the order. In return it gets validation, empty frames, value equality, a ``repr`` that
    can be typed back in, copies with other settings (``ranker(verbose=True)``) and schematics that draw offline.
    """

    text_field: str | None = "text"

    def score(self, frame: pd.DataFrame, blocks: frames.Blocks) -> dict[str, np.ndarray]:
        """Returns the new columns of a frame that is not empty, at least ``score``, each ``(n_rows,)``."""
        raise NotImplementedError(f"{type(self).__name__} implements neither score nor rerank")

    def rerank(self, frame: pd.DataFrame, blocks: frames.Blocks) -> pd.DataFrame:
        """Returns the result for a frame that is valid and not empty."""
        return frames.ranked(frame, blocks, **self.score(frame, blocks))

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
        if not len(inp):
            columns = {name: np.empty(0, dtype) for name, dtype in self.new_columns().items()}
            return frames.ranked(inp, blocks, np.empty(0), **columns)
        return self.rerank(inp, blocks)

    @overload
    def __call__(self, inp: Any) -> pd.DataFrame: ...

    @overload
    def __call__(self, **settings: Any) -> "Self": ...

    def __call__(self, inp=None, **settings):
        """Ranks ``inp``, or, given settings instead, returns a copy with these that shares the weights."""
        if inp is not None:
            if settings:
                raise TypeError(f"give either candidates or settings ({', '.join(settings)}), not both")
            return super().__call__(inp)
        return type(self)(**(self.settings() | settings))

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return {p.name: p.default for p in parameters}

    def settings(self) -> dict[str, Any]:
        """Returns the constructor's arguments as they are now."""
        return {name: getattr(self, name) for name in self._defaults()}

    def __eq__(self, other):
        """Rankers are equal when their class and all their settings are."""
        if type(self) is not type(other):
            return NotImplemented
        return self.settings() == other.settings()

    def __hash__(self):
        """Equal rankers hash alike."""
        return hash((type(self), _key(tuple(self.settings().values()))))

    def _arguments(self, skip: tuple[str, ...] = ()) -> list[str]:
        """Returns ``name=value`` for the settings that are not at their default."""
        return [
            f"{name}={value!r}"
            for (name, default), value in zip(self._defaults().items(), self.settings().values(), strict=True)
            if name not in skip and value != default
        ]

    def __repr__(self):
        """Returns what can be typed back in."""
        return f"{type(self).__name__}({', '.join(self._arguments())})"

    def schematic(self, *, input_columns=None) -> dict[str, Any]:
        """Returns the box that PyTerrier draws; the explicit address keeps it from looking online."""
        settings = {name: value for name, value in self.settings().items() if value is not None}
        return {"label": type(self).__name__, "settings": settings, "help_url": HELP_URL}

    def subtransformers(self) -> dict:
        """Returns no inner transformers: a ranker is one box."""
        return {}


def _key(value: Any) -> Any:
    """Returns what is hashed for a setting: equal numbers of other types hash alike, though they print otherwise."""
    if isinstance(value, tuple | list):
        return tuple(map(_key, value))
    return value if isinstance(value, Number) else repr(value)


class NeuralRanker(Ranker, pt.Estimator):
    """A ranker with weights: loaded on first use, shared by its copies, trained by :meth:`fit`.

    A subclass implements ``score`` and :meth:`train`. Its first constructor argument is ``model``: a folder, a Hub
    name, or the :class:`~pyterrier_cascade.checkpoint.Checkpoint` of another ranker.
    """

    model: Checkpoint
    training: Training

    @abstractmethod
    def train(self, train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> None:
        """Trains the weights in place on candidates with a ``label``."""

    def fit(self, topics_or_res_tr, qrels_tr, topics_or_res_va=None, qrels_va=None) -> "Self":
        """Trains on retrieved candidates; ``(retriever >> ranker).fit(topics, qrels, dev_topics, dev_qrels)``.

        A candidate is positive if the qrels give it a label above 0. Documents that were judged but not retrieved are
        not trained on. The development queries choose the best weights and stop early, by MAP.

        Args:
            topics_or_res_tr: Results frame to train on (inside a pipeline: what comes before made it of the topics).
            qrels_tr: Its judgements.
            topics_or_res_va: Results frame of the development queries, or None to train for all epochs.
            qrels_va: Their judgements.
        """
        train = self._candidates(topics_or_res_tr, qrels_tr, "training")
        if topics_or_res_va is None:
            dev = None
        elif qrels_va is None:
            raise ValueError("development results were given without their qrels; give both or neither")
        else:
            dev = self._candidates(topics_or_res_va, qrels_va, "development")
            # A file of qrels may judge many other questions.
            qrels_va = qrels_va[qrels_va["qid"].isin(dev["qid"])]
        with self.model.training():
            self.train(train, dev, qrels_va)
        return self

    def fit_candidates(self, train: pd.DataFrame, dev: pd.DataFrame | None = None) -> "Self":
        """Trains on labelled lists, as ``dataset.get_candidates()`` gives them.

        Args:
            train: ``qid``, ``query``, ``docno``, the text and ``label`` (0 or 1).
            dev: The same for the development questions, or None to train for all epochs.
        """
        for name, frame in (("training", train), ("development", dev)):
            if frame is not None:
                frames.validate(frame, context=self, text_field=self.text_field)
                frames.check_labels(frame, name)
        with self.model.training():
            self.train(train, dev, None if dev is None else dev[["qid", "docno", "label"]])
        return self

    def _candidates(self, results: pd.DataFrame, qrels: pd.DataFrame, name: str) -> pd.DataFrame:
        frames.validate(results, context=self, text_field=self.text_field)
        labelled = frames.labelled(results, qrels)
        frames.check_labels(labelled, name)
        return labelled

    def with_training(self, **changes: Any) -> "Self":
        """Returns the ranker on the same weights with other settings of its training, such as ``learning_rate``."""
        return self(training=dataclasses.replace(self.training, **changes))

    def apart(self) -> "Self":
        """Returns the ranker on weights of its own, which are those of now: training one leaves the other alone."""
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
        """Returns a ranker on the weights in a folder or on the Hub; nothing is loaded before they are needed.

        Args:
            name_or_path: A folder, or a name on the Hugging Face Hub.
            **settings: Any of the class's settings.
        """
        return cls(name_or_path, **settings)

    def save_pretrained(self, path: str) -> None:
        """Writes weights (safetensors), configuration and tokenizer; afterwards the ranker stands for that folder."""
        self.model.write(path)
        self.model.stand_for(path)

    def __repr__(self):
        """Returns what can be typed back in; weights that were trained and not saved are named by their hash."""
        if self.model.fitted:
            arguments = [repr(self.model), *self._arguments(skip=("model",))]
            return f"<{type(self).__name__} {', '.join(arguments)}>"
        options = [f"{name}={value!r}" for name, value in self.model.options.items()]
        arguments = [repr(self.model.source), *options, *self._arguments(skip=("model",))]
        return f"{type(self).__name__}.from_pretrained({', '.join(arguments)})"
