"""The training examples of DC-BERT: questions with their labelled candidates, each text once."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch

from pyterrier_cascade.dcbert.settings import DCBertTraining
from pyterrier_cascade.encoder.pairs import TokenPairs, runs
from pyterrier_cascade.training.batches import sampled

FROZEN = 4
"""How many times more tokens a batch has while the encoders are frozen."""


@dataclass(frozen=True)
class QuestionLists:
    """Labelled pairs of questions and documents, each text once.

    Attributes:
        questions: The questions' tokens.
        documents: The documents' tokens, each a single input.
        question_of: The question of each pair, ``(n_pairs,)``.
        document_of: Its document, ``(n_pairs,)``.
        labels: 0 or 1, ``(n_pairs,)``.
        teacher: Another ranker's scores of the pairs, ``(n_pairs,)``, or None.
        states: The states of both sides' tokens, ``(n_tokens, width)`` each, where the encoders are frozen and the
            texts were encoded before; None where training encodes them.
    """

    questions: TokenPairs
    documents: TokenPairs
    question_of: np.ndarray
    document_of: np.ndarray
    labels: np.ndarray
    teacher: np.ndarray | None = None
    states: tuple[torch.Tensor, torch.Tensor] | None = None

    def arrays(self) -> list[np.ndarray]:
        """Returns the content of the examples, by which one training is told from another."""
        teacher = [] if self.teacher is None else [self.teacher]
        texts = [texts.columns["input_ids"] for texts in (self.questions, self.documents)]
        return [*texts, self.question_of, self.document_of, self.labels, *teacher]

    def epoch(self, settings: DCBertTraining, seed: int, first: int = 0) -> list[list[int]]:
        """Returns batches of pairs, in random order, each of whole questions with some of their candidates.

        Args:
            settings: How many negatives, how many tokens.
            seed: Another one for every epoch.
            first: The first pair that takes part; all later ones do too.
        """
        budget = settings.tokens_per_batch * (1 if self.states is None else FROZEN)
        rng = np.random.default_rng(seed)
        rows = first + rng.permutation(len(self.labels) - first)
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

    def collate(self, rows: list[int]) -> dict:
        """Returns the inputs of some pairs, and their ``labels``."""
        question, question_of = np.unique(self.question_of[rows], return_inverse=True)
        document, document_of = np.unique(self.document_of[rows], return_inverse=True)
        batch = {
            "question_of": torch.from_numpy(question_of),
            "document_of": torch.from_numpy(document_of),
            "questions": self._inputs(0, self.questions, question),
            "documents": self._inputs(1, self.documents, document),
            "labels": torch.from_numpy(self.labels[rows]),
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

    def with_random(self, negatives: int, seed: int) -> "QuestionLists":
        """Returns these pairs, then the positives again with random negatives: documents of other questions.

        Args:
            negatives: The number for each question.
            seed: Decides which are drawn.
        """
        rng = np.random.default_rng(seed)
        positive = np.flatnonzero(self.labels == 1)
        asked = np.unique(self.question_of[positive])
        own = set(zip(self.question_of[positive].tolist(), self.document_of[positive].tolist(), strict=True))
        drawn = rng.integers(len(self.documents.lengths), size=(len(asked), negatives))
        pairs = [
            (q, d) for q, row in zip(asked.tolist(), drawn.tolist(), strict=True) for d in row if (q, d) not in own
        ]
        question, document = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return dataclasses.replace(
            self,
            question_of=np.concatenate([self.question_of, self.question_of[positive], question]),
            document_of=np.concatenate([self.document_of, self.document_of[positive], document]),
            labels=np.concatenate([self.labels, self.labels[positive], np.zeros(len(question), np.int64)]),
        )


def phases(
    examples: QuestionLists, settings: DCBertTraining, frozen: bool
) -> tuple[QuestionLists, list[list[list[int]]]]:
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
    both = examples.with_random(settings.negatives or DCBertTraining.negatives, settings.seed)
    drawn = [both.epoch(settings, seed, len(examples.labels)) for seed in seeds]
    left = round(settings.random_first * sum(map(len, epochs)))
    for number, epoch in enumerate(epochs):
        n = min(left, len(epoch))
        epochs[number] = drawn[number][:n] + epoch[n:]
        left -= n
    return both, epochs
