"""The partial encodings of candidates between two heads."""

import numpy as np
import torch

from pyterrier_cascade.encoder.layout import Packed, Padded
from pyterrier_cascade.encoder.pairs import TokenPairs, runs


class WaveStates:
    """The states of a wave's tokens, end to end; each input keeps its place while others leave.

    So nothing is moved when candidates are dropped: the next chunks read the survivors' rows, and write them back.

    Args:
        pairs: All inputs.
        rows: Those of the wave.
        width: The width of a state.
        dtype: Its type.
        device: Where the states are.
    """

    def __init__(self, pairs: TokenPairs, rows: np.ndarray, width: int, dtype: torch.dtype, device: torch.device):
        # In order of length, so that the first chunks are slices.
        rows = rows[np.argsort(pairs.lengths[rows], kind="stable")]
        lengths = pairs.lengths[rows]
        self._lengths, self._starts = pairs.lengths, np.zeros(len(pairs.lengths), dtype=np.int64)
        self._starts[rows] = np.cumsum(lengths) - lengths
        self._states = torch.empty(int(lengths.sum()), width, dtype=dtype, device=device)

    def read(self, rows: np.ndarray, layout: Packed | Padded) -> torch.Tensor:
        """Returns the states of some inputs in a layout of theirs."""
        places = layout.spread(self._places(rows))
        return self._states.index_select(0, places.flatten()).unflatten(0, places.shape)

    def write(self, rows: np.ndarray, layout: Packed | Padded, states: torch.Tensor) -> None:
        """Keeps the states of some inputs, given in a layout of theirs."""
        starts, lengths = self._starts[rows], self._lengths[rows]
        if (starts[1:] == starts[:-1] + lengths[:-1]).all():
            self._states[starts[0] : starts[0] + lengths.sum()] = layout.pack(states)
        else:
            self._states.index_copy_(0, self._places(rows), layout.pack(states))

    def _places(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(runs(self._starts[rows], self._lengths[rows])).to(self._states.device)
