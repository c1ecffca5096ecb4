"""Training on whole questions (HR-11, HR-30).

A loop of its own and not Hugging Face's Trainer: a step of these models is a fraction of a second, and is fastest when
each core computes the gradients of a part of its questions, which the Trainer's step, one loss and one backward pass
for all, has no place for.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tqdm.auto import tqdm

from pyterrier_cascade.checkpoint import weights_of
from pyterrier_cascade.encoder.device import has_bf16
from pyterrier_cascade.encoder.workers import Pool, workers
from pyterrier_cascade.hierarchical.losses import joint_loss, question_losses
from pyterrier_cascade.hierarchical.model import CompareAggregate
from pyterrier_cascade.hierarchical.packing import Pairs
from pyterrier_cascade.hierarchical.scoring import PRECISIONS
from pyterrier_cascade.hierarchical.settings import HierarchicalTraining
from pyterrier_cascade.training.identity import identity, refuse_another

STATE = "hierarchical-training.safetensors"


@dataclass(frozen=True)
class Examples:
    """Pairs with their labels and the questions that they belong to.

    Attributes:
        pairs: Questions and answers.
        labels: 0 or 1. *Shape:* (n_pairs,)
        groups: The question of each pair as a number from 0; its pairs are trained on together. *Shape:* (n_pairs,)
    """

    pairs: Pairs
    labels: np.ndarray
    groups: np.ndarray

    def rows(self) -> list[np.ndarray]:
        """Returns the pairs of each question."""
        order = np.argsort(self.groups, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.groups))[:-1])

    def arrays(self) -> list[np.ndarray]:
        """Returns what the examples are, to tell one training from another."""
        texts = [values for one in (self.pairs.questions, self.pairs.answers) for values in (one.ids, one.lengths)]
        return [*texts, self.pairs.question, self.labels, self.groups]


def steps(n_questions: int, settings: HierarchicalTraining, epoch: int) -> list[np.ndarray]:
    """Returns the questions of each step of an epoch: all of them, in another order every time."""
    order = np.random.default_rng([settings.seed, epoch]).permutation(n_questions)
    return np.split(order, range(settings.questions_per_batch, n_questions, settings.questions_per_batch))


def parts(n_words: np.ndarray, budget: int) -> list[list[int]]:
    """Returns the questions of a step in parts of nearly equal work, an even number where there are enough.

    The parts depend on the questions alone, so that the same training has the same result on any number of cores.

    Args:
        n_words: The words of each question with all its candidates, ``(n,)``.
        budget: The words of a part, about; a question is never divided (HR-11).
    """
    n_parts = 2 * -(-int(n_words.sum()) // (2 * budget))
    found, loads = [[] for _ in range(n_parts)], np.zeros(n_parts)
    for question in np.argsort(-n_words, kind="stable").tolist():
        lightest = int(loads.argmin())
        found[lightest].append(question)
        loads[lightest] += n_words[question]
    return [part for part in found if part]


class Trainer:
    """Trains a backbone in place.

    Args:
        module: What is trained.
        examples: What it is trained on.
        settings: How.
    """

    def __init__(self, module: CompareAggregate, examples: Examples, settings: HierarchicalTraining):
        self.module, self.examples, self.settings = module, examples, settings
        self.rows = examples.rows()
        self.n_words = np.array([int(examples.pairs.lengths[rows].sum()) for rows in self.rows])
        self.levels = list(module.scheme.feeds)
        vectors = module.vectors.tuned
        from_scratch = module.config["vectors"] is None
        rate = settings.learning_rate if from_scratch else settings.embedding_rate
        self.rates = {p: settings.learning_rate for p in module.parameters() if p is not vectors}
        if rate is not None:
            self.rates[vectors] = rate
        self.parameters = list(self.rates)
        # One for each, so that all cores take part in an update.
        self.optimizers = [
            torch.optim.AdamW([parameter], rate, weight_decay=settings.weight_decay, fused=True)
            for parameter, rate in self.rates.items()
        ]
        self.n_steps = len(steps(len(self.rows), settings, 0))
        bf16 = settings.precision == "bf16" or (settings.precision == "auto" and has_bf16(torch.device("cpu")))
        self.dtype = PRECISIONS["bf16" if bf16 else "fp32"]
        self.step = 0

    def epoch(self, number: int, pool: Pool, bar: tqdm) -> dict[str, float]:
        """Trains on every question once and returns the mean losses over questions."""
        total = np.zeros(len(self.levels) + 1)
        for questions in steps(len(self.rows), self.settings, number):
            total += self.train_step(questions, pool)
            bar.update()
        means = (total / len(self.rows)).tolist()
        return {"loss": means[-1], **{f"loss_{level}": mean for level, mean in zip(self.levels, means, strict=False)}}

    def train_step(self, questions: np.ndarray, pool: Pool) -> np.ndarray:
        """Updates the weights by some questions; returns the sums of each level's losses and of the joint one."""
        divided = parts(self.n_words[questions], self.settings.tokens_per_batch)
        found = list(pool.map(lambda part: self.gradients(questions[part], len(questions)), divided))
        losses = sum(values for _, values in found)
        self.step += 1
        if not np.isfinite(losses).all():
            raise FloatingPointError(
                f"the loss is {losses[-1]} at update {self.step} with learning_rate={self.settings.learning_rate}; "
                "use a smaller one, or precision='fp32'"
            )
        for _ in pool.map(lambda number: self.update(number, [gradients[number] for gradients, _ in found]),
                          range(len(self.parameters))):  # fmt: skip
            pass
        return losses

    def update(self, number: int, gradients: list[torch.Tensor]) -> None:
        """Moves one parameter against the sum of its gradients; the rate rises during the warm-up and stays then."""
        parameter, optimizer, warmup = self.parameters[number], self.optimizers[number], self.settings.warmup
        parameter.grad = gradients[0]
        for gradient in gradients[1:]:
            parameter.grad += gradient
        rising = warmup if warmup >= 1 else warmup * self.n_steps * self.settings.epochs
        optimizer.param_groups[0]["lr"] = self.rates[parameter] * min(1.0, self.step / max(rising, 1))
        optimizer.step()

    def gradients(self, questions: np.ndarray, n_questions: int) -> tuple[list[torch.Tensor], np.ndarray]:
        """Returns the gradients of some questions' share in a step's mean loss (HR-18), and the sums of losses."""
        settings, scheme = self.settings, self.module.scheme
        rows = [self.rows[question] for question in questions]
        sizes = [len(one) for one in rows]
        outputs = self.module(self.examples.pairs.take(np.concatenate(rows)), self.dtype)
        split = {level: output.split(sizes) for level, output in outputs.items()}
        total, values = 0.0, np.zeros(len(self.levels) + 1)
        for number, one in enumerate(rows):
            labels = torch.from_numpy(self.examples.labels[one])
            losses = question_losses(
                {level: part[number] for level, part in split.items()}, scheme.objectives, labels, settings
            )
            joint = joint_loss(losses, scheme.objectives, settings)
            total = total + joint / n_questions
            values += [*(loss.item() for loss in losses.values()), joint.item()]
        return list(torch.autograd.grad(total, self.parameters, materialize_grads=True)), values


