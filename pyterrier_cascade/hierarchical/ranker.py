"""Hierarchical ranking over results frames."""

import os

import numpy as np
import pandas as pd
import pyterrier as pt
import torch

from pyterrier_cascade import frames
from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.checks import check_choices, is_count
from pyterrier_cascade.encoder.device import PRECISIONS, check_device, device_of, scoring_precision
from pyterrier_cascade.hierarchical.loading import load
from pyterrier_cascade.hierarchical.model import HierarchicalArchitecture
from pyterrier_cascade.hierarchical.schemes import Scheme
from pyterrier_cascade.hierarchical.training import HierarchicalTraining
from pyterrier_cascade.hierarchical.words import tokens
from pyterrier_cascade.model import TrainedOn
from pyterrier_cascade.ranker import NeuralRanker

ROWS = 16_384
"""The candidates that are tokenised and scored together; more would take more memory without being faster."""
FRESH = ("scheme", "level", "vectors", "architecture")
"""The settings of a fresh model, which its weights decide once they are trained."""


class HierarchicalRanker(NeuralRanker):
    """Scores candidates by matching words, trained by point, pair and list objectives together (HR).

    Choose it where there is no pre-trained transformer, or no time to run one. It reranks about ten times as fast as a
    cross-encoder of 12 layers of 384. It learns from word vectors, or from nothing, in minutes::

        ranker = HierarchicalRanker("PRI", "list", vectors="glove.6B.300d.txt")
        (bm25 >> ranker).fit(train_topics, train_qrels, dev_topics, dev_qrels)

    A score depends on the question and the answer alone. The score of the list level is its output before the softmax
    over the candidates; the score of the point level is its log-odds.

    :data:`~pyterrier_cascade.RelativeCost` counts its CNN as one layer, by its multiply-adds for a word: at the paper's
    sizes one scoring level is 3% of a transformer of 12 layers of 384, and the three of PRI are 10%.

    Args:
        scheme: ``"PRI"``, progressive interaction of the levels; ``"RI"``, interaction; ``"MTL"``, shared layers only;
            ``"CA"``, one level alone; or an ablation, ``"PRI w/o point"``, ``"PRI w/o pair"``, ``"PRI all list"``.
        level: The level that gives the score: ``"list"``, ``"pair"`` or ``"point"``.
        vectors: The source of the word vectors for its training: a file in the format of GloVe, word2vec or fastText,
            or ``"glove-6b-50d"`` (extra ``glove``). None learns them from scratch.
        architecture: The sizes and options of the backbone.
        model: The weights of another ranker, or a folder that :meth:`save_pretrained` wrote. The weights decide all of
            the settings above.
        precision: The precision of the CNN's products when scoring. ``"auto"`` is bf16 on GPUs that have it, fp16 on
            other GPUs, and fp32 on a CPU. Or ``"fp32"``, ``"bf16"`` (where the hardware has it), or ``"fp16"`` (on
            GPUs).
        device: Where to score, for example ``"cpu"`` or ``"cuda:0"``; by default a GPU where there is one. Training is
            on the CPU.
        token_budget: The most words that one core or GPU computes at a time.
        verbose: Whether to show progress.
        text_field: The column with the document's text.
        training: The settings of :meth:`fit`.
    """

    def __init__(
        self,
        scheme: str = "PRI",
        level: str = "list",
        *,
        vectors: str | os.PathLike | None = None,
        architecture: HierarchicalArchitecture = HierarchicalArchitecture(),
        model: str | Checkpoint | None = None,
        precision: str = "auto",
        device: str | None = None,
        token_budget: int | None = None,
        verbose: bool = False,
        text_field: str = "text",
        training: HierarchicalTraining = HierarchicalTraining(),
    ):
        vectors = None if vectors is None else os.fspath(vectors)
        fresh = {"scheme": scheme, "level": level, "vectors": vectors, "architecture": architecture}
        if model is None:
            Scheme.named(scheme, level)
            model = Checkpoint(load, "fresh", **fresh)
        else:
            defaults = super().defaults()
            if given := [name for name in FRESH if fresh[name] != defaults[name]]:
                raise ValueError(
                    f"{' and '.join(given)} cannot be changed, because the weights were made with another value; make "
                    "a new HierarchicalRanker"
                )
        check_choices(precision=(precision, PRECISIONS))
        check_device(device)
        if token_budget is not None and not is_count(token_budget):
            raise ValueError(f"token_budget must be a whole number from 1, or None, not {token_budget!r}")
        if not isinstance(training, HierarchicalTraining):
            raise ValueError(f"training must be HierarchicalTraining(...), not {training!r}")
        self.model = Checkpoint.of(load, model, type(self).__name__)
        self.precision, self.device = precision, device
        self.token_budget, self.verbose = token_budget, verbose
        self.text_field, self.training = text_field, training

    @classmethod
    def defaults(cls):
        """Returns the constructor's arguments with their defaults, but for those that the weights decide."""
        return {name: value for name, value in super().defaults().items() if name not in FRESH}

    @classmethod
    def setting_names(cls):
        """Returns the names that the constructor takes."""
        return list(super().defaults())

    def __repr__(self):
        """Returns an expression that makes the ranker again; trained weights without a folder are named by a hash."""
        options = self.model.options
        if self.model.fitted or not options:
            return super().__repr__()
        defaults = super().defaults()
        arguments = [repr(options["scheme"]), repr(options["level"])]
        arguments += [f"{n}={options[n]!r}" for n in ("vectors", "architecture") if options[n] != defaults[n]]
        return f"{type(self).__name__}({', '.join([*arguments, *self._arguments(skip=('model',))])})"

    def __str__(self):
        """Returns a short form for the rows of experiments: scheme and level, without paths and training."""
        options = self.model.options
        if not options:
            return super().__str__()
        arguments = [repr(options["scheme"]), repr(options["level"])]
        if self.model.fitted:
            arguments.append("trained")
        arguments += self._arguments(skip=("model", "training", "verbose"))
        return f"{type(self).__name__}({', '.join(arguments)})"

    def new_columns(self):
        """Returns the cost columns."""
        return frames.COST_COLUMNS

    def score(self, frame: pd.DataFrame, blocks: frames.Blocks) -> dict[str, np.ndarray]:
        """Returns the relevance of each candidate, and the cost columns."""
        model = self.model.loaded
        model.warn_if_untrained()
        scores, words = np.empty((2, len(frame)))
        queries, texts = self._texts(frame)
        device = device_of(self.device)
        precision = scoring_precision(self.precision, device)
        with pt.tqdm(total=len(frame), desc=type(self).__name__, unit="pair", disable=not self.verbose) as bar:
            for start in range(0, len(frame), ROWS):
                rows = slice(start, start + ROWS)
                pairs = model.pairs(queries[rows], texts[rows])
                words[rows] = pairs.lengths
                scores[rows] = model.score(pairs, self.token_budget, precision, bar.update, device)
        return {"score": scores, **frames.charged(frame, blocks, 1, 1, np.ones(len(frame)), words)}

    def _texts(self, frame: pd.DataFrame) -> tuple[list[str], list[str]]:
        return frames.texts(frame, "query"), frames.texts(frame, self.text_field)

    def train(self, train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> None:
        """Trains all layers on whole questions with all their candidates (HR-11, HR-30)."""
        from pyterrier_cascade.hierarchical.trainer import LabelledQuestions, train_model
        from pyterrier_cascade.training.processes import check_alone

        check_alone(f"a {type(self).__name__}")
        model, blocks, labels = self.model.loaded, frames.Blocks.of(train), train["label"].to_numpy(dtype=np.int64)
        queries, texts = self._texts(train)
        fresh = model.untrained is not None
        module = model.prepare_training([*queries, *texts], self.training.seed)
        dev_pairs = None if dev is None else model.pairs(*self._texts(dev))

        def measure_dev() -> float:
            return frames.mean_average_precision(dev, model.score(dev_pairs, self.token_budget), dev_qrels)

        history = train_model(
            module,
            LabelledQuestions(model.pairs(queries, texts), labels, blocks),
            self.training,
            measure_dev=None if dev is None else measure_dev,
            dev=self.digest([dev, dev_qrels]),
            verbose=self.verbose,
        )
        if fresh:
            # The source of vectors decides their size, which is needed to build the model for these weights again.
            built = {name: module.config[name] for name in ("scheme", "level", "vectors")}
            self.model.options = built | {"architecture": module.architecture}
        self.model.mark_fitted(history, TrainedOn.of(blocks.codes, labels, self.training))

    def attention(self, question: str, answer: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Returns the attention of the question's words (rows) to the answer's, and of the answer's to the question's.

        Args:
            question: A question.
            answer: An answer.
        """
        model = self.model.loaded
        with torch.inference_mode():
            to_answer, to_question = model.module.attention(model.pairs([question], [answer]))
        words = [tokens(text, model.tokenizer.lowercase) or [""] for text in (question, answer)]
        return (
            pd.DataFrame(to_answer.numpy(), words[0], words[1]),
            pd.DataFrame(to_question.numpy(), words[1], words[0]),
        )
