"""Hugging Face's Trainer with our batches, our measure and our errors."""

import contextlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from tqdm.auto import tqdm

from pyterrier_cascade.checkpoint import weights_of
from pyterrier_cascade.encoder.device import has_bf16
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.pretrained import silenced
from pyterrier_cascade.training.attention import fast_attention
from pyterrier_cascade.training.batches import epoch_batches
from pyterrier_cascade.training.identity import identity, refuse_another
from pyterrier_cascade.training.processes import agreed, dealt, share, warn_if_alone
from pyterrier_cascade.training.settings import Training

BEST, RUN = "best.safetensors", "training.json"


@dataclass(frozen=True)
class LabelledPairs:
    """Tokenised pairs with their labels and questions, each ``(n,)``."""

    pairs: TokenPairs
    labels: np.ndarray
    questions: np.ndarray

    def batches(self, settings: Training) -> list[list[list[int]]]:
        """Returns the batches of every epoch."""
        return [
            epoch_batches(
                self.pairs.lengths,
                self.labels,
                self.questions,
                budget=settings.tokens_per_batch,
                negatives=settings.negatives,
                seed=settings.seed * 1_000 + epoch,
            )
            for epoch in range(settings.epochs)
        ]

    def arrays(self) -> list[np.ndarray]:
        """Returns the arrays that identify the examples, to tell one training from another."""
        return [self.pairs.columns["input_ids"], self.pairs.lengths, self.labels, self.questions]

    def collate(self, items: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
        """Returns a batch's padded inputs, its ``labels``, and its ``number`` in the whole training.

        Args:
            items: The batch's number and a row, for each of its rows.
        """
        rows = [row for _, row in items]
        return {**self.pairs.batch(rows), "labels": torch.from_numpy(self.labels[rows]), "number": items[0][0]}


class _Items:
    """The Trainer's data set: an item is its own address."""

    def __init__(self, n_rows: int):
        self.n_rows = n_rows

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, item):
        return item


def train_model(
    module: torch.nn.Module,
    examples: LabelledPairs,
    settings: Training,
    *,
    epochs: list[list[list[int]]],
    device: torch.device,
    compute_loss: Callable,
    measure_dev: Callable[[str], dict[str, float]] | None,
    dev: str | None,
    verbose: bool,
    parts_rest: bool = False,
) -> list[dict]:
    """Trains a module in place and returns the course of the training.

    With development questions the module ends up with the weights that had the best MAP there, otherwise with the
    last. The random state of the caller is as it was before.

    Args:
        module: What is trained.
        examples: What it is trained on.
        settings: How.
        epochs: The batches of every epoch, as ``examples.batches(settings)`` gives them.
        device: Where.
        compute_loss: Of the module, a batch's inputs, its labels, and its number in the training: the mean loss.
        measure_dev: Of a precision: measures of the module as it is, on the development questions. That which the
            settings watch chooses the best weights. None without such questions.
        dev: A hash of these questions, by which a kept training is known again.
        verbose: Whether to show a progress bar.
        parts_rest: Whether there are steps in which some weights have no part, which several processes must know.
    """
    precision = settings.precision
    if precision == "auto":
        precision = "bf16" if has_bf16(device) else "fp32"
    n_batches = sum(map(len, epochs))
    arguments = _arguments(settings, precision, device, n_batches, parts_rest)
    # Alike in all processes: each asks for all batches and takes its share.
    n_processes = arguments.world_size
    warn_if_alone(n_processes)
    with _folder(settings) as folder, _own_random_state(), silenced(), fast_attention(module, device):
        arguments.output_dir = str(folder)
        if settings.folder:
            agreed(lambda: _claim(folder, settings, module, examples, dev))
        course = _Course(settings, epochs, n_processes, measure_dev is not None, verbose)
        trainer = _Trainer(
            model=module,
            args=arguments,
            train_dataset=_Items(len(examples.labels)),
            data_collator=examples.collate,
            callbacks=[course],
        )
        batches = (batch for epoch in epochs for batch in epoch)
        numbered = [[(number, row) for row in batch] for number, batch in enumerate(batches)]
        trainer.batches = dealt(numbered, n_processes)
        trainer.loss_of, trainer.settings, trainer.folder = compute_loss, settings, folder
        # Otherwise the Trainer takes the loss for one that is already divided by the accumulated steps.
        trainer.model_accepts_loss_kwargs = False
        trainer.measure = measure_dev and (lambda: measure_dev(precision))
        trainer.remove_callback(transformers.PrinterCallback)
        try:
            trainer.train(resume_from_checkpoint=agreed(lambda: _last_checkpoint(folder)))
        finally:
            course.close()
            # Otherwise the next training would take the module for one that runs in bf16 already. accelerate's own
            # unwrapping leaves this mark, and takes the decorators of transformers away.
            for name in ("forward", "_original_forward", "_is_accelerate_prepared"):
                vars(module).pop(name, None)
        if measure_dev is not None:
            if arguments.process_index == 0:
                module.load_state_dict(load_file(folder / BEST, device=str(module.device)))
            share(module)
        module.eval()
        module.zero_grad(set_to_none=True)
        history = [entry for entry in trainer.state.log_history if "loss" in entry or settings.watched in entry]
        return [{"update": entry.pop("step"), **entry, "epoch": entry["epoch"] * settings.epochs} for entry in history]


