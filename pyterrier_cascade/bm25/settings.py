"""What decides the scores of an index besides its documents."""

import unicodedata
from dataclasses import asdict, dataclass
from functools import cache

import bm25s
import numpy as np

METHODS = ("lucene", "robertson", "atire", "bm25l", "bm25+")


@dataclass(frozen=True)
class Settings:
    """The formula and the words of an index; kept in its metadata.

    The defaults of ``k1`` and ``b`` are Terrier's. Words are runs of two or more letters or digits with their marks, in
    lower case; letters that Unicode writes in two ways are the same.

    Args:
        k1: how fast repeated words saturate.
        b: how much long documents are held back, 0 to 1.
        method: the variant: 'lucene', 'robertson', 'atire', 'bm25l' or 'bm25+'.
        delta: the lower bound of 'bm25l' and 'bm25+'; the others ignore it.
        stopwords: words to leave out: a language that bm25s knows, the words themselves, or None.
        stemmer: a language of PyStemmer (``pip install PyStemmer``), or None.
    """

    k1: float = 1.2
    b: float = 0.75
    method: str = "lucene"
    delta: float = 0.5
    stopwords: str | tuple[str, ...] | None = "english"
    stemmer: str | None = None

    def __post_init__(self):
        """Checks the values."""
        for name in ("k1", "b", "delta"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if not 0 <= self.k1 < float("inf") or not 0 <= self.b <= 1 or not 0 <= self.delta < float("inf"):
            raise ValueError(f"k1={self.k1}, b={self.b}, delta={self.delta}: k1 and delta are at least 0, b is 0 to 1")
        if self.method not in METHODS:
            raise ValueError(f"method {self.method!r} is unknown; use one of {', '.join(METHODS)}")
        if not (self.stopwords is None or isinstance(self.stopwords, str)):
            words = tuple(sorted({word.lower() for word in self.stopwords}))
            object.__setattr__(self, "stopwords", words)
        self.tokenize([])  # bm25s and PyStemmer name the languages that they know

    def tokenize(self, texts, verbose=False):
        """The words of each text, as bm25s numbers them: ``ids`` (a list per text) and ``vocab``."""
        pattern = r"\b\w\w+\b"
        if not all(map(str.isascii, texts)):
            texts, pattern = [unicodedata.normalize("NFC", text) for text in texts], _word()
        return bm25s.tokenize(
            texts,
            token_pattern=pattern,
            stopwords=self.stopwords,
            stemmer=_stemmer(self.stemmer),
            show_progress=verbose,
            leave=verbose,
        )

    def as_dict(self):
        """The settings as JSON keeps them; ``Settings(**settings.as_dict())`` equals ``settings``."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@cache
def _word():
    """The pattern of a word. Vowels of Hindi, Thai and other scripts are marks, which ``\\w`` leaves out."""
    is_mark = [unicodedata.category(chr(code)) in ("Mn", "Mc") for code in range(0x1F000)]
    # As ranges, which are three times as fast as a list.
    edges = np.flatnonzero(np.diff(is_mark, prepend=False, append=False)).reshape(-1, 2)
    marks = "".join(f"{chr(start)}-{chr(end - 1)}" for start, end in edges)
    return rf"\b\w[\w{marks}]+"


def _stemmer(language):
    if language is None:
        return None
    try:
        import Stemmer
    except ImportError as error:
        raise ImportError(f"stemmer={language!r} needs PyStemmer: pip install PyStemmer") from error
    return Stemmer.Stemmer(language)
