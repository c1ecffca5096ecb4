"""The tokenizer: from a text to the numbers of its words (HR-8)."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from pyterrier_cascade.hierarchical.pairs import NumberedTexts

VOCABULARY = "vocab.txt"

TOKEN = re.compile(
    r"<\w+>"  # <num>, as in TREC-QA
    r"|\d+(?:[.,:]\d+)*"  # 1,802.5
    r"|(?:[^\W\d_]\.){2,}"  # u.s.
    r"|\w+?(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b"  # do n't, it 's: as in the Penn Treebank and in GloVe
    r"|\w+"
    r"|[^\w\s]"
)
"""A token is a word, a number, a contraction or one punctuation mark; the first alternative that fits decides."""


def tokens(text: str, lowercase: bool = True) -> list[str]:
    """Returns the words of a text as the vocabulary spells them: ``"Don't go!"`` becomes ``do n't go !``.

    Args:
        text: Any text. A typographic apostrophe counts as a plain one.
        lowercase: Whether to make the text lower case first, which vectors of lower-case words need.
    """
    text = text.replace("\u2019", "'")
    return TOKEN.findall(text.lower() if lowercase else text)


def vocabulary_bytes(words: Iterable[str]) -> bytes:
    """Returns a vocabulary as it is stored, one word a line."""
    return "".join(f"{word}\n" for word in words).encode("utf-8", "surrogatepass")


def numbered(stored: bytes) -> dict[str, int]:
    """Returns the numbers of the words of a stored vocabulary, from 1."""
    words = stored.decode("utf-8", "surrogatepass").split("\n")[:-1]
    return {word: number for number, word in enumerate(words, start=1)}


class WordTokenizer:
    """Numbers words by their place in a vocabulary, from 1; 0 stands for every unknown word (HR-8).

    An empty text becomes one unknown word, so that the attention has a word to read.

    Args:
        numbers: The words with their numbers.
        lowercase: See :func:`tokens`.
    """

    def __init__(self, numbers: Mapping[str, int], lowercase: bool = True):
        self.numbers, self.lowercase = numbers, lowercase

    def __call__(self, texts: Iterable[str]) -> NumberedTexts:
        """Returns the texts as numbers of words."""
        found, lengths = [], []
        for text in texts:
            numbers = [self.numbers.get(token, 0) for token in tokens(text, self.lowercase)] or [0]
            found += numbers
            lengths.append(len(numbers))
        return NumberedTexts(np.array(found, dtype=np.int64), np.array(lengths, dtype=np.int64))

    def save_pretrained(self, path: str) -> None:
        """Writes the vocabulary into a folder, one word a line."""
        (Path(path) / VOCABULARY).write_bytes(vocabulary_bytes(self.numbers))
