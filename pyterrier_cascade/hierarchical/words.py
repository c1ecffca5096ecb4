"""From a text to the numbers of its words."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from pyterrier_cascade.hierarchical.packing import Texts

VOCABULARY = "vocab.txt"

TOKEN = re.compile(
    r"<\w+>"  # <num>, as in TREC-QA
    r"|\d+(?:[.,:]\d+)*"  # 1,802.5
    r"|(?:[^\W\d_]\.){2,}"  # u.s.
    r"|\w+?(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b"  # do n't, it 's: as in the Penn Treebank and in GloVe
    r"|\w+"
    r"|[^\w\s]"
)
"""A word, a number, a contraction or one mark of punctuation, whichever comes first; spaces only part them."""


def tokens(text: str, lowercase: bool = True) -> list[str]:
    """Returns the words of a text as they are looked up: ``"Don't go!"`` becomes ``do n't go !``.

    Args:
        text: Any text; typographic apostrophes count as plain ones.
        lowercase: Whether capitals are made small first, as suits vectors that were made so.
    """
    text = text.replace("\u2019", "'")
    return TOKEN.findall(text.lower() if lowercase else text)


class WordTokenizer:
    """Numbers words by their place in a vocabulary, from 1; 0 stands for any word that is not in it (HR-8).

    An empty text is one unknown word, so that there is something to attend to.

    Args:
        words: The vocabulary.
        lowercase: See :func:`tokens`.
    """

    def __init__(self, words: Sequence[str] = (), lowercase: bool = True):
        self.words, self.lowercase = list(words), lowercase
        self.numbers = {word: number for number, word in enumerate(self.words, start=1)}

    def __call__(self, texts: Iterable[str]) -> Texts:
        """Returns the texts as numbers, end to end."""
        found, lengths = [], []
        for text in texts:
            numbers = [self.numbers.get(token, 0) for token in tokens(text, self.lowercase)] or [0]
            found += numbers
            lengths.append(len(numbers))
        return Texts(np.array(found, dtype=np.int64), np.array(lengths, dtype=np.int64))

    def save_pretrained(self, path: str) -> None:
        """Writes the vocabulary, a word a line."""
        text = "".join(f"{word}\n" for word in self.words)
        (Path(path) / VOCABULARY).write_bytes(text.encode("utf-8", "surrogatepass"))

    @classmethod
    def from_pretrained(cls, path: str, lowercase: bool = True) -> "WordTokenizer":
        """Returns the tokenizer of a folder."""
        text = (Path(path) / VOCABULARY).read_bytes().decode("utf-8", "surrogatepass")
        return cls(text.split("\n")[:-1], lowercase)
