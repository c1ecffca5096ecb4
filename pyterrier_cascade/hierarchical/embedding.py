"""A vocabulary and its vectors, some of which are tuned (HR-8)."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class WordVectors(nn.Module):
    """Vectors by number; 0 is any word outside the vocabulary and has the zero vector (HR-8).

    Words that were seen in training come first: only theirs are tuned, so that the optimiser need not pass over a large
    vocabulary at every step. The vocabulary is part of the state, for without it the vectors mean nothing.

    Args:
        width: The numbers of a vector.
    """

    def __init__(self, width: int):
        super().__init__()
        self.words: list[str] = []
        self.tuned = nn.Parameter(torch.zeros(1, width))
        self.register_buffer("rest", torch.zeros(0, width))

    def add(self, words: Sequence[str], vectors: np.ndarray, n_tuned: int) -> None:
        """Appends words to the vocabulary.

        Args:
            words: New words.
            vectors: ``(n, width)``.
            n_tuned: How many of them, from the first on, belong to the tuned ones.
        """
        vectors = torch.from_numpy(vectors)
        if n_tuned and len(self.rest):
            raise ValueError("tuned words come before all others; add them first")
        self.words += words
        self.tuned = nn.Parameter(torch.cat([self.tuned.detach(), vectors[:n_tuned]]))
        self.rest = torch.cat([self.rest, vectors[n_tuned:]])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns ``(n, width)`` for ``(n,)``."""
        n_tuned = len(self.tuned)
        rare = ids >= n_tuned
        found = F.embedding(ids.masked_fill(rare, 0), self.tuned, padding_idx=0)
        if not rare.any():
            return found
        return found.index_put((rare.nonzero()[:, 0],), self.rest[ids[rare] - n_tuned])

    def get_extra_state(self) -> torch.Tensor:
        """Returns the vocabulary as bytes, which travel with the weights."""
        text = "\n".join(self.words).encode("utf-8", "surrogatepass")
        return torch.from_numpy(np.frombuffer(text, dtype=np.uint8).copy())

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Takes the vocabulary that :meth:`get_extra_state` returned."""
        text = bytes(state.numpy()).decode("utf-8", "surrogatepass")
        self.words = text.split("\n") if text else []

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        # The size of a vocabulary is known only from its state.
        width = self.tuned.shape[1]
        self.tuned = nn.Parameter(torch.zeros(len(state_dict[prefix + "tuned"]), width))
        self.rest = torch.zeros(len(state_dict[prefix + "rest"]), width)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
