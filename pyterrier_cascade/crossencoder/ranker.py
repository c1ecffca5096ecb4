"""The monolithic reranker over results frames."""

import warnings

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.crossencoder import model as crossencoder
from pyterrier_cascade.encoder.device import device_of
from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.encoder.executors import check_engine
from pyterrier_cascade.encoder.openvino_executor import CALIBRATION
from pyterrier_cascade.encoder.pairs import TokenPairs, fitting, tokenize
from pyterrier_cascade.ranker import NeuralRanker
from pyterrier_cascade.training.settings import Training

PASSAGES = {"first": None, "max": np.maximum, "mean": np.add}

ROWS = 4_096
"""The candidates that are tokenised and scored together: enough of each length, and memory that does not grow."""


class CrossEncoder(NeuralRanker):
    """Scores each candidate by one encoder that reads query and document together (CT-4, TA-2).

    Choose it where quality matters more than time, or as the baseline that the faster rankers are measured against::

        bm25 >> CrossEncoder.from_pretrained("cross-encoder/ms-marco-MiniLM-L6-v2")

    The score is the log-odds of relevance. Besides ``score`` and ``rank`` the result has ``exit_layer``, the layer
    whose head gave the score, and the query columns that :data:`~pyterrier_cascade.RelativeCost` reads.

    Args:
        model: A folder or a Hub name: a Hugging Face sequence classifier of one or two outputs, or a bare encoder,
            which gets a fresh head to be trained.
        max_length: The most tokens of query and document together; only the document is cut. By default 512, or
            what the encoder has positions for if that is less.
        passages: What a longer document's score is: that of its ``"first"`` passage (the rest is cut off), or the
            ``"max"`` or ``"mean"`` over all its passages.
        engine: ``"torch"``, or ``"openvino"`` (extra ``openvino``) for the most speed on a CPU.
        precision: ``"fp32"``, ``"bf16"`` (where the hardware has it), or with OpenVINO ``"int8"`` and ``"mixed"``,
            which spares the most sensitive third of the weights. These two are calibrated on the first candidates
            scored, unless :meth:`calibrate` was called.
        device: For example ``"cpu"`` or ``"cuda:0"``; by default a GPU where there is one.
        token_budget: The most tokens computed at once by one core or GPU; by default what suits the device.
        verbose: Whether to show progress.
        text_field: The column with the document's text.
        training: How :meth:`fit` trains.
    """

    def __init__(
        self,
        model: str | Checkpoint,
        *,
        max_length: int | None = None,
        passages: str = "first",
        engine: str = "torch",
        precision: str = "fp32",
        device: str | None = None,
        token_budget: int | None = None,
        verbose: bool = False,
        text_field: str = "text",
        training: Training = Training(),
    ):
        if passages not in PASSAGES:
            raise ValueError(f"passages must be one of {', '.join(PASSAGES)}, not {passages!r}")
        check_engine(engine, precision, device)
        if max_length is not None and max_length < 8:
            raise ValueError(f"max_length={max_length} leaves no room for a query and a document; use 8 or more")
        self.model = model if isinstance(model, Checkpoint) else Checkpoint(crossencoder.load, model)
        self.max_length, self.passages, self.engine, self.precision = max_length, passages, engine, precision
        self.device, self.token_budget, self.verbose = device, token_budget, verbose
        self.text_field, self.training = text_field, training

    @classmethod
    def from_pretrained(cls, name_or_path: str, *, layers: int | None = None, trust_remote_code=False, **settings):
        """Returns a ranker on the weights in a folder or on the Hub; nothing is loaded before they are needed.

        Args:
            name_or_path: A folder, or a name on the Hugging Face Hub.
            layers: Keep only the first so many layers.
            trust_remote_code: Whether code that comes with the model may run.
            **settings: Any of the class's settings.
        """
        options = {"layers": layers, "trust_remote_code": trust_remote_code}
        options = {name: value for name, value in options.items() if value is not None and value is not False}
        return cls(Checkpoint(crossencoder.load, name_or_path, **options), **settings)

    def truncate(self, layers: int) -> "CrossEncoder":
        """Returns a ranker of the first ``layers`` layers with weights of its own, to be trained (CT-6).

        Args:
            layers: How many of the encoder's layers to keep.
        """
        if self.model.fitted:
            raise ValueError("these weights were trained and not saved; call save_pretrained(folder), then truncate")
        model = Checkpoint(self.model.load, self.model.source, **(self.model.options | {"layers": layers}))
        return type(self)(**(self.settings() | {"model": model}))

    def new_columns(self):
        """Returns the layer that scored and the cost columns."""
        return {"exit_layer": np.int64, frames.COST: np.float64, frames.FULL_COST: np.float64}

    def score(self, frame: pd.DataFrame, blocks: frames.Blocks) -> dict[str, np.ndarray]:
        """Returns the relevance of each candidate and what it cost."""
        model = self.model.loaded
        if model.untrained:
            warnings.warn(f"{model.untrained}: train it with fit() before its scores mean anything", stacklevel=3)
        scores, n_inputs = np.empty(len(frame)), np.empty(len(frame), dtype=np.int64)
        queries, texts = self._texts(frame)
        with pt.tqdm(total=len(frame), desc="CrossEncoder", unit="pair", disable=not self.verbose) as bar:
            for start in range(0, len(frame), ROWS):
                rows = slice(start, start + ROWS)
                pairs = self._tokenize(queries[rows], texts[rows], self.passages != "first")
                n_inputs[rows] = np.bincount(pairs.owner)
                share = len(n_inputs[rows]) / len(pairs.owner)
                scores[rows] = self._relevance(
                    pairs, self.engine, self.precision, lambda n_done, share=share: bar.update(n_done * share)
                )
        return {
            "score": scores,
            "exit_layer": np.full(len(frame), model.layers),
            **frames.charged(frame, blocks, n_inputs * model.layers, n_inputs * model.full_layers),
        }

    def calibrate(self, results: pd.DataFrame) -> "CrossEncoder":
        """Takes candidates like those that will be scored to calibrate int8 on, some hundred of them.

        It holds for all rankers on these weights. Without it the first candidates scored are taken.

        Args:
            results: A results frame with texts; up to 320 rows, evenly from all of them, are used.
        """
        frames.validate(results, context=self, text_field=self.text_field)
        if len(results) < CALIBRATION[0]:
            raise ValueError(f"int8 needs at least {CALIBRATION[0]} candidates to calibrate on, not {len(results)}")
        rows = np.linspace(0, len(results) - 1, min(len(results), ROWS)).astype(np.int64)
        self.model.loaded.executors.calibrate(self._tokenize(*self._texts(results.iloc[rows])))
        return self

    def _texts(self, frame: pd.DataFrame) -> tuple[list[str], list[str]]:
        """Returns each row's query, cut where it leaves no room, and its text; both are said once."""
        with self.model.lock:
            queries, _ = fitting(self.model.loaded.tokenizer, frames.texts(frame, "query"), self._limit())
        return queries, frames.texts(frame, self.text_field)

    def _limit(self) -> int:
        limit = self.model.loaded.length_limit
        if self.max_length is not None and self.max_length > limit:
            raise ValueError(f"max_length={self.max_length}, but {self.model!r} has positions for {limit} tokens")
        return self.max_length or min(512, limit)

    def _tokenize(self, queries: list[str], texts: list[str], passages: bool = False) -> TokenPairs:
        with self.model.lock:
            tokenizer = self.model.loaded.tokenizer
            return tokenize(tokenizer, queries, texts, max_length=self._limit(), passages=passages)

    def _relevance(self, pairs: TokenPairs, engine: str, precision: str, progress=lambda n_done: None) -> np.ndarray:
        """Returns the score of each row, ``(n_rows,)``, over its passages."""
        cache = self.model.cache("openvino")
        executor = self.model.loaded.executors.get(engine, precision, self.device, pairs, cache)
        scores = run(executor, pairs, budget=self.token_budget, progress=progress)[:, 0].astype(np.float64)
        if self.passages == "first":
            return scores
        counts = np.bincount(pairs.owner)
        whole = PASSAGES[self.passages].reduceat(scores, np.cumsum(counts) - counts)
        return whole if self.passages == "max" else whole / counts

    def train(self, train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> None:
        """Trains all layers and the head on labelled pairs; a long document is its first passage (TA-2)."""
        from pyterrier_cascade.training.trainer import Examples, train_model

        labels, questions = train["label"].to_numpy(dtype=np.int64), frames.Blocks.of(train).codes
        examples = Examples(self._tokenize(*self._texts(train)), labels, questions)
        dev_pairs = None if dev is None else self._tokenize(*self._texts(dev), self.passages != "first")

        def measure_dev(precision: str) -> float:
            # Weights that change all the time are not worth being compiled.
            scores = self._relevance(dev_pairs, "torch", precision)
            return frames.mean_average_precision(dev, scores, dev_qrels)

        history = train_model(
            self.model.loaded.module,
            examples,
            self.training,
            device=device_of(self.device),
            compute_loss=lambda module, inputs, labels: crossencoder.loss(module(**inputs).logits, labels),
            measure_dev=measure_dev if dev is not None else None,
            verbose=self.verbose,
        )
        self.model.mark_fitted(history)
