"""Pairs of a question and an answer in memory: texts end to end without padding, and how they are divided."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pyterrier_cascade.encoder.chunks import chunks
from pyterrier_cascade.forks import cached_property

PADDING = 0.125
"""The largest share of padding in a block of answers. Only the attention reads it, which is 1% of the work."""
BLOCK_WORDS = 4_096
"""The most words in a block of answers."""


def consecutive(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns ``starts[i], ..., starts[i] + lengths[i] - 1`` for each i, end to end, ``(sum of lengths,)``."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


def filled_up(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the places of the words of each text, filled up to the longest by its last one, ``(n_texts, longest)``.

    Args:
        starts: The place where each text begins.
        lengths: The number of words in each text.
    """
    return starts[:, None] + np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)


@dataclass(frozen=True)
class NumberedTexts:
    """Texts as numbers of words, end to end.

    Attributes:
        ids: The words of all texts. *Shape:* (n_words,)
        lengths: The number of words in each text, at least one. *Shape:* (n_texts,)
    """

    ids: np.ndarray
    lengths: np.ndarray

    @cached_property
    def starts(self) -> np.ndarray:
        """The place in ``ids`` where each text begins, ``(n_texts,)``."""
        return np.cumsum(self.lengths) - self.lengths

    def take(self, rows: np.ndarray) -> "NumberedTexts":
        """Returns some of the texts, in the order of ``rows``."""
        return NumberedTexts(self.ids[consecutive(self.starts[rows], self.lengths[rows])], self.lengths[rows])


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

    def blocks(self) -> Iterator[np.ndarray]:
        """Yields the numbers of all pairs in blocks whose attention is computed together.

        A block has questions of one length and answers of similar length, the shortest first. Blocks with the shortest
        questions come first.
        """
        order = np.argsort(self.question_lengths, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(self.question_lengths[order])) + 1):
            for chunk in chunks(self.answers.lengths[rows], BLOCK_WORDS, padding=PADDING):
                yield rows[chunk]

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
