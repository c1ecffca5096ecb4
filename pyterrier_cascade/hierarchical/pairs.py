"""Pairs of a question and an answer in memory: texts end to end without padding, and how they are divided."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyterrier_cascade.encoder.chunks import chunks

PADDING = 0.125
"""The largest share of padding in a block of answers. Only the attention reads it, which is 1% of the work."""
BLOCK_WORDS = 4_096
"""The most words in a block of answers."""


def consecutive(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns ``starts[i], ..., starts[i] + lengths[i] - 1`` for each i, end to end, ``(sum of lengths,)``."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


@dataclass(frozen=True)
class NumberedTexts:
    """Texts as numbers of words, end to end.

    Attributes:
        ids: The words of all texts. *Shape:* (n_words,)
        lengths: The number of words in each text, at least one. *Shape:* (n_texts,)
    """

    ids: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> np.ndarray:
        """The place in ``ids`` where each text begins, ``(n_texts,)``."""
        return np.cumsum(self.lengths) - self.lengths

    def take(self, rows: np.ndarray) -> "NumberedTexts":
        """Returns some of the texts, in the order of ``rows``."""
        return NumberedTexts(self.ids[consecutive(self.starts[rows], self.lengths[rows])], self.lengths[rows])


@dataclass(frozen=True)
class AttentionBlock:
    """Pairs whose attention is computed together: questions of one length and answers of similar length.

    Attributes:
        rows: The numbers of the pairs, the shortest answer first. *Shape:* (n,)
        question_length: The number of words in each of the questions.
        answer_lengths: The number of words in each answer. *Shape:* (n,)
    """

    rows: np.ndarray
    question_length: int
    answer_lengths: np.ndarray


@dataclass(frozen=True)
class QuestionAnswerPairs:
    """Answers, each with its question.

    Attributes:
        questions: Each question once.
        answers: The answer of each pair.
        question: The number of each pair's question. *Shape:* (n_pairs,)
    """

    questions: NumberedTexts
    answers: NumberedTexts
    question: np.ndarray

    def __len__(self) -> int:
        return len(self.question)

    @cached_property
    def question_lengths(self) -> np.ndarray:
        """The number of words in each pair's question, ``(n_pairs,)``."""
        return self.questions.lengths[self.question]

    @cached_property
    def lengths(self) -> np.ndarray:
        """The number of words in each pair, ``(n_pairs,)``."""
        return self.question_lengths + self.answers.lengths

    def take(self, rows: np.ndarray) -> "QuestionAnswerPairs":
        """Returns some of the pairs, in the order of ``rows``, with the questions that they need."""
        used, question = np.unique(self.question[rows], return_inverse=True)
        return QuestionAnswerPairs(self.questions.take(used), self.answers.take(rows), question)

    def blocks(self) -> Iterator[AttentionBlock]:
        """Yields all pairs in blocks, the shortest questions first."""
        order = np.argsort(self.question_lengths, kind="stable")
        lengths = self.question_lengths[order]
        for rows in np.split(order, np.flatnonzero(np.diff(lengths)) + 1):
            for chunk in chunks(self.answers.lengths[rows], BLOCK_WORDS, padding=PADDING):
                question_length = int(self.question_lengths[rows[0]])
                yield AttentionBlock(rows[chunk], question_length, self.answers.lengths[rows[chunk]])

    def portions(self, budget: int, n_workers: int) -> list[np.ndarray]:
        """Returns the numbers of all pairs in portions of similar lengths and equal work, to be scored in parallel.

        The number of portions is a multiple of the number of workers, so that no worker waits for another.

        Args:
            budget: The number of words in a portion, at most; a longer pair stands alone.
            n_workers: How many portions are computed at the same time.
        """
        order = np.lexsort((self.answers.lengths, self.question_lengths))
        words = np.cumsum(self.lengths[order])
        n_portions = -(-int(words[-1]) // (budget * n_workers)) * n_workers
        ends = np.searchsorted(words, words[-1] * np.arange(1, n_portions) / n_portions)
        return [rows for rows in np.split(order, ends) if len(rows)]
