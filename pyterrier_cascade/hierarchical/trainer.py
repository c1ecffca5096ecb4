"""The training loop over whole questions (HR-11, HR-30).

This is a loop of its own and not Hugging Face's Trainer. A step of these models takes a fraction of a second and is
fastest when each core computes the gradients of a part of its questions. The Trainer's step, one loss and one backward
pass for all questions, has no place for that.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tqdm.auto import tqdm

from pyterrier_cascade.encoder.device import DTYPES, training_precision
from pyterrier_cascade.encoder.workers import workers
from pyterrier_cascade.frames import Blocks
from pyterrier_cascade.hierarchical.model import CompareAggregate
from pyterrier_cascade.hierarchical.pairs import QuestionAnswerPairs
from pyterrier_cascade.hierarchical.training import HierarchicalTraining, joint_loss, question_losses
from pyterrier_cascade.store.publish import publishing_file
from pyterrier_cascade.training.divergence import best_kept, check_finite, divergence
from pyterrier_cascade.training.folder import claim, writable_folder
from pyterrier_cascade.training.identity import identity

STATE = "hierarchical-training.safetensors"
COURSE = ("n_updates", "history")
"""The attributes of a trainer that say how far it is and are no tensors."""


@dataclass(frozen=True)
class LabelledQuestions:
    """The training data: pairs with their labels and the questions that they belong to.

    Attributes:
        pairs: Questions and answers.
        labels: 0 or 1. *Shape:* (n_pairs,)
        blocks: The question of each pair. All pairs of a question are trained on together, even if two questions have
            the same words.
    """

    pairs: QuestionAnswerPairs
    labels: np.ndarray
    blocks: Blocks

    def arrays(self) -> list[np.ndarray]:
        """Returns all content of the training data, by which one training is told from another."""
        texts = [values for one in (self.pairs.questions, self.pairs.answers) for values in (one.ids, one.lengths)]
        return [*texts, self.pairs.question, self.labels, self.blocks.codes]


def steps_of_epoch(n_questions: int, settings: HierarchicalTraining, epoch: int) -> list[np.ndarray]:
    """Returns the questions of each step of an epoch: all of them, in another order in every epoch."""
    order = np.random.default_rng([settings.seed, epoch]).permutation(n_questions)
    return np.split(order, range(settings.questions_per_batch, n_questions, settings.questions_per_batch))


def equal_parts(n_words: np.ndarray, budget: int) -> list[list[int]]:
    """Returns the questions of a step in parts of nearly equal work, an even number where there are enough questions.

    The parts depend on the questions alone, so that a training has the same result on any number of cores.

    Args:
        n_words: The number of words in each question with all its candidates, ``(n,)``.
        budget: About the number of words in a part; a question is never divided (HR-11).
    """
    n_parts = 2 * -(-int(n_words.sum()) // (2 * budget))
    found, loads = [[] for _ in range(n_parts)], np.zeros(n_parts)
    for question in np.argsort(-n_words, kind="stable").tolist():
        lightest = int(loads.argmin())
        found[lightest].append(question)
        loads[lightest] += n_words[question]
    return [part for part in found if part]


class QuestionTrainer:
    """Trains a backbone in place, step by step.

    Args:
        module: The backbone.
        questions: The training data.
        settings: The settings of the training.

    Attributes:
        n_updates: The number of updates so far.
        sums: The losses of the running epoch, added up over its questions: of each level, then the joint one.
        history: A row for each finished epoch.
        best: The parameters that had the best MAP on the development questions; None without such questions.
    """

    def __init__(self, module: CompareAggregate, questions: LabelledQuestions, settings: HierarchicalTraining):
        self.module, self.questions, self.settings = module, questions, settings
        self.rows = list(questions.blocks)
        self.n_words = np.array([questions.pairs.lengths[rows].sum() for rows in self.rows])
        self.levels = list(module.scheme.feeds)
        rates = dict.fromkeys(module.parameters(), settings.learning_rate)
        if module.config["vectors"] is not None:
            rates[module.vectors.tuned] = settings.embedding_rate
        self.rates = {parameter: rate for parameter, rate in rates.items() if rate is not None}
        # One optimiser for each parameter, so that all cores take part in an update.
        self.optimizers = {
            parameter: torch.optim.AdamW([parameter], weight_decay=settings.weight_decay, fused=True)
            for parameter in self.rates
        }
        self.n_steps = len(steps_of_epoch(len(self.rows), settings, 0))
        self.precision = training_precision(settings.precision, torch.device("cpu"))
        self.dtype = DTYPES[self.precision]
        self.n_updates, self.sums = 0, torch.zeros(len(self.levels) + 1, dtype=torch.float64)
        self.history: list[dict] = []
        self.best: list[torch.Tensor] | None = None

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or MAP on the development questions has not risen for too many of them."""
        course = [row["dev_map"] for row in self.history if "dev_map" in row]
        exhausted = bool(course) and len(course) - 1 - int(np.argmax(course)) >= self.settings.patience
        return exhausted or len(self.history) >= self.settings.epochs

    def steps_left(self) -> list[np.ndarray]:
        """Returns the questions of each step that the running epoch still has."""
        epoch, n_done = divmod(self.n_updates, self.n_steps)
        return steps_of_epoch(len(self.rows), self.settings, epoch)[n_done:]

    def train_step(self, questions: np.ndarray) -> None:
        """Updates the weights by some questions and adds up their losses."""
        parts = equal_parts(self.n_words[questions], self.settings.tokens_per_batch)
        with workers() as pool:
            found = list(pool.map(lambda part: self.gradients(questions[part], len(questions)), parts))
            losses = sum(values for _, values in found)
            self.n_updates += 1
            if not losses.isfinite().all():
                raise divergence(f"the loss is {losses[-1]}", self.n_updates, self.settings.learning_rate)
            of_parameters = zip(self.rates, *(gradients for gradients, _ in found), strict=True)
            list(pool.map(lambda one: self.update(*one), of_parameters))
        self.sums = self.sums + losses

    def update(self, parameter: torch.nn.Parameter, *gradients: torch.Tensor) -> None:
        """Moves a parameter against the sum of its gradients; the rate rises in the warm-up and then stays."""
        optimizer, warmup = self.optimizers[parameter], self.settings.warmup
        parameter.grad = reduce(torch.Tensor.add_, gradients)
        rising = warmup if warmup >= 1 else warmup * self.n_steps * self.settings.epochs
        optimizer.param_groups[0]["lr"] = self.rates[parameter] * min(1.0, self.n_updates / max(rising, 1))
        optimizer.step()

    def gradients(self, questions: np.ndarray, n_questions: int) -> tuple[Sequence[torch.Tensor], torch.Tensor]:
        """Returns the gradients of some questions' share in a step's mean loss (HR-18), and the sums of their losses.

        Args:
            questions: Some of the step's questions.
            n_questions: The number of all questions in the step.
        """
        settings, scheme = self.settings, self.module.scheme
        rows = [self.rows[question] for question in questions]
        sizes = [len(one) for one in rows]
        outputs = self.module(self.questions.pairs.take(np.concatenate(rows)), self.dtype)
        of_questions = zip(*(outputs[level].split(sizes) for level in self.levels), strict=True)
        total, values = 0.0, torch.zeros_like(self.sums)
        for one, parts in zip(rows, of_questions, strict=True):
            labels = torch.from_numpy(self.questions.labels[one])
            of_levels = dict(zip(self.levels, parts, strict=True))
            losses = question_losses(of_levels, scheme.objectives, labels, settings)
            joint = joint_loss(losses, scheme.objectives, settings)
            total = total + joint / n_questions
            values += torch.stack([*losses.values(), joint]).detach()
        return torch.autograd.grad(total, list(self.rates), materialize_grads=True), values

    def end_epoch(self, measure_dev: Callable[[], float] | None) -> dict:
        """Appends the epoch's mean losses and its MAP to the history, and returns that row.

        Args:
            measure_dev: See :func:`train_model`.
        """
        *of_levels, joint = (self.sums / len(self.rows)).tolist()
        row = {"update": self.n_updates, "epoch": float(len(self.history) + 1), "loss": joint}
        row |= {f"loss_{level}": mean for level, mean in zip(self.levels, of_levels, strict=True)}
        check_finite(self.module, self.n_updates, self.settings.learning_rate)
        if measure_dev is not None:
            row["dev_map"] = measure_dev()
            if row["dev_map"] > max((before["dev_map"] for before in self.history), default=-1.0):
                self.best = [parameter.detach().clone() for parameter in self.module.parameters()]
        self.history.append(row)
        self.sums = torch.zeros_like(self.sums)
        return row

    def set_parameters(self, values: Sequence[torch.Tensor]) -> None:
        """Gives the backbone's parameters these values."""
        with torch.no_grad():
            for parameter, value in zip(self.module.parameters(), values, strict=True):
                parameter.copy_(value)

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """Returns everything that the next update depends on: tensors by name, and the numbers beside them."""
        found = {"sums": self.sums}
        found |= {f"parameters.{number}": one.detach() for number, one in enumerate(self.module.parameters())}
        found |= {f"best.{number}": one for number, one in enumerate(self.best or ())}
        for number, (parameter, optimizer) in enumerate(self.optimizers.items()):
            found |= {f"adam.{number}.{name}": one for name, one in optimizer.state[parameter].items()}
        return found, {name: getattr(self, name) for name in COURSE}

    def restore(self, tensors: Mapping[str, torch.Tensor], course: Mapping) -> None:
        """Puts the trainer where it stood when :meth:`state` returned this state."""
        vars(self).update({name: course[name] for name in COURSE})
        n_parameters = len(list(self.module.parameters()))
        self.sums = tensors["sums"]
        self.set_parameters([tensors[f"parameters.{number}"] for number in range(n_parameters)])
        self.best = [tensors[f"best.{number}"] for number in range(n_parameters)] if "best.0" in tensors else None
        for number, (parameter, optimizer) in enumerate(self.optimizers.items()):
            begin = f"adam.{number}."
            state = {name.removeprefix(begin): one for name, one in tensors.items() if name.startswith(begin)}
            optimizer.state[parameter].update(state)


