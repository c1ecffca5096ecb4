"""The monolithic reranker over results frames."""

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.crossencoder import model as crossencoder
from pyterrier_cascade.encoder.device import device_of
from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.passages import PASSAGES, over_passages
from pyterrier_cascade.model import TrainedOn
from pyterrier_cascade.pair_ranker import ROWS, ROWS_AHEAD, PairRanker
from pyterrier_cascade.training.losses import cross_entropy
from pyterrier_cascade.training.settings import Training


class CrossEncoder(PairRanker):
    """Scores each candidate by one encoder that reads query and document together (CT-4, TA-2).

    Choose it where quality matters more than time, or as the baseline that the faster rankers are measured against::

        bm25 >> CrossEncoder.from_pretrained("cross-encoder/ms-marco-MiniLM-L6-v2")

    The score is the log-odds of relevance. Besides ``score`` and ``rank`` the result has ``exit_layer``, the layer
    whose head gave the score, and the query columns that :data:`~pyterrier_cascade.RelativeCost` reads.

    Args:
        model: A folder or a Hub name: a Hugging Face sequence classifier of one or two outputs, or a bare encoder,
            which gets a fresh head to be trained.
        max_length: The most tokens of query and document together; only the document is cut. By default 512, or
            less where the tokenizer says so or the encoder has fewer positions. The positions alone are a limit.
        passages: How a document longer than the limit is scored: by its ``"first"`` passage (the rest is cut off), or
            by the ``"max"`` or ``"mean"`` of the scores of all its passages.
        engine: ``"torch"``, or ``"openvino"`` (extra ``openvino``), which computes on the CPU.
        precision: ``"auto"`` is bf16 on GPUs that have it, fp16 on other GPUs, and fp32 on a CPU. Or ``"fp32"``,
            ``"bf16"`` (where the hardware has it), ``"fp16"`` (on GPUs), or on CPUs ``"int8"`` and ``"mixed"``,
            which spares the weights that int8 hurts most. These two are calibrated on the first candidates
            scored, unless :meth:`calibrate` was called.
        device: For example ``"cpu"`` or ``"cuda:0"``; by default a GPU where there is one.
        token_budget: The most tokens computed at once by one core or GPU; by default what suits the device.
        torch_compile: Whether torch compiles the layers, once for all lengths, in about half a minute at the first use.
            It fuses the small operations on a GPU. On a CPU scoring takes 1.8 times as long as without.
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
        precision: str = "auto",
        device: str | None = None,
        token_budget: int | None = None,
        torch_compile: bool = False,
        verbose: bool = False,
        text_field: str = "text",
        training: Training = Training(),
    ):
        check_choices(passages=(passages, PASSAGES))
        self.model = Checkpoint.of(crossencoder.load, model, "CrossEncoder")
        self.max_length, self.passages, self.engine, self.precision = max_length, passages, engine, precision
        self.device, self.token_budget, self.torch_compile = device, token_budget, torch_compile
        self.verbose, self.text_field, self.training = verbose, text_field, training
        self.check_settings()

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str,
        *,
        layers: int | None = None,
        dense: bool = True,
        trust_remote_code: bool = False,
        **settings,
    ) -> "CrossEncoder":
        """Returns a ranker on the weights in a folder or on the Hub; the weights are read when they are needed.

        Args:
            name_or_path: A folder, or a name on the Hugging Face Hub.
            layers: Keep only the first so many layers.
            dense: Whether a fresh head has a dense layer before its tanh: Hugging Face's heads have one, the formula
                of TANDA has none (TA-2). A trained head stays as it is.
            trust_remote_code: Whether code that comes with the model may run.
            **settings: Any of the class's settings.
        """
        options = {"layers": layers, "dense": None if dense else False, "trust_remote_code": trust_remote_code or None}
        return cls(Checkpoint.of(crossencoder.load, name_or_path, cls.__name__, **options), **settings)

    def truncate(self, layers: int) -> "CrossEncoder":
        """Returns a ranker of the first ``layers`` layers with weights of its own, to be trained (CT-6).

        Args:
            layers: How many of the encoder's layers to keep.
        """
        if self.model.fitted:
            raise ValueError("these weights were trained and not saved; call save_pretrained(folder), then truncate")
        model = Checkpoint(self.model.load, self.model.source, **(self.model.options | {"layers": layers}))
        return type(self)(**(self.settings() | {"model": model}))

    def score(self, frame: pd.DataFrame, blocks: frames.Blocks) -> dict[str, np.ndarray]:
        """Returns the relevance of each candidate and its cost."""
        model = self.model.loaded
        scores, n_inputs, n_tokens = self.relevance(frame)
        return {
            "score": scores,
            "exit_layer": np.full(len(frame), model.layers),
            **frames.charged(frame, blocks, model.layers, model.full_layers, n_inputs, n_tokens),
        }

    def relevance(self, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns each row's score, its inputs (a long document may be several), and their tokens, each ``(n,)``."""
        model = self.model.loaded
        model.warn_if_untrained()
        scores, n_inputs, n_tokens = np.empty(len(frame)), np.empty(len(frame)), np.empty(len(frame))
        queries, texts = self._texts(frame)
        size = ROWS_AHEAD if self._works_ahead else ROWS
        slabs = [slice(start, start + size) for start in range(0, len(frame), size)]
        with (
            pt.tqdm(total=len(frame), desc="CrossEncoder", unit="pair", disable=not self.verbose) as bar,
            self._ahead(lambda rows: self._inputs(queries[rows], texts[rows]), slabs) as tokenised,
        ):
            for rows, pairs in zip(slabs, tokenised, strict=True):
                n_inputs[rows], n_tokens[rows] = pairs.sizes
                share = len(n_inputs[rows]) / len(pairs.owner)
                scores[rows] = self._relevance(
                    pairs, self.engine, self.precision, lambda n_done, share=share: bar.update(n_done * share)
                )
        return scores, n_inputs, n_tokens

    def _relevance(self, pairs: TokenPairs, engine: str, precision: str, progress=lambda n_done: None) -> np.ndarray:
        """Returns the score of each row, ``(n_rows,)``, over its passages."""
        executor = self._executor(engine, precision, pairs)
        scores = run(executor, pairs, budget=self.token_budget, progress=progress)[:, 0].astype(np.float64)
        return over_passages(scores, pairs.first_inputs, self.passages)

    def train(self, train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> None:
        """Trains all layers and the head on labelled pairs; a long document is its first passage (TA-2)."""
        from pyterrier_cascade.training.trainer import LabelledPairs, train_model

        labels, questions = train["label"].to_numpy(dtype=np.int64), frames.Blocks.of(train).codes
        examples = LabelledPairs(self._tokenize(*self._texts(train)), labels, questions)
        dev_pairs = None if dev is None else self._inputs(*self._texts(dev))
        # Compiling weights that change with every update is not worth its time.
        plain = self(torch_compile=False)

        def measure_dev(precision: str) -> dict[str, float]:
            scores = plain._relevance(dev_pairs, "torch", precision)
            return {"dev_map": frames.mean_average_precision(dev, scores, dev_qrels)}

        history = train_model(
            self.model.loaded.module,
            examples,
            self.training,
            epochs=examples.batches(self.training),
            device=device_of(self.device),
            compute_loss=lambda module, inputs, labels, number: cross_entropy(module(**inputs).logits, labels),
            measure_dev=measure_dev if dev is not None else None,
            dev=self.digest([dev, dev_qrels]),
            verbose=self.verbose,
        )
        self.model.mark_fitted(history, TrainedOn.of(questions, labels, self.training))
