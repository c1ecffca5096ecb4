"""The Cascade Transformer over results frames."""

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import AP

from pyterrier_cascade import frames
from pyterrier_cascade.cascade import model as cascade
from pyterrier_cascade.cascade.card import model_card
from pyterrier_cascade.cascade.training import CascadeTraining, loss_of
from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.early_exit import pruning
from pyterrier_cascade.early_exit.ranker import Judged, Plan, Staged
from pyterrier_cascade.encoder.device import device_of
from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.pair_ranker import ROWS, PairRanker


class Cascade(Staged, PairRanker):
    """Scores with one encoder, and drops candidates on the way: heads after several layers say who goes on (CT-9).

    Choose it where a monolithic reranker is too slow. At ``alpha=0.4`` 45% of the layers are never run::

        bm25 >> cascade(alpha=0.4)                                          # drops 40% at each head but the last
        bm25 >> cascade(alpha=(0.6, 0.4, 0, 0))                             # as it suits each head
        bm25 >> cascade(counts=(50, 20, 10, 5))                             # keeps so many
        bm25 >> cascade(plan=(4, 12), alpha=0.5)                            # asks two heads only
        bm25 >> cascade[4] % 0.6 >> cascade[6] % 20 >> cascade[12]          # the same as stages; compile() fuses them

    All heads' scores are log-odds of relevance. Those that come further rank above all that left before; by default
    all candidates are returned, each with ``exit_layer``, the layer whose head gave the score, and with the query
    columns that :data:`~pyterrier_cascade.RelativeCost` reads. The scores of those that left early are moved below the
    others', so that any measure sees the same order; equal scores keep the order from the head before (CT-2).

    Args:
        model: A folder or a Hub name: a Cascade Transformer, or a bare encoder, which gets fresh heads to be trained.
        alpha: The fraction of a query's candidates that each head but the last drops, from 0 to below 1; one number,
            or one for each of these heads.
        counts: How many candidates each head but the last keeps, in place of ``alpha``.
        plan: The layers whose heads are asked; all heads by default.
        batch_size: Judge so many of a query's candidates at a time, in order, as in the paper's experiments (CT-26);
            all of them by default.
        rounding: Of the number that goes on: ``"floor"`` of the discards, or ``"nearest"`` (CT-25).
        exited: ``"below"`` returns all candidates, ``"drop"`` those alone that reach the last head (CT-28).
        max_length: The most tokens of query and document together; only the document is cut. By default 512, or what
            the encoder has positions for if that is less.
        engine: ``"torch"``, or ``"openvino"`` (extra ``openvino``) for the most speed on a CPU.
        precision: ``"fp32"``, ``"bf16"`` (where the hardware has it), or with OpenVINO ``"int8"`` and ``"mixed"``.
        device: For example ``"cpu"`` or ``"cuda:0"``; by default a GPU where there is one.
        token_budget: The most tokens computed at once by one core or GPU; by default what suits the device.
        verbose: Whether to show progress.
        text_field: The column with the document's text.
        training: How :meth:`fit` trains.
    """

    reuses_encodings = True

    def __init__(
        self,
        model: str | Checkpoint,
        *,
        alpha: float | Sequence[float] = 0.0,
        counts: Sequence[int] | None = None,
        plan: Sequence[int] | None = None,
        batch_size: int | None = None,
        rounding: str = "floor",
        exited: str = "below",
        max_length: int | None = None,
        engine: str = "torch",
        precision: str = "fp32",
        device: str | None = None,
        token_budget: int | None = None,
        verbose: bool = False,
        text_field: str = "text",
        training: CascadeTraining = CascadeTraining(),
    ):
        self.model = model if isinstance(model, Checkpoint) else Checkpoint(cascade.load, model)
        self.keep_plan(alpha, counts, plan, batch_size, rounding, exited)
        self.max_length, self.engine, self.precision = max_length, engine, precision
        self.device, self.token_budget, self.verbose = device, token_budget, verbose
        self.text_field, self.training = text_field, training
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
        """Returns a cascade on the weights in a folder or on the Hub; nothing is loaded before they are needed.

        Args:
            name_or_path: A folder, or a name on the Hugging Face Hub: a Cascade Transformer or a bare encoder.
            layers: The layers that get fresh heads on a bare encoder; 4, 6, 8, 10 and 12 of 12 by default (CT-7).
            pooling: What fresh heads read of a layer: the mean of all tokens but the first, ``"mean_nocls"``, of all,
                ``"mean"``, or the first, ``"cls"`` (CT-10).
            outputs: The logits of a fresh head, 1 or 2 (CT-12).
            trust_remote_code: Whether code that comes with a bare encoder may run.
            **settings: Any of the class's settings.
        """
        cascade.check_heads(layers, pooling, outputs)
        options = {
            "layers": None if layers is None else tuple(map(int, layers)),
            "pooling": pooling,
            "outputs": outputs,
            "trust_remote_code": trust_remote_code or None,
        }
        options = {name: value for name, value in options.items() if value is not None}
        return cls(Checkpoint(cascade.load, name_or_path, **options), **settings)

    @property
    def head_layers(self) -> tuple[int, ...]:
        """The layers that heads read, ascending."""
        return self.model.loaded.head_layers

    @property
    def full_layers(self) -> int:
        """The layers of the encoder."""
        return self.model.loaded.full_layers

    @property
    def weights(self) -> Checkpoint:
        """What names the weights."""
        return self.model

    def fingerprint(self) -> str:
        """Returns a hash of the weights, and of the settings that scores depend on."""
        settings = (self.max_length, self.engine, self.precision, self.text_field, self.calibrated_on())
        return f"{self.model.fingerprint} {settings}"

    def check_settings(self) -> None:
        """Raises where the settings cannot be, whatever the model."""
        Staged.check_settings(self)
        PairRanker.check_settings(self)
        if not isinstance(self.training, CascadeTraining):
            raise ValueError(f"a cascade is trained as CascadeTraining(...) says, not {self.training!r}")

    def judge(self, frame: pd.DataFrame, blocks: frames.Blocks, plan: Plan, prune: bool = True) -> Judged:
        """Returns the candidates' scores; a candidate that leaves is not computed any further (CT-24)."""
        model = self.model.loaded
        if model.untrained:
            warnings.warn(f"{model.untrained}: train them with fit() before scores mean anything", stacklevel=4)
        rows = frames.ranking(frame, blocks, np.zeros(len(frame)))
        groups = pruning.batches(blocks.codes[rows], plan.batch_size)
        queries, texts = ([values[row] for row in rows] for values in self._texts(frame))
        stops = [model.head_layers.index(layer) for layer in plan.layers]
        scores = np.empty((len(rows), len(stops)), dtype=np.float32)
        tokens = np.empty(len(rows), dtype=np.int64)
        prune = prune and len(stops) > 1
        with pt.tqdm(total=len(rows), desc="Cascade", unit="pair", disable=not self.verbose) as bar:
            for part in pruning.slabs(groups, ROWS):
                pairs = self._tokenize(queries[part], texts[part])
                found = run(
                    self._executor(self.engine, self.precision, pairs),
                    pairs,
                    groups[part],
                    pruning.rule(groups[part], plan.cutoffs, plan.rounding) if prune else None,
                    stops,
                    self.token_budget,
                    bar.update,
                )
                scores[part], tokens[part] = found[:, stops], pairs.lengths
        return Judged(rows, scores, tokens)

    def train(self, train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> None:
        """Trains encoder and heads on labelled pairs (CT-15 to CT-23)."""
        from pyterrier_cascade.training.trainer import Examples, train_model

        settings, model = self.training, self.model.loaded
        heads = model.head_layers
        watched = heads[-1] if settings.watch is None else settings.watch
        if watched not in heads:
            raise ValueError(f"watch={watched}, but {self.model!r} has heads at layers {heads}")
        labels, questions = train["label"].to_numpy(dtype=np.int64), frames.Blocks.of(train).codes
        examples = Examples(self._tokenize(*self._texts(train)), labels, questions)
        dev_pairs = None if dev is None else self._tokenize(*self._texts(dev))

        def measure_dev(precision: str) -> dict[str, float]:
            # Weights that change all the time are not worth being compiled.
            found = run(self._executor("torch", precision, dev_pairs), dev_pairs, budget=self.token_budget)
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
            dev=frames.digest([dev, dev_qrels], self.text_field, self._limit()),
            verbose=self.verbose,
            parts_rest=settings.heads == "sampled",
        )
        self.model.mark_fitted(
            history,
            trained_on={
                "data": None,
                "questions": len(np.unique(questions)),
                "candidates": len(labels),
                "positives": int(labels.sum()),
                "training": repr(settings),
                "table": [],
            },
        )
        if dev is not None:
            self.model.notes["trained_on"]["table"] = self._worth(dev, dev_qrels)

    def _worth(self, dev: pd.DataFrame, qrels: pd.DataFrame) -> list[tuple[str, float, float]]:
        """Returns cost and development MAP of each head, and of some cascades, for the model card."""
        trace = self(engine="torch", precision="fp32", verbose=False).trace(dev)
        rows = []
        for layer in self.head_layers:
            full = trace.sweep(qrels, [AP], alphas=[0.0], plan=(layer,)).full
            rows.append((f"head at layer {layer}, alpha 0", full))
        if len(self.head_layers) > 1:
            for _, row in trace.sweep(qrels, [AP], alphas=[0.3, 0.4, 0.5]).frame.iterrows():
                rows.append((f"alpha {row['alpha']}", row))
        return [(name, float(row["RelativeCost"]), float(row["AP"])) for name, row in rows]

    def save_pretrained(self, path: str, data: str | None = None) -> None:
        """Writes weights (safetensors), configuration, tokenizer and a model card, and then stands for that folder.

        Args:
            path: A folder.
            data: The name of the training data, for the card.
        """
        self._write(path, data)
        self.model.stand_for(path)

    def push_to_hub(self, repo_id: str, data: str | None = None, **options) -> str:
        """Uploads what :meth:`save_pretrained` writes to the Hugging Face Hub, and returns the address.

        Args:
            repo_id: The repository, ``"owner/name"``; it is made if it is not there.
            data: The name of the training data, for the card.
            **options: Those of ``HfApi.create_repo``, such as ``private`` and ``token``.
        """
        from huggingface_hub import HfApi

        api = HfApi(token=options.pop("token", None))
        with tempfile.TemporaryDirectory() as folder:
            self._write(folder, data, repo_id)
            address = api.create_repo(repo_id, exist_ok=True, **options)
            api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Cascade Transformer")
        return str(address)

    def _write(self, path: str, data: str | None, name: str = "this-folder") -> None:
        config = self.model.loaded.module.config
        config.update(self.model.notes)
        if data is not None:
            if not config.trained_on:
                raise ValueError(f"data={data!r} names what the heads were trained on, but fit() did not train them")
            config.trained_on["data"] = data
        self.model.write(path)
        (Path(path) / "README.md").write_text(model_card(config, name), encoding="utf-8")
