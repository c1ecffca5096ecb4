"""The Cascade Transformer over results frames."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import AP

from pyterrier_cascade import frames
from pyterrier_cascade.cascade import conversion, loading
from pyterrier_cascade.cascade.card import model_card
from pyterrier_cascade.cascade.distillation import distilled
from pyterrier_cascade.cascade.head_learning import Distillation
from pyterrier_cascade.cascade.training import CascadeTraining, loss_of
from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.checks import check_choices, warn_user
from pyterrier_cascade.early_exit import deadline
from pyterrier_cascade.early_exit.certificate import Certificate
from pyterrier_cascade.early_exit.groups import batches, slabs
from pyterrier_cascade.early_exit.handover import Handover
from pyterrier_cascade.early_exit.policy import Plan, Policy
from pyterrier_cascade.early_exit.probability import curves_of, probabilities
from pyterrier_cascade.early_exit.pruning import keep_of
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker, HeadScores
from pyterrier_cascade.early_exit.trace import Trace
from pyterrier_cascade.encoder.device import CALIBRATED, device_of
from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.encoder.passages import PASSAGES, keep_documents, over_passages
from pyterrier_cascade.model import TrainedOn
from pyterrier_cascade.pair_ranker import ROWS, ROWS_AHEAD, PairRanker
from pyterrier_cascade.training.processes import leads


class Cascade(EarlyExitRanker, PairRanker):
    """Scores with one encoder and drops candidates on the way: heads after several layers decide who goes on (CT-9).

    Choose it where a monolithic reranker is too slow. At ``alpha=0.4`` 45% of the layers are never run::

        bm25 >> cascade(alpha=0.4)                                          # drops 40% at each head but the last
        bm25 >> cascade(alpha=(0.6, 0.4, 0, 0))                             # as it suits each head
        bm25 >> cascade(counts=(50, 20, 10, 5))                             # keeps so many
        bm25 >> cascade(plan=(4, 12), alpha=0.5)                            # asks two heads only
        bm25 >> cascade(deadline_ms=200)                                    # keeps so many as the time suffices for
        bm25 >> cascade[4] % 0.6 >> cascade[6] % 20 >> cascade[12]          # the same as stages

    The scores of all heads are log-odds of relevance. A candidate that comes further ranks above all that left before
    it. By default all candidates are returned, each with ``exit_layer``, the layer whose head gave the score, and with
    the query columns that :data:`~pyterrier_cascade.RelativeCost` reads. The scores of candidates that left early are
    moved below the others', so that any measure sees the same order; equal scores keep the order from the head before
    (CT-2).

    Args:
        model: A folder or a Hub name: a Cascade Transformer, or a bare encoder, which gets fresh heads to be trained.
        max_length: The most tokens of query and document together; only the document is cut. By default 512, or
            less where the tokenizer says so or the encoder has fewer positions. The positions alone are a limit.
        passages: How a document longer than the limit is scored by each head: by its ``"first"`` passage (the rest is
            cut off), or by the ``"max"`` or ``"mean"`` of the scores of all its passages, which go on or leave
            together.
        engine: ``"torch"``, or ``"openvino"`` (extra ``openvino``), which computes on the CPU.
        precision: ``"auto"`` is bf16 on GPUs that have it, fp16 on other GPUs, and fp32 on a CPU. Or ``"fp32"``,
            ``"bf16"`` (where the hardware has it), ``"fp16"`` (on GPUs), or on CPUs ``"int8"`` and ``"mixed"``.
        device: For example ``"cpu"`` or ``"cuda:0"``; by default a GPU where there is one.
        token_budget: The most tokens computed at once by one core or GPU; by default what suits the device.
        torch_compile: Whether torch compiles the layers, once for all lengths, in about half a minute at the first use.
            It fuses the small operations on a GPU. On a CPU scoring takes 1.8 times as long as without.
        verbose: Whether to show progress.
        text_field: The column with the document's text.
        training: How :meth:`fit` trains.
        deadline_ms: The milliseconds that each query has, in place of ``alpha``, ``counts`` and ``batch_size``. Queries
            are ranked one after the other. After each head as many candidates go on as the rest of the time suffices
            for. Where it is too short for all, the last ones of the input are not read at all: they come last, in their
            order, with ``exit_layer`` 0. Everything counts, from tokens to the result, except that the first use of a
            model on this machine loads it and measures its layers. In a :class:`~pyterrier_cascade.OneClock` everything
            before the cascade counts too. What comes back depends on the machine and on what
            else it does, and is not repeatable; traces and stages know no deadlines.
        probability: Whether results have a column ``probability``, which means the same at every exit layer;
            :meth:`fit_probability` comes before. It is NaN where a deadline left no time to read a candidate.
        **policy: Who leaves early: the settings of :class:`~pyterrier_cascade.early_exit.policy.Policy`, ``alpha``,
            ``counts``, ``margin``, ``margin_k``, ``plan``, ``batch_size``, ``rounding`` and ``exited``.
    """

    reuses_encodings = True
    # EarlyExitRanker, the first base, leaves them open.
    fingerprint = PairRanker.fingerprint
    computed_precision = PairRanker.computed_precision

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
        training: CascadeTraining = CascadeTraining(),
        deadline_ms: float | None = None,
        probability: bool = False,
        **policy: Any,
    ):
        check_choices(passages=(passages, PASSAGES))
        self.model, self.policy = Checkpoint.of(loading.load, model, "Cascade"), Policy(**policy)
        self.max_length, self.passages, self.engine, self.precision = max_length, passages, engine, precision
        self.device, self.token_budget, self.torch_compile = device, token_budget, torch_compile
        self.verbose, self.text_field, self.training = verbose, text_field, training
        self.deadline_ms, self.probability = deadline_ms, probability
        self.check_settings()

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str,
        *,
        layers: Sequence[int] | None = None,
        pooling: str | None = None,
        outputs: int | None = None,
        trust_remote_code: bool = False,
        **settings,
    ) -> "Cascade":
        """Returns a cascade on the weights in a folder or on the Hub; the weights are read when they are needed.

        Args:
            name_or_path: A folder, or a name on the Hugging Face Hub: a Cascade Transformer or a bare encoder.
            layers: The layers that get fresh heads on a bare encoder; 4, 6, 8, 10 and 12 of 12 by default (CT-7).
            pooling: How fresh heads read a layer: by the mean of all tokens but the first, ``"mean_nocls"``, of all,
                ``"mean"``, or the first, ``"cls"`` (CT-10).
            outputs: The logits of a fresh head, 1 or 2 (CT-12).
            trust_remote_code: Whether code that comes with a bare encoder may run.
            **settings: Any of the class's settings.
        """
        loading.check_heads(layers, pooling, outputs)
        options = {
            "layers": None if layers is None else tuple(map(int, layers)),
            "pooling": pooling,
            "outputs": outputs,
            "trust_remote_code": trust_remote_code or None,
        }
        return cls(Checkpoint.of(loading.load, name_or_path, cls.__name__, **options), **settings)

    @classmethod
    def from_cross_encoder(
        cls, source: Any, layers: Sequence[int] | None = None, *, trust_remote_code: bool = False, **settings
    ) -> "Cascade":
        """Returns a cascade of a trained cross-encoder: its own classifier is the last head.

        With nothing dropped the scores are those of the cross-encoder. The heads before the last are fresh until
        :meth:`distil` teaches them, which needs no labels::

            cascade = Cascade.from_cross_encoder("cross-encoder/ms-marco-MiniLM-L6-v2").distil(candidates)

        Args:
            source: A :class:`~pyterrier_cascade.CrossEncoder`, a folder, a Hub name, or a
                ``sentence_transformers.CrossEncoder``. Weights that an object alone holds are written to a temporary
                folder of this process; :meth:`save_pretrained` keeps them.
            layers: The layers of the heads, ending with the encoder's last; 4, 6, 8, 10 and 12 of 12 by default (CT-7).
            trust_remote_code: Whether code that comes with the model may run.
            **settings: Any of the class's settings. Those of a ``CrossEncoder`` object, such as its ``max_length``,
                hold unless they are given here.
        """
        known = set(cls.setting_names()) - {"model", "training"}
        theirs = {name: value for name, value in conversion.settings_of(source).items() if name in known}
        return cls(conversion.checkpoint_of(source, layers, trust_remote_code), **(theirs | settings))

    @property
    def head_layers(self) -> tuple[int, ...]:
        """The layers that heads read, ascending."""
        return self.model.loaded.head_layers

    @property
    def full_layers(self) -> int:
        """The layers of the encoder."""
        return self.model.loaded.full_layers

    @property
    def layer_size(self) -> int:
        """The multiply-adds of one of them for a token."""
        return self.model.loaded.layer_size

    @property
    def weights(self) -> Checkpoint:
        """The name of the weights."""
        return self.model

    def has_seen(self, queries: Sequence[str]) -> np.ndarray:
        """Returns which queries the heads learned from, boolean ``(n,)``; case and spaces make no difference."""
        return self.model.loaded.has_seen(queries)

    @property
    def certificates(self) -> list[Certificate]:
        """The certificates that were saved with the weights; a warning counts those that other settings have."""
        found = [Certificate.from_config(one) for one in self.model.loaded.module.config.certificates]
        n_others = len(found) - [one.fingerprint for one in found].count(self.fingerprint()) if found else 0
        if n_others:
            warn_user(
                f"{n_others} of {len(found)} certificates are for another max_length, passages, engine, precision, "
                "text_field or calibration than this ranker has, and do not hold for it"
            )
        return found

    def _with_certificates(self, certificates: Sequence[Certificate]) -> list[dict]:
        """Returns the certificates of the model and these, as its configuration keeps them."""
        kept = list(self.model.loaded.module.config.certificates)
        for one in certificates:
            if one.fingerprint != self.fingerprint():
                raise ValueError(
                    f"the certificate of {one.setting} is for other weights or settings than {self!r} has; certify a "
                    "trace of this ranker"
                )
            kept.append(one.to_config())
        return [one for number, one in enumerate(kept) if one not in kept[:number]]

    def check_settings(self) -> None:
        """Raises where a setting is invalid, whatever the model."""
        super().check_settings()
        deadline.check_deadline(self.deadline_ms, self.policy, self.passages)
        if not isinstance(self.probability, bool):
            raise ValueError(f"probability={self.probability!r}: give True for the column, or False")
        if not isinstance(self.training, CascadeTraining):
            raise ValueError(f"a cascade's training must be CascadeTraining(...), not {self.training!r}")

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the candidates of each query with new scores and ranks.

        Args:
            inp: A results frame with ``qid``, ``query``, ``docno`` and the text; rows in any order.
        """
        if self.deadline_ms is None:
            return super().transform(inp)
        entered, start = deadline.perf_counter(), deadline.start_of_query()
        # A grid search may have set another setting since.
        deadline.check_deadline(self.deadline_ms, self.policy, self.passages)
        frames.validate(inp, context=self, text_field=self.text_field)
        blocks = frames.Blocks.of(inp)
        before = 0.0 if start.own else entered - start.began
        return self._in_time(inp, blocks, start, before) if len(inp) else self.empty(inp, blocks)

    def _in_time(
        self, frame: pd.DataFrame, blocks: frames.Blocks, start: deadline.Start, before: float
    ) -> pd.DataFrame:
        """Returns the candidates ranked by the heads that they reach before the deadline of their query."""
        loading = deadline.perf_counter()
        self._check_curves()
        layers, model = self.plan_now().layers, self.model.loaded
        model.warn_if_untrained()
        if self.precision in CALIBRATED and model.executors.calibration is None:
            self.calibrate(frame)
        rows = frames.ranking(frame, blocks, np.zeros(len(frame)))
        queries, texts = self._texts(frame)
        with pt.tqdm(total=len(rows), desc="Cascade", unit="pair", disable=not self.verbose) as bar:
            timed = deadline.TimedScoring(
                self._executor(self.engine, self.precision, model.executors.calibration),
                lambda some: self._tokenize([queries[row] for row in some], [texts[row] for row in some]),
                np.array([len(query) + len(text) for query, text in zip(queries, texts, strict=True)]),
                self._limit(),
                layers,
                [model.head_layers.index(layer) for layer in layers],
                self.token_budget,
                bar.update,
            )
            if not timed.pace.measured:
                timed.measure(rows)
                first = frame.iloc[rows[: blocks.sizes[0]]]
                self._timed_result(timed, first, frames.Blocks.of(first), timed.nothing(len(first)))
                start.began += deadline.perf_counter() - loading
            found = timed.of_queries(rows, blocks.codes[rows], self.deadline_ms / 1000, start, before)
        return self._timed_result(timed, frame, blocks, found)

    def _timed_result(
        self, timed: deadline.TimedScoring, frame: pd.DataFrame, blocks: frames.Blocks, found: HeadScores
    ) -> pd.DataFrame:
        """Returns the result of :meth:`_in_time` and notes the time that it takes to make it."""
        began = deadline.perf_counter()
        results = self.ranked(frame, blocks, timed.plan, found, self.policy.exited)
        timed.pace.finished((deadline.perf_counter() - began) / len(blocks))
        return results

    def head_scores(
        self,
        frame: pd.DataFrame,
        blocks: frames.Blocks,
        plan: Plan,
        prune: bool = True,
        handover: Handover | None = None,
    ) -> HeadScores:
        """Returns the candidates' scores; no further layer is run for a candidate that leaves (CT-24)."""
        model = self.model.loaded
        if plan.drops or not prune or not model.module.config.converted:
            # The classifier of a cross-encoder alone decides as long as nothing is dropped.
            model.warn_if_untrained()
        rows = frames.ranking(frame, blocks, np.zeros(len(frame)))
        groups = batches(blocks.codes[rows], plan.batch_size)
        queries, texts = ([values[row] for row in rows] for values in self._texts(frame))
        stops = [model.head_layers.index(layer) for layer in plan.layers]
        scores = np.empty((len(rows), len(stops)), dtype=np.float32)
        sizes, begun_at = np.empty((2, len(rows)), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
        executor_for = functools.partial(self._executor, self.engine, self.precision)
        handover = handover or Handover()
        handover.open((self.engine, self.computed_precision, self._limit(), self.passages), executor_for)
        in_turn = (prune and plan.drops and len(stops) > 1) or not handover.is_empty
        parts = slabs(groups, ROWS_AHEAD if self._works_ahead else ROWS)
        with (
            pt.tqdm(total=len(rows), desc="Cascade", unit="pair", disable=not self.verbose) as bar,
            self._ahead(lambda part: handover.take(queries[part], texts[part], self._inputs), parts) as taken,
        ):
            for part, (pairs, begun) in zip(parts, taken, strict=True):
                executor, starts = executor_for(pairs), pairs.first_inputs
                share = len(starts) / len(pairs.owner)
                found = run(
                    executor,
                    pairs,
                    groups[part][pairs.owner],
                    keep_documents(keep_of(plan, groups[part]), pairs.owner, self.passages) if in_turn else None,
                    stops,
                    self.token_budget,
                    lambda n_done, share=share: bar.update(n_done * share),
                    begun,
                    handover.leave(executor, stops[-1] + 1, queries[part], texts[part], pairs),
                )
                scores[part] = over_passages(found[:, stops], starts, self.passages)
                sizes[:, part] = pairs.sizes
                if begun is not None:
                    begun_at[part] = np.where(begun.group[starts] < 0, 0, model.head_layers[begun.spans - 1])
        n_inputs, n_tokens = sizes
        return HeadScores(rows, scores, n_tokens, n_inputs, begun_at)

    def fit_probability(self, trace: Trace, qrels: pd.DataFrame | None = None) -> "Cascade":
        """Fits the curves that ``probability=True`` needs, one for each head (Platt 1999), and returns the cascade.

        The curves belong to the weights: all rankers on them have them, :meth:`save_pretrained` keeps them, and a
        training drops them. :func:`~pyterrier_cascade.reliability` checks them on other questions.

        Args:
            trace: A trace of this cascade over questions that the heads were not trained on.
            qrels: Judgements of the trace's questions; a label of ``training.relevant_from`` or more is relevant.
                Unless given, all heads learn to say what the last head says, as a probability.
        """
        if trace.meta["fingerprint"] != self.fingerprint():
            raise ValueError(
                f"the trace was made by {trace.meta['ranker']}, whose weights or settings are not those of {self!r}; "
                "fit on a trace of this cascade"
            )
        self.model.note(probability=curves_of(trace, qrels, self.relevant_from))
        return self

    def _check_curves(self) -> None:
        """Raises where probabilities are wanted and no curves were fitted."""
        if self.probability and not self.model.loaded.module.config.probability:
            raise ValueError(
                "probability=True needs a curve for each head; call fit_probability(cascade.trace(candidates), qrels) "
                "before"
            )

    def new_columns(self):
        """Returns the layer that scored, the cost columns, and ``probability`` where it is wanted."""
        return super().new_columns() | ({"probability": np.float64} if self.probability else {})

    def columns_of(self, plan: Plan, found: HeadScores) -> dict[str, np.ndarray]:
        """Returns ``probability`` where it is wanted."""
        if not self.probability:
            return {}
        return {"probability": probabilities(self.model.loaded.module.config.probability, plan.layers, found.scores)}

    def follow(
        self,
        frame: pd.DataFrame,
        blocks: frames.Blocks,
        plan: Plan,
        exited: str,
        handover: Handover | None = None,
    ) -> pd.DataFrame:
        """Returns a frame's candidates ranked by a plan; see :class:`EarlyExitRanker`."""
        self._check_curves()
        return super().follow(frame, blocks, plan, exited, handover)

    def distil(
        self,
        candidates: pd.DataFrame,
        layers: Sequence[int] | str | None = None,
        *,
        folder: str | None = None,
        settings: Distillation = Distillation(),
    ) -> "Cascade":
        """Teaches the heads before the last one to give the last one's scores, without labels, and returns the cascade.

        The encoder and the last head stay as they are, bit for bit. One pass of the encoder reads the states of all
        candidates; then each head learns in seconds. :attr:`history` says how well each head agrees with the last one
        on questions that were held out: correlation of scores, share of equal first answers, and NDCG of the first ten
        against the last one's ranking. The cascade remembers the queries by hash, because they can certify nothing.

        Args:
            candidates: A results frame with texts, of some hundred queries or more like those to come.
            layers: The layers that get heads, ending with the encoder's last; those of the present heads unless given.
                ``"auto"`` tries a head after every layer and keeps those of the cheapest cascade.
            folder: A folder for the states, so that a call that was killed goes on where it stood when it is made
                again. A candidate takes 4 bytes for each unit of the encoder's width and each layer.
            settings: How heads learn.
        """
        distilled(self, candidates, layers, folder, settings)
        return self

    def train(self, train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> None:
        """Trains encoder and heads on labelled pairs; a long document is its first passage (CT-15 to CT-23)."""
        from pyterrier_cascade.training.trainer import LabelledPairs, train_model

        settings, model = self.training, self.model.loaded
        heads = model.head_layers
        watched = heads[-1] if settings.watch is None else settings.watch
        if watched not in heads:
            raise ValueError(f"watch={watched}, but {self.model!r} has heads at layers {heads}")
        labels, questions = train["label"].to_numpy(dtype=np.int64), frames.Blocks.of(train).codes
        examples = LabelledPairs(self._tokenize(*self._texts(train)), labels, questions)
        dev_pairs = None if dev is None else self._inputs(*self._texts(dev))
        # Compiling weights that change with every update is not worth its time.
        plain = self(torch_compile=False)

        def measure_dev(precision: str) -> dict[str, float]:
            found = run(plain._executor("torch", precision, dev_pairs), dev_pairs, budget=self.token_budget)
            found = over_passages(found, dev_pairs.first_inputs, self.passages)
            maps = [frames.mean_average_precision(dev, scores, dev_qrels) for scores in found.T]
            return {
                "dev_map": maps[heads.index(watched)],
                **{f"dev_map_{layer}": value for layer, value in zip(heads, maps, strict=True)},
            }

        epochs = examples.batches(settings)
        history = train_model(
            model.module,
            examples,
            settings,
            epochs=epochs,
            device=device_of(self.device),
            compute_loss=loss_of(settings, len(heads), [len(epoch) for epoch in epochs]),
            measure_dev=measure_dev if dev is not None else None,
            dev=self.digest([dev, dev_qrels]),
            verbose=self.verbose,
            unused_parameters=settings.heads == "sampled",
        )
        for frame in (train, dev):
            model.remember([] if frame is None else frame["query"].dropna())
        record = TrainedOn.of(questions, labels, settings)
        self.model.mark_fitted(history, record)
        # One more pass over the development data, for the model card that the first process alone writes.
        if dev is not None and leads():
            self.model.mark_fitted(history, dataclasses.replace(record, quality=self._quality(dev, dev_qrels)))

    def _quality(self, dev: pd.DataFrame, qrels: pd.DataFrame) -> tuple[tuple[str, float, float], ...]:
        """Returns cost and development MAP of each head and of some cascades, for the model card."""
        trace = self(engine="torch", precision="fp32", verbose=False).trace(dev)
        rows = []
        for layer in self.head_layers:
            full = trace.sweep(qrels, [AP], alphas=[0.0], plan=(layer,)).full
            rows.append((f"head at layer {layer}, alpha 0", full))
        if len(self.head_layers) > 1:
            for _, row in trace.sweep(qrels, [AP], alphas=[0.3, 0.4, 0.5]).frame.iterrows():
                rows.append((f"alpha {row['alpha']}", row))
        return tuple((name, float(row["RelativeCost"]), float(row["AP"])) for name, row in rows)

    def model_card(self, name: str) -> str:
        """Returns the model card, with quality and cost of the heads and of some cascades.

        Args:
            name: The name that the cascade is loaded by.
        """
        model = self.model.loaded
        return model_card(model.module.config, model.trained_on, name)

    def save_pretrained(
        self, path: str | os.PathLike, data: str | None = None, certificates: Sequence[Certificate] = ()
    ) -> None:
        """Writes weights (safetensors), configuration, tokenizer and model card to a folder.

        Afterwards the ranker stands for that folder. A model that was there is replaced in one step, and other files of
        the folder stay, as in :meth:`CrossEncoder.save_pretrained`.

        Args:
            path: The folder.
            data: The name of the training data, for the card.
            certificates: Certificates of this ranker, for the configuration and the card, beside those that are there.
        """
        self.model.loaded.module.config.certificates = self._with_certificates(certificates)
        super().save_pretrained(path, data)
