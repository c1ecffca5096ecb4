"""Texts end to end without pads, and the pairs of a question and an answer over them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyterrier_cascade.encoder.chunks import chunks

PADDING = 0.125
"""The share of a block of answers that may be pads; only the attention sees them, a hundredth of the work."""
BLOCK = 4_096
"""Words of a block of answers, at most."""


def spread(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns ``starts[i], ..., starts[i] + lengths[i] - 1`` for each i, end to end, ``(sum of lengths,)``."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


@dataclass(frozen=True)
class Texts:
    """Texts as numbers of words, end to end.

    Attributes:
        ids: *Shape:* (n_words,)
        lengths: The words of each text, at least one. *Shape:* (n_texts,)
    """

    ids: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each text begins in ``ids``, ``(n_texts,)``."""
        return np.cumsum(self.lengths) - self.lengths

    def take(self, rows: np.ndarray) -> "Texts":
        """Returns some of the texts, in this order."""
        return Texts(self.ids[spread(self.starts[rows], self.lengths[rows])], self.lengths[rows])


@dataclass(frozen=True)
class Block:
    """Pairs whose attention is computed together: questions of one length, answers of similar length.

    Attributes:
        rows: The pairs, by growing length of the answer. *Shape:* (n,)
        question_length: The words of each of the questions.
        answer_lengths: The words of each answer. *Shape:* (n,)
    """

    rows: np.ndarray
    question_length: int
    answer_lengths: np.ndarray


@dataclass(frozen=True)
class Pairs:
    """Answers, each with its question.

    Attributes:
        questions: Each question once.
        answers: One for each pair.
        question: The question of each pair as a number. *Shape:* (n_pairs,)
    """

    questions: Texts
    answers: Texts
    question: np.ndarray

    def __len__(self) -> int:
        return len(self.question)

    @cached_property
    def question_lengths(self) -> np.ndarray:
        """The words of each pair's question, ``(n_pairs,)``."""
        return self.questions.lengths[self.question]

    @cached_property
    def lengths(self) -> np.ndarray:
        """The words of each pair, ``(n_pairs,)``."""
        return self.question_lengths + self.answers.lengths

    def take(self, rows: np.ndarray) -> "Pairs":
        """Returns some of the pairs, in this order, with the questions that they need."""
        used, question = np.unique(self.question[rows], return_inverse=True)
        return Pairs(self.questions.take(used), self.answers.take(rows), question)

    def blocks(self) -> Iterator[Block]:
        """Yields all pairs in blocks, by growing length of the question."""
        order = np.argsort(self.question_lengths, kind="stable")
        lengths = self.question_lengths[order]
        for rows in np.split(order, np.flatnonzero(np.diff(lengths)) + 1):
            for chunk in chunks(self.answers.lengths[rows], BLOCK, padding=PADDING):
                yield Block(rows[chunk], int(self.question_lengths[rows[0]]), self.answers.lengths[rows[chunk]])
