"""Training with Hugging Face's Trainer, on batches that we lay out, with early stopping by our measure."""

import contextlib
import dataclasses
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers.training_args import ParallelMode

from pyterrier_cascade.encoder.device import training_precision
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.pretrained import silenced
from pyterrier_cascade.training.attention import fast_attention
from pyterrier_cascade.training.batches import epoch_batches
from pyterrier_cascade.training.divergence import best_kept, check_finite, divergence
from pyterrier_cascade.training.folder import BEST, claim, last_checkpoint, save_best, training_folder
from pyterrier_cascade.training.identity import identity
from pyterrier_cascade.training.processes import (
    copy_from_first_process,
    evenly_divisible,
    from_first_process,
    warn_if_alone,
)
from pyterrier_cascade.training.settings import Training


@dataclass(frozen=True)
class LabelledPairs:
    """Tokenised pairs with their labels and questions.

    Attributes:
        pairs: The tokenised pairs.
        labels: 0 or 1, ``(n,)``.
        questions: The question of each pair as a number, ``(n,)``.
    """

    pairs: TokenPairs
    labels: np.ndarray
    questions: np.ndarray

    def batches(self, settings: Training) -> list[list[list[int]]]:
        """Returns the batches of every epoch: for each epoch a list of batches, and for each batch its row numbers."""
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
        """Returns the arrays that :func:`~pyterrier_cascade.training.identity.identity` hashes."""
        return [self.pairs.columns["input_ids"], self.pairs.lengths, self.labels, self.questions]

    def collate(self, rows: list[int]) -> dict[str, torch.Tensor]:
        """Returns the padded inputs of some rows, and their ``labels``."""
        return {**self.pairs.batch(rows), "labels": torch.from_numpy(self.labels[rows])}


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
    unused_parameters: bool = False,
) -> list[dict]:
    """Trains a module in place and returns the history of the training, a dictionary for each report.

    With development questions the module ends with the weights that had the best MAP on them, also where it diverges
    after that measurement; otherwise it ends with the last weights, and a training that diverges is an error. The
    caller's global random states stay as they are: Python's, NumPy's, and torch's of the CPU and of the device.

    One process trains on the given device, and on no other GPU that it sees. Processes that torchrun started share the
    GPUs among themselves.

    Args:
        module: The module to train.
        examples: The training examples.
        settings: The settings of the training.
        epochs: The batches of every epoch, as ``examples.batches(settings)`` returns them.
        device: The device to train on.
        compute_loss: A function of the module, a batch's inputs, its labels, and its number in the training, which
            returns the mean loss.
        measure_dev: A function of the precision, which measures the present module on the development questions and
            returns the measures by name. The measure ``settings.watched`` chooses the best weights. None without
            development questions.
        dev: A hash of the development data, part of the training's identity; None without development questions.
        verbose: Whether to show a progress bar.
        unused_parameters: Whether some batches leave a part of the weights without gradient. Training in several
            processes needs to know this.
    """
    # Which precision "auto" means depends on the machine, on which the training may go on.
    settings = dataclasses.replace(settings, precision=training_precision(settings.precision, device))
    n_batches = sum(map(len, epochs))
    with contextlib.ExitStack() as during:
        device = during.enter_context(_current(device))
        # The arguments join the processes of a training, which then agree on a folder.
        arguments = _arguments(settings, device, n_batches, unused_parameters)
        n_processes = arguments.world_size
        warn_if_alone(n_processes)
        folder = during.enter_context(training_folder(settings))
        for context in (_own_random_state(device), silenced(), fast_attention(module, device)):
            during.enter_context(context)
        arguments.output_dir = str(folder)
        if settings.folder:
            from_first_process(lambda: claim(folder, identity(settings, module, examples.arrays(), dev)))
        course = _Course(settings, epochs, n_processes, measure_dev is not None, verbose)
        # Every process knows all batches, and accelerate gives each process its share of them.
        batches = evenly_divisible(list(enumerate(chain.from_iterable(epochs))), n_processes)
        trainer = _Trainer(
            model=module,
            args=arguments,
            train_dataset=batches,
            data_collator=lambda items: {"number": items[0][0], **examples.collate(items[0][1])},
            callbacks=[course],
        )
        trainer.loss_of, trainer.settings, trainer.folder = compute_loss, settings, folder
        # If this is true, the Trainer assumes that the loss is already divided by the number of accumulated batches.
        trainer.model_accepts_loss_kwargs = False
        # Weights that are trained in fp16 are kept in fp32, and states may exceed the range of fp16 without autocast.
        measured_in = "fp32" if settings.precision == "fp16" else settings.precision
        trainer.measure = measure_dev and (lambda: measure_dev(measured_in))
        trainer.remove_callback(transformers.PrinterCallback)
        try:
            # One of several processes must not go on alone: the others wait for it in the update.
            with best_kept(lambda: n_processes == 1 and trainer.was_measured()):
                trainer.train(resume_from_checkpoint=from_first_process(lambda: last_checkpoint(folder)))
                check_finite(module, trainer.state.global_step, settings.learning_rate)
        finally:
            course.close()
            _remove_marks(module)
        if measure_dev is not None:
            if arguments.process_index == 0:
                module.load_state_dict(load_file(folder / BEST, device=str(module.device)))
            copy_from_first_process(module)
        module.eval()
        module.zero_grad(set_to_none=True)
        return _history(trainer.state.log_history, settings)


