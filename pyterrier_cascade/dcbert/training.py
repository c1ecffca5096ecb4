"""Training DC-BERT on whole questions: first joint layers on states encoded once, then everything (DC-7 to DC-9)."""

import dataclasses
import warnings
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from pyterrier_cascade.dcbert.settings import DCBertTraining
from pyterrier_cascade.encoder.pairs import TokenPairs, runs
from pyterrier_cascade.training.batches import sampled

FROZEN = 4
"""How many times the tokens of a batch there are where encoders are frozen."""

LAST = 0.25
"""The share of a training, at its end, whose loss is compared with that of one who has learnt nothing."""

LEARNT = 0.98
"""A loss above this share of that is at the base rate."""


@dataclass(frozen=True)
class Examples:
    """Labelled pairs of questions and documents, each text once.

    Attributes:
        questions: The questions' tokens.
        documents: The documents' tokens, each a single input.
        question_of: The question of each pair, ``(n_pairs,)``.
        document_of: Its document, ``(n_pairs,)``.
        labels: 0 or 1, ``(n_pairs,)``.
        teacher: Another ranker's scores of the pairs, ``(n_pairs,)``, or None.
        states: The states of both sides' tokens, encoded before, ``(n_tokens, width)`` each; None encodes in training.
    """

    questions: TokenPairs
    documents: TokenPairs
    question_of: np.ndarray
    document_of: np.ndarray
    labels: np.ndarray
    teacher: np.ndarray | None = None
    states: tuple[torch.Tensor, torch.Tensor] | None = None

    def arrays(self) -> list[np.ndarray]:
        """Returns what the examples are, to tell one training from another."""
        pairs = [self.question_of, self.document_of, self.labels]
        if self.teacher is not None:
            pairs.append(self.teacher)
        return [self.questions.columns["input_ids"], self.documents.columns["input_ids"], *pairs]

    def epoch(self, settings: DCBertTraining, seed: int) -> list[list[int]]:
        """Returns batches of pairs, in random order, each of whole questions with some of their candidates.

        Args:
            settings: How many negatives, how many tokens.
            seed: Another one for every epoch.
        """
        budget = settings.tokens_per_batch * (1 if self.states is None else FROZEN)
        rng = np.random.default_rng(seed)
        rows = rng.permutation(len(self.labels))
        if settings.negatives is not None:
            rows = rows[sampled(self.labels[rows], self.question_of[rows], settings.negatives)]
        order = np.argsort(self.question_of[rows], kind="stable")
        groups = np.split(rows[order], np.flatnonzero(np.diff(self.question_of[rows][order])) + 1)
        batches, tokens = [[]], 0
        for number in rng.permutation(len(groups)):
            group = groups[number].tolist()
            size = int(self.documents.lengths[self.document_of[group]].sum())
            if batches[-1] and tokens + size > budget:
                batches.append([])
                tokens = 0
            batches[-1] += group
            tokens += size
        return batches

    def collate(self, items: list[tuple[int, int]]) -> dict:
        """Returns a batch's inputs, its ``labels``, and its ``number`` in the whole training.

        Args:
            items: The batch's number and a pair, for each of its pairs.
        """
        rows = np.array([row for _, row in items])
        question, question_of = np.unique(self.question_of[rows], return_inverse=True)
        document, document_of = np.unique(self.document_of[rows], return_inverse=True)
        batch = {
            "question_of": torch.from_numpy(question_of),
            "document_of": torch.from_numpy(document_of),
            "questions": self._inputs(0, self.questions, question),
            "documents": self._inputs(1, self.documents, document),
            "labels": torch.from_numpy(self.labels[rows]),
            "number": items[0][0],
        }
        if self.teacher is not None:
            batch["teacher"] = torch.from_numpy(self.teacher[rows]).float()
        return batch

    def _inputs(self, side: int, texts: TokenPairs, which: np.ndarray) -> dict[str, torch.Tensor]:
        if self.states is None:
            return texts.batch(which)
        lengths = texts.lengths[which]
        tokens = torch.from_numpy(runs(texts.starts[which], lengths))
        return {"states": self.states[side][tokens].float(), "lengths": torch.from_numpy(lengths)}


def with_random(examples: Examples, negatives: int, seed: int) -> Examples:
    """Returns the positives with random negatives: documents of the other questions, as many for each question.

    Args:
        examples: The question's own candidates.
        negatives: How many a question.
        seed: Of the drawing.
    """
    rng = np.random.default_rng(seed)
    positive = np.flatnonzero(examples.labels == 1)
    asked = np.unique(examples.question_of[positive])
    own = set(zip(examples.question_of[positive].tolist(), examples.document_of[positive].tolist(), strict=True))
    drawn = rng.integers(len(examples.documents.lengths), size=(len(asked), negatives))
    pairs = [(q, d) for q, row in zip(asked.tolist(), drawn.tolist(), strict=True) for d in row if (q, d) not in own]
    question, document = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return dataclasses.replace(
        examples,
        question_of=np.concatenate([examples.question_of[positive], question]),
        document_of=np.concatenate([examples.document_of[positive], document]),
        labels=np.concatenate([examples.labels[positive], np.zeros(len(question), dtype=np.int64)]),
    )