def train_model(
    module: CompareAggregate,
    examples: Examples,
    settings: HierarchicalTraining,
    *,
    measure_dev: Callable[[], float] | None,
    dev: str | None,
    verbose: bool,
) -> list[dict]:
    """Trains a backbone in place and returns the course of the training, a row for each epoch.

    With development questions it ends up with the weights that had the best MAP there, otherwise with the last.

    Args:
        module: What is trained.
        examples: What it is trained on.
        settings: How.
        measure_dev: Returns MAP on the development questions with the weights as they are; None without such.
        dev: A hash of these questions, by which a kept training is known again.
        verbose: Whether to show a progress bar.
    """
    trainer = Trainer(module, examples, settings)
    history, best = [], None
    folder = None if settings.folder is None else Folder(settings, module, examples, dev)
    if folder is not None:
        history, best = folder.resume(trainer)
    total = settings.epochs * trainer.n_steps
    with tqdm(total=total, initial=trainer.step, desc="training", unit="step", disable=not verbose) as bar:
        while len(history) < settings.epochs and not _exhausted(history, settings.patience):
            with workers() as pool:
                row = {"epoch": float(len(history) + 1), **trainer.epoch(len(history), pool, bar)}
            row = {"update": trainer.step, **row}
            if measure_dev is not None:
                row["dev_map"] = measure_dev()
                if row["dev_map"] > max((before["dev_map"] for before in history), default=-1.0):
                    best = {name: tensor.clone() for name, tensor in module.state_dict().items()}
            history.append(row)
            bar.set_postfix({name: f"{row[name]:.4f}" for name in ("loss", "dev_map") if name in row})
            if folder is not None:
                folder.keep(trainer, history, best)
    if best is not None:
        module.load_state_dict(best)
    module.zero_grad(set_to_none=True)
    return history


