"""The tokenizer, as it is stated."""

import numpy as np
import pytest

from pyterrier_cascade.hierarchical.packing import Pairs, Texts, spread
from pyterrier_cascade.hierarchical.words import WordTokenizer, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who founded the town?", "who founded the town ?"),
        ("Don't! It's Ann's, they'd won't", "do n't ! it 's ann 's , they 'd wo n't"),
        ("Don\u2019t", "do n't"),
        ("$1,802.50 at 10:45, U.S. 3.", "$ 1,802.50 at 10:45 , u.s. 3 ."),
        ("well-known (1802)", "well - known ( 1802 )"),
        ("born in <num> , n't", "born in <num> , n't"),
        ("na\u00efve \u6771\u4eac \U0001f600", "na\u00efve \u6771\u4eac \U0001f600"),
        ("a\u00a0b\tc\nd\u2028e", "a b c d e"),
        (" \n", ""),
        ("rock'n'roll isn't", "rock ' n ' roll is n't"),
    ],
)
def test_tokens(text, expected):
    assert tokens(text) == expected.split(" " if expected else None)


def test_case_may_matter():
    assert tokens("Who Isn't U.S.", lowercase=False) == ["Who", "Is", "n't", "U.S."]


def test_words_are_numbers_from_1():
    found = WordTokenizer(["the", "town"])(["The town of the", "", "?!"])
    assert found.ids.tolist() == [1, 2, 0, 1, 0, 0, 0] and found.lengths.tolist() == [4, 1, 2]


def test_a_vocabulary_is_kept(tmp_path):
    words = ["the", "\u2028", "a\u0085b", "\r", "\u6771"]
    WordTokenizer(words).save_pretrained(str(tmp_path))
    assert WordTokenizer.from_pretrained(str(tmp_path)).words == words
    assert (tmp_path / "vocab.txt").read_bytes() == "".join(f"{word}\n" for word in words).encode()


def test_texts_and_pairs_are_taken():
    assert spread(np.array([5, 0, 7]), np.array([2, 0, 3])).tolist() == [5, 6, 7, 8, 9]
    texts = Texts(np.array([1, 2, 3, 4, 5, 6]), np.array([1, 3, 2]))
    taken = texts.take(np.array([2, 0]))
    assert taken.ids.tolist() == [5, 6, 1] and taken.lengths.tolist() == [2, 1]
    pairs = Pairs(texts, texts, np.array([2, 0, 2])).take(np.array([2, 0]))
    assert pairs.questions.ids.tolist() == [5, 6] and pairs.question.tolist() == [0, 0]
    assert pairs.answers.ids.tolist() == [5, 6, 1] and pairs.lengths.tolist() == [4, 3]


def test_blocks_hold_questions_of_one_length_and_few_pads():
    rng = np.random.default_rng(0)
    questions = Texts(np.zeros(12, int), np.array([3, 4, 5]))
    lengths = rng.integers(1, 60, 400)
    pairs = Pairs(questions, Texts(np.zeros(lengths.sum(), int), lengths), rng.integers(0, 3, 400))
    blocks = list(pairs.blocks())
    assert sorted(np.concatenate([block.rows for block in blocks]).tolist()) == list(range(400))
    assert len(blocks) < 80
    for block in blocks:
        assert set(pairs.question_lengths[block.rows]) == {block.question_length}
        assert block.answer_lengths.tolist() == sorted(lengths[block.rows])
        assert block.answer_lengths.sum() >= 0.875 * len(block.rows) * block.answer_lengths[-1]