class Loss:
    """The loss of a batch, and whether it ever leaves the base rate.

    Args:
        settings: Which loss.
        n_batches: The batches of the training.
    """

    def __init__(self, settings: DCBertTraining, n_batches: int):
        self.settings, self.first_watched = settings, int((1 - LAST) * n_batches)
        self.losses, self.bases = [], []

    def __call__(self, module, inputs: dict, labels: torch.Tensor, number: int) -> torch.Tensor:
        """Returns the mean loss over questions, or over pairs where it is taken point by point."""
        teacher = inputs.pop("teacher", None)
        groups = inputs["question_of"]
        scores = module(**inputs).float()
        loss = {"listwise": listwise, "pointwise": pointwise}[self.settings.loss](scores, labels, groups)
        if number >= self.first_watched:
            self.losses.append(loss.item())
            self.bases.append(base_rate(self.settings.loss, labels, groups))
        if teacher is not None:
            weight = self.settings.teacher_weight
            loss = (1 - weight) * loss + weight * divergence(scores, teacher, groups)
        return loss

    def say(self, phase: str) -> None:
        """Warns where the last part of the training was no better than knowing nothing of the texts."""
        loss, base = np.mean(self.losses or [0.0]), np.mean(self.bases or [0.0])
        if loss > LEARNT * base:
            warnings.warn(
                f"{phase} did not learn: its loss is {loss:.4f} at the end, and {base:.4f} for one who knows the share "
                "of positives alone; try head='compare', random_first=0.4, more questions, or another learning rate",
                stacklevel=4,
            )


def pointwise(scores: torch.Tensor, labels: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Returns the mean binary cross-entropy (DC-7: the sum has the same minimum)."""
    return F.binary_cross_entropy_with_logits(scores, labels.float())


def listwise(scores: torch.Tensor, labels: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Returns the mean cross-entropy over each question's candidates; questions without a positive say nothing.

    Args:
        scores: ``(n,)``.
        labels: 0 or 1, ``(n,)``; several positives share the probability.
        groups: The question of each, ``(n,)``, ascending.
    """
    found = [
        -(one.log_softmax(0)[label == 1]).mean() for one, label in _lists(groups, scores, labels) if (label == 1).any()
    ]
    return torch.stack(found).mean() if found else scores.sum() * 0


def divergence(scores: torch.Tensor, teacher: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Returns the mean KL divergence from the teacher's distribution over each question's candidates."""
    found = [
        F.kl_div(one.log_softmax(0), given.log_softmax(0), reduction="sum", log_target=True)
        for one, given in _lists(groups, scores, teacher)
    ]
    return torch.stack(found).mean()


def base_rate(loss: str, labels: torch.Tensor, groups: torch.Tensor) -> float:
    """Returns the loss of scores that are all alike, at the best that they can be."""
    if loss == "pointwise":
        share = labels.float().mean()
        return float(F.binary_cross_entropy(share, share))
    sizes = [len(label) for (label,) in _lists(groups, labels) if (label == 1).any()]
    return float(np.mean(np.log(sizes))) if sizes else 0.0


def _lists(groups: torch.Tensor, *values: torch.Tensor):
    sizes = torch.unique_consecutive(groups, return_counts=True)[1].tolist()
    return zip(*(value.split(sizes) for value in values), strict=True)


def phases(examples: Examples, settings: DCBertTraining, frozen: bool) -> tuple[Examples, list[list[list[int]]]]:
    """Returns the examples of a phase and the batches of each of its epochs.

    Args:
        examples: The labelled candidates.
        settings: How many epochs, and which share of the first phase has random negatives.
        frozen: Whether it is the phase with frozen encoders.
    """
    n_epochs = settings.frozen_epochs if frozen else settings.epochs
    is_first = frozen or not settings.frozen_epochs
    seeds = [settings.seed * 1_000 + 500 * frozen + epoch for epoch in range(n_epochs)]
    epochs = [examples.epoch(settings, seed) for seed in seeds]
    if not is_first or not settings.random_first:
        return examples, epochs
    easy = with_random(examples, settings.negatives or DCBertTraining.negatives, settings.seed)
    n_own = len(examples.labels)
    both = {
        name: np.concatenate([getattr(examples, name), getattr(easy, name)])
        for name in ("question_of", "document_of", "labels")
    }
    joined = dataclasses.replace(examples, **both)
    drawn = [[[n_own + row for row in batch] for batch in easy.epoch(settings, seed)] for seed in seeds]
    left = round(settings.random_first * sum(map(len, epochs)))
    for number, epoch in enumerate(epochs):
        n = min(left, len(epoch))
        epochs[number] = drawn[number][:n] + epoch[n:]
        left -= n
    return joined, epochs
