"""Hierarchical ranking over results frames."""

import os
import warnings

import numpy as np
import pandas as pd
import pyterrier as pt
import torch

from pyterrier_cascade import frames
from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.hierarchical.loading import load
from pyterrier_cascade.hierarchical.model import HierarchicalArchitecture
from pyterrier_cascade.hierarchical.packing import Pairs
from pyterrier_cascade.hierarchical.schemes import scheme as scheme_of
from pyterrier_cascade.hierarchical.scoring import PRECISIONS, score
from pyterrier_cascade.hierarchical.settings import HierarchicalTraining
from pyterrier_cascade.hierarchical.words import tokens
from pyterrier_cascade.ranker import NeuralRanker

ROWS = 16_384
"""The candidates that are tokenised and scored together, so that memory does not grow with their number."""
FRESH = ("scheme", "level", "vectors", "architecture")


class HierarchicalRanker(NeuralRanker):
    """Scores candidates by word matching that point, pair and list objectives taught together (HR).

    Choose it where there is no pre-trained transformer, or no time for one: it reranks about ten times as fast as a
    cross-encoder of 12 layers of 384, and is trained from word vectors, or from nothing, in minutes::

        ranker = HierarchicalRanker("PRI", "list", vectors="glove.6B.300d.txt")
        (bm25 >> ranker).fit(train_topics, train_qrels, dev_topics, dev_qrels)

    A score depends on the question and the answer alone: that of the list level is what comes before its softmax over
    the candidates. Those of the point level are log-odds.

    Args:
        scheme: ``"PRI"``, progressive interaction of the levels; ``"RI"``, interaction; ``"MTL"``, shared layers only;
            ``"CA"``, one level alone; or an ablation, ``"PRI w/o point"``, ``"PRI w/o pair"``, ``"PRI all list"``.
        level: What is scored by: ``"list"``, ``"pair"`` or ``"point"``.
        vectors: Where word vectors come from when it is trained: a file in the format of GloVe, word2vec or fastText,
            ``"glove-6b-50d"`` (extra ``glove``), or None to learn them from scratch.
        architecture: The sizes and options of the backbone.
        model: The weights of another ranker, or a folder that :meth:`save_pretrained` wrote; they decide all of the
            above.
        precision: In which the CNN multiplies when scoring, ``"fp32"``, or ``"bf16"`` (where the hardware has it).
        token_budget: The most words computed at once by one core.
        verbose: Whether to show progress.
        text_field: The column with the document's text.
        training: How :meth:`fit` trains.
    """

    def __init__(
        self,
        scheme: str = "PRI",
        level: str = "list",
        *,
        vectors: str | os.PathLike | None = None,
        architecture: HierarchicalArchitecture = HierarchicalArchitecture(),
        model: str | Checkpoint | None = None,
        precision: str = "fp32",
        token_budget: int | None = None,
        verbose: bool = False,
        text_field: str = "text",
        training: HierarchicalTraining = HierarchicalTraining(),
    ):
        vectors = None if vectors is None else os.fspath(vectors)
        fresh = {"scheme": scheme, "level": level, "vectors": vectors, "architecture": architecture}
        if model is None:
            scheme_of(scheme, level)
            model = Checkpoint(load, "fresh", **fresh)
        else:
            defaults = super()._defaults()
            if given := [name for name in FRESH if fresh[name] != defaults[name]]:
                raise ValueError(
                    f"{' and '.join(given)} cannot be changed: the weights were made so; make a new HierarchicalRanker"
                )
        check_choices(precision=(precision, PRECISIONS))
        if token_budget is not None and token_budget < 1:
            raise ValueError(f"token_budget must be at least 1, not {token_budget!r}")
        if not isinstance(training, HierarchicalTraining):
            raise ValueError(f"a hierarchical ranker is trained as HierarchicalTraining(...) says, not {training!r}")
        self.model = model if isinstance(model, Checkpoint) else Checkpoint(load, model)
        self.precision, self.token_budget, self.verbose = precision, token_budget, verbose
        self.text_field, self.training = text_field, training

    @classmethod
    def from_pretrained(cls, name_or_path: str, **settings) -> "HierarchicalRanker":
        """Returns a ranker on the weights in a folder or on the Hub; nothing is loaded before they are needed.

        Args:
            name_or_path: A folder, or a name on the Hugging Face Hub.
            **settings: Any of the class's settings that the weights do not decide.
        """
        return cls(model=Checkpoint(load, name_or_path), **settings)

    @classmethod
    def _defaults(cls):
        # What made the weights is theirs and not to be changed on a copy.
        return {name: value for name, value in super()._defaults().items() if name not in FRESH}

    def __repr__(self):
        """Returns what can be typed back in; weights that were trained and not saved are named by their hash."""
        options = self.model.options
        if self.model.fitted or not options:
            return super().__repr__()
        arguments = [repr(options["scheme"]), repr(options["level"])]
        for name, default in (("vectors", None), ("architecture", HierarchicalArchitecture())):
            if options[name] != default:
                arguments.append(f"{name}={options[name]!r}")
        return f"{type(self).__name__}({', '.join([*arguments, *self._arguments(skip=('model',))])})"

    def score(self, frame: pd.DataFrame, blocks: frames.Blocks) -> dict[str, np.ndarray]:
        """Returns the relevance of each candidate."""
        model = self.model.loaded
        if model.untrained:
            warnings.warn(f"{model.untrained}: train it with fit() before its scores mean anything", stacklevel=4)
        return {"score": self._scores(frame)}

    def _scores(self, frame: pd.DataFrame) -> np.ndarray:
        scores = np.empty(len(frame))
        queries, texts = frames.texts(frame, "query"), frames.texts(frame, self.text_field)
        name = type(self).__name__
        with pt.tqdm(total=len(frame), desc=name, unit="pair", disable=not self.verbose) as bar:
            for start in range(0, len(frame), ROWS):
                rows = slice(start, start + ROWS)
                pairs = self._pairs(queries[rows], texts[rows])
                scores[rows] = score(self.model.loaded.module, pairs, self.token_budget, self.precision, bar.update)
        return scores

    def _pairs(self, queries: list[str], texts: list[str]) -> Pairs:
        tokenizer = self.model.loaded.tokenizer
        question, unique = frames.distinct(queries)
        return Pairs(tokenizer(unique), tokenizer(texts), question)

    def train(self, train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> None:
        """Trains all layers on whole questions with all their candidates (HR-11, HR-30)."""
        from pyterrier_cascade.hierarchical.training import Examples, train_model
        from pyterrier_cascade.hierarchical.vocabulary import prepare
        from pyterrier_cascade.training.processes import check_alone

        check_alone(f"a {type(self).__name__}")
        queries, texts = frames.texts(train, "query"), frames.texts(train, self.text_field)
        fresh = self.model.loaded.untrained is not None
        module = prepare(self.model.loaded, [*queries, *texts], self.training.seed)
        labels = train["label"].to_numpy(dtype=np.int64)
        examples = Examples(self._pairs(queries, texts), labels, frames.Blocks.of(train).codes)
        dev_pairs = None if dev is None else self._pairs(frames.texts(dev, "query"), frames.texts(dev, self.text_field))

        def measure_dev() -> float:
            return frames.mean_average_precision(dev, score(module, dev_pairs, self.token_budget), dev_qrels)

        history = train_model(
            module,
            examples,
            self.training,
            measure_dev=measure_dev if dev is not None else None,
            dev=frames.digest([dev, dev_qrels], self.text_field),
            verbose=self.verbose,
        )
        if fresh:
            # The vectors decide their width; who builds the model for these weights again must know it.
            made = {name: module.config[name] for name in ("scheme", "level", "vectors")}
            self.model.options = made | {"architecture": module.architecture}
        self.model.mark_fitted(history, trained=True)

    def attention(self, question: str, answer: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Returns what each word attends to: the question's words (rows) to the answer's, and the other way round.

        Args:
            question: A question.
            answer: An answer.
        """
        pairs, lowercase = self._pairs([question], [answer]), self.model.loaded.tokenizer.lowercase
        with torch.inference_mode():
            to_answer, to_question = self.model.loaded.module.attention(pairs)
        words = [tokens(text, lowercase) or [""] for text in (question, answer)]
        return (
            pd.DataFrame(to_answer.numpy(), words[0], words[1]),
            pd.DataFrame(to_question.numpy(), words[1], words[0]),
        )
