"""The settings of a BM25 index: the formula of the scores, and the cutting of texts into words."""

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any

import bm25s
import numpy as np

from pyterrier_cascade.checks import check_choices, check_names
from pyterrier_cascade.optional import require

METHODS = ("lucene", "robertson", "atire", "bm25l", "bm25+")


@dataclass(frozen=True)
class BM25Settings:
    """The formula and the words of an index, which are kept in its metadata.

    The defaults of ``k1`` and ``b`` are Terrier's. A word is a run of two or more letters or digits with their marks,
    in lower case. Letters that Unicode can write in two ways are treated as the same.

    Args:
        k1: The saturation of repeated words: the larger ``k1``, the more each repetition adds.
        b: The penalty for long documents, from 0 for none to 1.
        method: The variant of the formula: ``"lucene"``, ``"robertson"``, ``"atire"``, ``"bm25l"`` or ``"bm25+"``.
        delta: The lower bound in ``"bm25l"`` and ``"bm25+"``; the other variants ignore it.
        stopwords: The words to leave out: a language that bm25s knows, the words themselves, or None for no such words.
        stemmer: A language of PyStemmer (extra ``stemmer``), or None for no stemming.
    """

    k1: float = 1.2
    b: float = 0.75
    method: str = "lucene"
    delta: float = 0.5
    stopwords: str | tuple[str, ...] | None = "english"
    stemmer: str | None = None

    def __post_init__(self):
        for name in ("k1", "b", "delta"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if not 0 <= self.k1 < float("inf") or not 0 <= self.b <= 1 or not 0 <= self.delta < float("inf"):
            raise ValueError(f"k1={self.k1}, b={self.b}, delta={self.delta}: k1 and delta are at least 0, b is 0 to 1")
        check_choices(method=(self.method, METHODS))
        if not (self.stopwords is None or isinstance(self.stopwords, str)):
            words = tuple(sorted({word.lower() for word in self.stopwords}))
            object.__setattr__(self, "stopwords", words)
        # For an unknown language, bm25s and PyStemmer raise an error that lists the languages that they know.
        self.tokenize([])

    @classmethod
    def of(cls, **settings: Any) -> "BM25Settings":
        """Returns the settings with some given ones; a misspelt name is a TypeError with the nearest name."""
        check_names(settings, [field.name for field in fields(cls)], "BM25")
        return cls(**settings)

    def tokenize(self, texts: Sequence[str], verbose: bool = False) -> Any:
        """Returns the words of each text, numbered by bm25s: ``ids`` (a list for each text) and ``vocab``."""
        pattern = r"\b\w\w+\b"
        if not all(map(str.isascii, texts)):
            texts, pattern = [unicodedata.normalize("NFC", text) for text in texts], _word_pattern()
        return bm25s.tokenize(
            texts,
            token_pattern=pattern,
            stopwords=self.stopwords,
            stemmer=_stemmer(self.stemmer),
            show_progress=verbose,
            leave=verbose,
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the settings as JSON keeps them; ``BM25Settings(**settings.as_dict())`` equals ``settings``."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@cache
def _word_pattern() -> str:
    r"""Returns the pattern of a word with its marks, by which some scripts write vowels; ``\w`` matches no marks."""
    is_mark = [unicodedata.category(chr(code)) in ("Mn", "Mc") for code in range(0x1F000)]
    # Written as ranges, the pattern is three times as fast as a list of all marks.
    edges = np.flatnonzero(np.diff(is_mark, prepend=False, append=False)).reshape(-1, 2)
    marks = "".join(f"{chr(start)}-{chr(end - 1)}" for start, end in edges)
    return rf"\b\w[\w{marks}]+"


def _stemmer(language: str | None):
    if language is None:
        return None
    return require("stemmer", "Stemmer", purpose=f"stemmer={language!r}").Stemmer(language)