class _Trainer(transformers.Trainer):
    """One Trainer epoch is the whole training; ours are boundaries within it."""

    def get_train_dataloader(self):
        loader = torch.utils.data.DataLoader(
            self.train_dataset, batch_sampler=self.batches, collate_fn=self.data_collator
        )
        return self.accelerator.prepare(loader)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels, number = inputs.pop("labels"), inputs.pop("number")
        loss = self.loss_of(model, inputs, labels, number)
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss.item()} at update {self.state.global_step + 1} with "
                f"learning_rate={self.settings.learning_rate}; use a smaller one, or precision='fp32'"
            )
        return loss

    def create_optimizer(self, model=None):
        if self.optimizer is None:
            inner = {id(parameter) for parameter in getattr(self.model, self.model.base_model_prefix).parameters()}
            rates = self.settings.learning_rate, self.settings.rate_of_heads
            groups = [
                {"params": [p for p in self.model.parameters() if (id(p) in inner) == encoder], "lr": rate}
                for encoder, rate in zip((True, False), rates, strict=True)
            ]
            self.optimizer = torch.optim.AdamW(groups, weight_decay=self.settings.weight_decay)
        return self.optimizer

    def evaluate(self, *args, **kwargs):
        metrics = agreed(self._measured)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _measured(self) -> dict[str, float]:
        """Returns the measures of the model as it is, and keeps its weights if they are the best so far."""
        metrics, watched = self.measure(), self.settings.watched
        if metrics[watched] > max((e[watched] for e in self.state.log_history if watched in e), default=-1.0):
            _save_weights(self.model, self.folder / BEST)
        return metrics


class _Course(transformers.TrainerCallback):
    """Says when to measure and when to stop, and shows how far the training is."""

    def __init__(
        self, settings: Training, epochs: list[list[list[int]]], n_processes: int, measures: bool, verbose: bool
    ):
        self.settings, self.verbose, self.bar, self.shown = settings, verbose, None, {}
        updates = -(-np.cumsum([len(batches) for batches in epochs]) // (settings.accumulate * n_processes))
        starts = np.concatenate([[0], updates[:-1]])
        per_epoch = settings.evaluations_per_epoch
        shares = np.arange(1, per_epoch + 1) / per_epoch
        points = {round(s + f * (e - s)) for s, e in zip(starts, updates, strict=True) for f in shares}
        self.measure_at = points if measures else set()

    def on_train_begin(self, args, state, control, **kwargs):
        self.bar = tqdm(
            total=state.max_steps,
            initial=state.global_step,
            desc="training",
            unit="step",
            disable=not (self.verbose and state.is_world_process_zero),
        )

    def on_step_end(self, args, state, control, **kwargs):
        self.bar.update(state.global_step - self.bar.n)
        control.should_evaluate = state.global_step in self.measure_at

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.shown |= {name: f"{logs[name]:.4f}" for name in ("loss", self.settings.watched) if name in logs}
        self.bar.set_postfix(self.shown)

    def on_evaluate(self, args, state, control, **kwargs):
        watched = self.settings.watched
        course = [entry[watched] for entry in state.log_history if watched in entry]
        control.should_training_stop = len(course) - 1 - int(np.argmax(course)) >= self.settings.patience

    def close(self):
        """Ends the bar, however the training ended."""
        if self.bar is not None:
            self.bar.close()


def _arguments(settings: Training, precision: str, device: torch.device, n_batches: int, parts_rest: bool):
    # How many processes there are is known to the arguments only.
    arguments = transformers.TrainingArguments(
        output_dir=tempfile.gettempdir(),
        num_train_epochs=1,
        gradient_accumulation_steps=settings.accumulate,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        bf16=precision == "bf16",
        use_cpu=device.type == "cpu",
        ddp_find_unused_parameters=parts_rest,
        seed=settings.seed,
        save_strategy="steps" if settings.folder else "no",
        save_steps=settings.save_every,
        save_total_limit=2,
        logging_steps=10,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        accelerator_config={"even_batches": False},
    )
    updates = -(-n_batches // (settings.accumulate * arguments.world_size))
    arguments.warmup_steps = round(settings.warmup if settings.warmup >= 1 else settings.warmup * updates)
    return arguments


@contextlib.contextmanager
def _folder(settings: Training):
    """Yields the folder for checkpoints, or one that is gone afterwards; an unwritable one is an error at once."""
    if settings.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(agreed(lambda: folder))
        return
    folder = Path(settings.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise PermissionError(f"cannot write checkpoints to {folder}: {error}; give another Training.folder") from error
    yield folder


def _claim(folder: Path, settings: Training, module: torch.nn.Module, examples: LabelledPairs, dev: str | None) -> None:
    """Notes in the folder what is trained there; another training there is an error, not a wrong continuation."""
    run, note = identity(settings, module, examples.arrays(), dev), folder / RUN
    if note.exists():
        refuse_another(folder, json.loads(note.read_text()), run, Training)
    else:
        _write(note, json.dumps(run, indent=1).encode())


def _last_checkpoint(folder: Path) -> str | None:
    """Returns the newest whole checkpoint; one that was being written when the process died is removed."""
    found = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    for path in found:
        # The Trainer writes this file last.
        state = path / "trainer_state.json"
        try:
            json.loads(state.read_text())
        except (OSError, ValueError):
            shutil.rmtree(path)
    found = [path for path in found if path.exists()]
    return str(found[-1]) if found else None


def _save_weights(module: torch.nn.Module, path: Path) -> None:
    save_file(weights_of(module), path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def _write(path: Path, content: bytes) -> None:
    path.with_suffix(".tmp").write_bytes(content)
    os.replace(path.with_suffix(".tmp"), path)


@contextlib.contextmanager
def _own_random_state():
    """Gives Python's, NumPy's and torch's global random states back as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