def _remove_marks(module: torch.nn.Module) -> None:
    """Removes the attributes that accelerate leaves on a module that it has prepared.

    With them the next training would believe that the module already runs in bf16. accelerate's own unwrapping keeps
    the last of them, and removes transformers' decorators.
    """
    for name in ("forward", "_original_forward", "_is_accelerate_prepared"):
        vars(module).pop(name, None)


def _history(log: list[dict], settings: Training) -> list[dict]:
    """Returns the entries of the Trainer's log with a loss or the watched measure, with the epochs of the settings."""
    entries = [entry for entry in log if "loss" in entry or settings.watched in entry]
    return [{"update": entry.pop("step"), **entry, "epoch": entry["epoch"] * settings.epochs} for entry in entries]


class _Trainer(transformers.Trainer):
    """A Trainer whose single epoch is the whole training; the epochs of the settings are boundaries within it."""

    def get_train_dataloader(self):
        pinned = self.args.dataloader_pin_memory
        return self.accelerator.prepare(
            DataLoader(self.train_dataset, collate_fn=self.data_collator, pin_memory=pinned)
        )

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels, number = inputs.pop("labels"), inputs.pop("number")
        loss = self.loss_of(model, inputs, labels, number)
        if not torch.isfinite(loss):
            update = self.state.global_step + 1
            raise divergence(f"the loss is {loss.item()}", update, self.settings.learning_rate)
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
        metrics = from_first_process(self._measured)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _measured(self) -> dict[str, float]:
        """Returns the measures of the present module, and saves its weights if they are the best so far."""
        check_finite(self.model, self.state.global_step, self.settings.learning_rate)
        metrics, watched = self.measure(), self.settings.watched
        if metrics[watched] > max(_course_of(self.state, watched), default=-1.0):
            save_best(self.model, self.folder)
        return metrics

    def was_measured(self) -> bool:
        """Returns whether there is a measurement on the development questions."""
        return bool(_course_of(self.state, self.settings.watched))


def _course_of(state: transformers.TrainerState, name: str) -> list[float]:
    """Returns the values of a measure in their order."""
    return [entry[name] for entry in state.log_history if name in entry]


class _Course(transformers.TrainerCallback):
    """Decides when to measure and when to stop, and shows the progress of the training."""

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
        course = _course_of(state, self.settings.watched)
        control.should_training_stop = len(course) - 1 - int(np.argmax(course)) >= self.settings.patience

    def close(self):
        """Closes the progress bar; called after errors too."""
        if self.bar is not None:
            self.bar.close()


class _Arguments(transformers.TrainingArguments):
    """The arguments of a training on one device.

    A process that is alone would otherwise take the first GPU, and divide each batch among all GPUs that it sees.
    """

    chosen = None

    @property
    def device(self):
        return self.chosen or super().device

    @property
    def n_gpu(self):
        return min(1, super().n_gpu)


def _arguments(settings: Training, device: torch.device, n_batches: int, unused_parameters: bool) -> _Arguments:
    # The arguments are made before the number of updates is known, because they alone know the number of processes.
    on_gpu = device.type == "cuda"
    arguments = _Arguments(
        output_dir=tempfile.gettempdir(),
        num_train_epochs=1,
        gradient_accumulation_steps=settings.accumulate,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        bf16=settings.precision == "bf16",
        fp16=settings.precision == "fp16",
        use_cpu=device.type == "cpu",
        ddp_find_unused_parameters=unused_parameters,
        seed=settings.seed,
        save_strategy="steps" if settings.folder else "no",
        save_steps=settings.save_every,
        save_total_limit=2,
        logging_steps=10,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=on_gpu,
        accelerator_config={"even_batches": False, "non_blocking": on_gpu},
    )
    if device.type != "cpu" and arguments.parallel_mode != ParallelMode.DISTRIBUTED:
        # accelerate reads the device of its own state, and made the first GPU the current one.
        arguments.chosen = arguments.distributed_state.device = device
        if on_gpu:
            torch.cuda.set_device(device)
    updates = -(-n_batches // (settings.accumulate * arguments.world_size))
    arguments.warmup_steps = round(settings.warmup if settings.warmup >= 1 else settings.warmup * updates)
    return arguments


@contextlib.contextmanager
def _current(device: torch.device) -> Iterator[torch.device]:
    """Yields the device with its number, and lets it be torch's current GPU in a ``with`` block.

    In processes that torchrun started accelerate does this.
    """
    if device.type != "cuda" or "LOCAL_RANK" in os.environ:
        yield device
        return
    with torch.cuda.device(device):
        yield torch.device("cuda", torch.cuda.current_device())


@contextlib.contextmanager
def _own_random_state(device: torch.device) -> Iterator[None]:
    """Restores the random states of Python, NumPy, and torch on the CPU and a device at the end of a ``with`` block."""
    python, numpy = random.getstate(), np.random.get_state()
    # The states of other GPUs are left alone: reading them would open these GPUs. MPS has no state that can be read so.
    devices = [] if device.type in ("cpu", "mps") else [device]
    with torch.random.fork_rng(devices, device_type=device.type):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
