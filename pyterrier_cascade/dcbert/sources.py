"""Where the states of documents come from: texts that were just encoded, or a cache."""

import functools
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from pyterrier_cascade.dcbert.cache import DocumentCache, States
from pyterrier_cascade.dcbert.quantise import quantise
from pyterrier_cascade.encoder.pairs import TokenPairs, runs


class Documents(Protocol):
    """Documents by number."""

    def begin(self, numbers: np.ndarray) -> Callable[[], tuple[States, np.ndarray]]:
        """Returns what gives the states of some documents, and how many entries each is, ``(n,)``.

        A long document may be several entries. What has to be fetched is on its way meanwhile.
        """


class TextDocuments:
    """Texts that were encoded.

    Args:
        states: Of all tokens end to end, ``(n_tokens, width)``.
        pairs: The tokenised texts; several inputs of one owner are its passages.
        scales: Of int8 states.
    """

    def __init__(self, states: torch.Tensor | np.ndarray, pairs: TokenPairs, scales: np.ndarray | None = None):
        self.states, self.pairs, self.scales = states, pairs, scales
        self._sizes = np.bincount(pairs.owner)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def begin(self, numbers: np.ndarray) -> Callable[[], tuple[States, np.ndarray]]:
        """Returns what gives the states of some texts, and how many entries each is ``(n,)``."""
        return functools.partial(self.read, numbers)

    def read(self, numbers: np.ndarray) -> tuple[States, np.ndarray]:
        """Returns the states of some texts, and how many entries each is ``(n,)``."""
        sizes = self._sizes[numbers]
        entries = runs(self._starts[numbers], sizes)
        lengths = self.pairs.lengths[entries]
        tokens = runs(self.pairs.starts[entries], lengths)
        scales = None if self.scales is None else self.scales[tokens]
        return States(self.states[tokens], lengths, scales), sizes

    def stored_as(self, dtype: str) -> "TextDocuments":
        """Returns them as a cache would hold them, so that they score as if they were in it."""
        states, scales = quantise(self.states.numpy(), dtype)
        return TextDocuments(states, self.pairs, scales)


class CachedDocuments:
    """A cache, and documents beside it that it lacks.

    Args:
        cache: The cache.
        more: What it lacks, stored as it would.
    """

    def __init__(self, cache: DocumentCache, more: TextDocuments | None):
        self.cache, self.more = cache, more

    def begin(self, numbers: np.ndarray) -> Callable[[], tuple[States, np.ndarray]]:
        """Returns what gives the states of some documents, and how many entries each is ``(n,)``.

        Args:
            numbers: From 0 on in the cache; -1 is the first beside it, -2 the second.
        """
        if (numbers >= 0).all():
            entries, sizes = self.cache.entries(numbers)
            cached = self.cache.begin(entries)
            return lambda: (cached(), sizes)
        each = [
            self.begin(numbers[[i]]) if number >= 0 else self.more.begin(-1 - numbers[[i]])
            for i, number in enumerate(numbers.tolist())
        ]
        return lambda: _joined([one() for one in each])


def _joined(found: list[tuple[States, np.ndarray]]) -> tuple[States, np.ndarray]:
    parts = [part for part, _ in found]
    scales = None if parts[0].scales is None else np.concatenate([part.scales for part in parts])
    states, lengths = (np.concatenate([getattr(part, name) for part in parts]) for name in ("states", "lengths"))
    return States(states, lengths, scales), np.concatenate([sizes for _, sizes in found])
