"""Texts and pairs in memory, and how they are divided."""

import numpy as np

from pyterrier_cascade.hierarchical.pairs import NumberedTexts, QuestionAnswerPairs, consecutive, filled_up
from tests.hierarchical import reference


def test_texts_and_pairs_are_taken():
    assert consecutive(np.array([5, 0, 7]), np.array([2, 0, 3])).tolist() == [5, 6, 7, 8, 9]
    texts = NumberedTexts(np.array([1, 2, 3, 4, 5, 6]), np.array([1, 3, 2]))
    taken = texts.take(np.array([2, 0]))
    assert taken.ids.tolist() == [5, 6, 1] and taken.lengths.tolist() == [2, 1]
    assert filled_up(np.array([4, 0]), np.array([2, 3])).tolist() == [[4, 5, 5], [0, 1, 2]]
    pairs = QuestionAnswerPairs(texts, texts, np.array([2, 0, 2])).take(np.array([2, 0]))
    assert pairs.questions.ids.tolist() == [5, 6] and pairs.question.tolist() == [0, 0]
    assert pairs.answers.ids.tolist() == [5, 6, 1] and pairs.lengths.tolist() == [4, 3]


def test_blocks_hold_questions_of_one_length_and_few_pads():
    rng = np.random.default_rng(0)
    questions = NumberedTexts(np.zeros(12, int), np.array([3, 4, 5]))
    lengths = rng.integers(1, 60, 400)
    pairs = QuestionAnswerPairs(
        questions, NumberedTexts(np.zeros(lengths.sum(), int), lengths), rng.integers(0, 3, 400)
    )
    blocks = list(pairs.blocks())
    assert sorted(np.concatenate(blocks).tolist()) == list(range(400))
    assert len(blocks) < 80
    for rows in blocks:
        assert len(set(pairs.question_lengths[rows])) == 1
        assert lengths[rows].tolist() == sorted(lengths[rows])
        assert lengths[rows].sum() >= 0.875 * len(rows) * lengths[rows].max()


def test_portions_are_whole_rounds_of_equal_work():
    rng = np.random.default_rng(0)
    pairs = reference.pairs([5, 6], rng.integers(1, 40, 300), rng.integers(0, 2, 300))
    found = pairs.portions(1_000, 2)
    assert sorted(np.concatenate(found).tolist()) == list(range(300))
    words = [int(pairs.lengths[rows].sum()) for rows in found]
    assert len(found) == 8 and max(words) - min(words) < 100