def train_model(
    module: CompareAggregate,
    questions: LabelledQuestions,
    settings: HierarchicalTraining,
    *,
    measure_dev: Callable[[], float] | None,
    dev: str | None,
    verbose: bool,
) -> list[dict]:
    """Trains a backbone in place and returns the course of the training, a row for each epoch.

    With development questions the backbone ends up with the weights that had the best MAP there, also where it diverges
    after that measurement; otherwise with the last ones, and a training that diverges is an error.

    Args:
        module: The backbone.
        questions: The training data.
        settings: The settings of the training.
        measure_dev: Returns MAP on the development questions with the present weights; None without such questions.
        dev: A hash of these questions, by which a kept training is recognised.
        verbose: Whether to show a progress bar.
    """
    trainer = QuestionTrainer(module, questions, settings)
    kept = None if settings.folder is None else KeptTraining(trainer, dev)
    total = settings.epochs * trainer.n_steps
    bar = tqdm(total=total, initial=trainer.n_updates, desc="training", unit="step", disable=not verbose)
    with bar, best_kept(lambda: trainer.best is not None):
        while not trainer.finished:
            for step in trainer.steps_left():
                trainer.train_step(step)
                bar.update()
                if trainer.n_updates % trainer.n_steps == 0:
                    row = trainer.end_epoch(measure_dev)
                    bar.set_postfix({name: f"{row[name]:.4f}" for name in ("loss", "dev_map") if name in row})
                if kept is not None and (trainer.n_updates % settings.save_every == 0 or trainer.finished):
                    kept.write()
    if trainer.best is not None:
        trainer.set_parameters(trainer.best)
    module.zero_grad(set_to_none=True)
    return trainer.history


class KeptTraining:
    """The file that keeps a training, so that a training that was killed goes on from there.

    Args:
        trainer: The trainer, before its first step. It is put where the kept training stood.
        dev: A hash of the development data; None without such data.
    """

    def __init__(self, trainer: QuestionTrainer, dev: str | None):
        folder = writable_folder(trainer.settings)
        # On another machine "auto" may mean another precision.
        settings = replace(trainer.settings, precision=trainer.precision)
        claim(folder, identity(settings, trainer.module, trainer.questions.arrays(), dev), HierarchicalTraining)
        self.trainer, self.path = trainer, folder / STATE
        if self.path.exists():
            with safe_open(self.path, "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                trainer.restore(tensors, json.loads(file.metadata()["course"]))

    def write(self) -> None:
        """Writes the state of the training. A kill leaves either the old file or the new one."""
        tensors, course = self.trainer.state()
        with publishing_file(self.path) as unfinished:
            save_file(tensors, unfinished, {"course": json.dumps(course)})
