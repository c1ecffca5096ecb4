"""The states of a wave's inputs between two heads."""

import numpy as np
import torch

from pyterrier_cascade.encoder.device import uploaded
from pyterrier_cascade.encoder.layers import Layout
from pyterrier_cascade.encoder.pairs import TokenPairs, runs


class WaveStates:
    """The states of a wave's tokens, end to end. Each input keeps its place when others are dropped.

    Nothing is moved when inputs are dropped: the next chunks read the rows of the survivors and write them back (CT-9).

    Args:
        pairs: All inputs.
        rows: The numbers of the inputs of the wave.
        width: The width of a state.
        dtype: The type of a state.
        device: The device of the states.
    """

    def __init__(self, pairs: TokenPairs, rows: np.ndarray, width: int, dtype: torch.dtype, device: torch.device):
        # The states are in order of length, so that the first chunks are slices of them.
        rows = rows[np.argsort(pairs.lengths[rows], kind="stable")]
        lengths = pairs.lengths[rows]
        self._lengths, self._starts = pairs.lengths, np.zeros(len(pairs.lengths), dtype=np.int64)
        self._starts[rows] = np.cumsum(lengths) - lengths
        self._states = torch.empty(int(lengths.sum()), width, dtype=dtype, device=device)

    def read(self, rows: np.ndarray, layout: Layout) -> torch.Tensor:
        """Returns the states of some inputs.

        Args:
            rows: The numbers of the inputs.
            layout: The layout of these inputs, in which the states are returned.
        """
        places = layout.spread(self._places(rows))
        return self._states.index_select(0, places.flatten()).unflatten(0, places.shape)

    def write(self, rows: np.ndarray, layout: Layout, states: torch.Tensor) -> None:
        """Stores the states of some inputs.

        Args:
            rows: The numbers of the inputs.
            layout: The layout of these inputs.
            states: Their states, in this layout.
        """
        starts, lengths = self._starts[rows], self._lengths[rows]
        if (starts[1:] == starts[:-1] + lengths[:-1]).all():
            self._states[starts[0] : starts[0] + lengths.sum()] = layout.pack(states)
        else:
            self._states.index_copy_(0, self._places(rows), layout.pack(states))

    def take(self, rows: np.ndarray, others: "WaveStates", theirs: np.ndarray) -> None:
        """Copies the states of some inputs of other states.

        Args:
            rows: The numbers of the inputs here.
            others: The other states, of inputs of the same lengths.
            theirs: The numbers of the same inputs there.
        """
        self._states.index_copy_(0, self._places(rows), others._states.index_select(0, others._places(theirs)))

    def copied(self, pairs: TokenPairs, rows: np.ndarray) -> "WaveStates":
        """Returns a copy of the states of some inputs.

        Args:
            pairs: These inputs alone.
            rows: Their numbers here.
        """
        every, states = np.arange(len(rows)), self._states
        copy = WaveStates(pairs, every, states.shape[1], states.dtype, states.device)
        copy.take(every, self, rows)
        return copy

    def size(self, rows: np.ndarray) -> np.ndarray:
        """Returns the bytes of the states of some inputs, ``(n,)``."""
        return self._lengths[rows] * self._states.shape[1] * self._states.element_size()

    def _places(self, rows: np.ndarray) -> torch.Tensor:
        starts, lengths, device = self._starts[rows], self._lengths[rows], self._states.device
        if device.type == "cpu":
            return torch.from_numpy(runs(starts, lengths))
        # A GPU gets two numbers of each input and counts the places of the tokens itself.
        n_tokens = int(lengths.sum())
        shifts, counts = uploaded(np.stack([starts - np.cumsum(lengths) + lengths, lengths]), device)
        return torch.repeat_interleave(shifts, counts, output_size=n_tokens) + torch.arange(n_tokens, device=device)
