"""The tokenizer and its vocabulary (HR-8)."""

import pytest

from pyterrier_cascade.hierarchical.words import WordTokenizer, numbered, tokens


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
    found = WordTokenizer({"the": 1, "town": 2})(["The town of the", "", "?!"])
    assert found.ids.tolist() == [1, 2, 0, 1, 0, 0, 0] and found.lengths.tolist() == [4, 1, 2]


def test_a_vocabulary_is_saved_and_loaded(tmp_path):
    words = ["the", "\u2028", "a\u0085b", "\r", "\u6771"]
    WordTokenizer(dict.fromkeys(words, 1)).save_pretrained(str(tmp_path))
    stored = (tmp_path / "vocab.txt").read_bytes()
    assert stored == "".join(f"{word}\n" for word in words).encode()
    assert list(numbered(stored).items()) == list(zip(words, range(1, 6), strict=True))