def _exhausted(history: list[dict], patience: int) -> bool:
    course = [row["dev_map"] for row in history if "dev_map" in row]
    return bool(course) and len(course) - 1 - int(np.argmax(course)) >= patience


class Folder:
    """Where a training is kept after every epoch, in one file, so that it goes on there after a kill.

    Args:
        settings: How is trained.
        module: What is trained, as it is before.
        examples: What it is trained on.
        dev: A hash of the development data; None without such.
    """

    def __init__(self, settings: HierarchicalTraining, module: CompareAggregate, examples: Examples, dev: str | None):
        self.path = Path(settings.folder) / STATE
        self.run = identity(settings, module, examples.arrays(), dev)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PermissionError(
                f"cannot write checkpoints to {settings.folder}: {error}; give another HierarchicalTraining.folder"
            ) from error

    def keep(self, trainer: Trainer, history: list[dict], best: dict | None) -> None:
        """Writes everything that the next epoch depends on."""
        state = {f"weights {name}": tensor for name, tensor in weights_of(trainer.module).items()}
        state |= {f"best {name}": tensor for name, tensor in (best or {}).items()}
        for number, parameter in enumerate(trainer.parameters):
            for name, tensor in trainer.optimizers[number].state[parameter].items():
                state[f"adam {number} {name}"] = tensor
        note = {"run": json.dumps(self.run), "history": json.dumps(history)}
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, self.path.with_suffix(".tmp"), note)
        os.replace(self.path.with_suffix(".tmp"), self.path)

    def resume(self, trainer: Trainer) -> tuple[list[dict], dict | None]:
        """Puts the trainer where the kept training stood, and returns its course and best weights."""
        if not self.path.exists():
            return [], None
        from safetensors import safe_open

        with safe_open(self.path, "pt") as file:
            note = file.metadata()
        refuse_another(self.path.parent, json.loads(note["run"]), self.run, HierarchicalTraining)
        state, history = load_file(self.path), json.loads(note["history"])
        with torch.no_grad():
            for name, tensor in trainer.module.state_dict(keep_vars=True).items():
                if isinstance(tensor, torch.nn.Parameter):
                    tensor.copy_(state[f"weights {name}"])
        for number, parameter in enumerate(trainer.parameters):
            names = ("step", "exp_avg", "exp_avg_sq")
            trainer.optimizers[number].state[parameter] = {name: state[f"adam {number} {name}"] for name in names}
        trainer.step = history[-1]["update"]
        best = {name.removeprefix("best "): tensor for name, tensor in state.items() if name.startswith("best ")}
        return history, best or None
