"""Inputs of an encoder as token ids, end to end and without pads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pyterrier_cascade.forks import cached_property


@dataclass(frozen=True)
class TokenPairs:
    """Tokenised pairs, end to end and without pads. A long document may be several inputs, one for each passage.

    Attributes:
        columns: The tokens of all inputs by the name of the model's argument: ``input_ids``, and ``token_type_ids`` if
            the model takes them, each ``(n_tokens,)``.
        lengths: The number of tokens of each input, ``(n_inputs,)``.
        owner: The number of the pair that each input belongs to, ``(n_inputs,)``, ascending.
        pad: The value of pads in each column.
    """

    columns: dict[str, np.ndarray]
    lengths: np.ndarray
    owner: np.ndarray
    pad: dict[str, int]

    @cached_property
    def starts(self) -> np.ndarray:
        """The number of each input's first token, ``(n_inputs,)``."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def first_inputs(self) -> np.ndarray:
        """The number of each pair's first input, ``(n_pairs,)``."""
        return np.flatnonzero(np.diff(self.owner, prepend=-1))

    @cached_property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of inputs of each pair, and of their tokens, each ``(n_pairs,)``."""
        return np.diff(self.first_inputs, append=len(self.owner)), np.add.reduceat(self.lengths, self.first_inputs)

    def select(self, rows: np.ndarray) -> "TokenPairs":
        """Returns the inputs of some numbers, ``(n,)``, in their order."""
        tokens = runs(self.starts[rows], self.lengths[rows])
        columns = {name: values[tokens] for name, values in self.columns.items()}
        return TokenPairs(columns, self.lengths[rows], self.owner[rows], self.pad)

    def batch(self, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns some inputs padded, with their ``attention_mask``, each ``(len(rows), longest)``."""
        lengths = self.lengths[rows]
        real = np.arange(lengths.max()) < lengths[:, None]
        tokens = runs(self.starts[rows], lengths)
        tensors = {"attention_mask": torch.from_numpy(real.astype(np.int64))}
        for name, values in self.columns.items():
            filled = np.full(real.shape, self.pad[name], dtype=np.int64)
            filled[real] = values[tokens]
            tensors[name] = torch.from_numpy(filled)
        return tensors


def runs(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the whole numbers of each run, ``start, start + 1, ...``, end to end, ``(lengths.sum(),)``.

    Args:
        starts: The first number of each run, ``(n,)``.
        lengths: The length of each run, ``(n,)``.
    """
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())


def together(parts: Sequence[TokenPairs]) -> TokenPairs:
    """Returns the inputs of several parts in the order of their pairs.

    Args:
        parts: The parts; the inputs of a pair are all in one of them.
    """
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    lengths, owner = (np.concatenate([getattr(part, name) for part in parts]) for name in ("lengths", "owner"))
    return TokenPairs(columns, lengths, owner, parts[0].pad).select(np.argsort(owner, kind="stable"))
