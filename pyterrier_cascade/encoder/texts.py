"""Texts that stand alone, as the states of their tokens."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder.chunks import chunks
from pyterrier_cascade.encoder.families import Weights, take_apart
from pyterrier_cascade.encoder.layout import Packed, Padded
from pyterrier_cascade.encoder.linear import linear_for
from pyterrier_cascade.encoder.pairs import TokenPairs, runs
from pyterrier_cascade.encoder.torch_executor import DTYPES
from pyterrier_cascade.encoder.workers import here, workers

SHARES = 2
"""Chunks are laid out as for so many threads, however many there are: the states are the same bits on any number."""


class TextEncoder:
    """Runs a whole encoder and returns the states of its last layer.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        device: Where to compute.
        precision: ``fp32`` or ``bf16``, of weights and states.
    """

    def __init__(self, encoder: nn.Module, device: torch.device, precision: str = "fp32"):
        self.device, self.dtype = device, DTYPES[precision]
        self.encoder = take_apart(encoder, Weights(device, self.dtype, linear_for(device, self.dtype)))
        on_cpu = device.type == "cpu"
        self.budget, self.padding = (512, None) if on_cpu else (65_536, 0.08)
        self.merge = 0.75 if precision == "bf16" else 1.0
        self.workers = workers if on_cpu else here

    def states(self, pairs: TokenPairs, progress: Callable[[int], object] = lambda n_done: None) -> torch.Tensor:
        """Returns the states of all tokens end to end, in the order of the texts, ``(n_tokens, width)``, on the CPU.

        Args:
            pairs: The tokenised texts.
            progress: Called with the number of texts that are done, as they are.
        """
        found = np.empty((int(pairs.lengths.sum()), self.encoder.width), np.float32)
        with self.workers() as pool:
            parts = chunks(pairs.lengths, self.budget, SHARES, self.padding)
            for rows, states in zip(parts, pool.map(lambda rows: self._run(pairs, rows), parts), strict=True):
                # By numpy: where torch writes with all its threads, these spin on for longer than a short text takes.
                found[runs(pairs.starts[rows], pairs.lengths[rows])] = states
                progress(len(rows))
        return torch.from_numpy(found)

    @torch.inference_mode()
    def _run(self, pairs: TokenPairs, rows: np.ndarray) -> np.ndarray:
        lengths = pairs.lengths[rows]
        layout = Packed(lengths, self.merge) if self.padding is None else Padded.of(lengths, self.device)
        indices = self.encoder.embeddings.indices(pairs, rows)
        tokens = {name: torch.from_numpy(values).to(self.device) for name, values in indices.items()}
        hidden = layout.spread(self.encoder.embeddings(**tokens).to(self.dtype))
        for layer in self.encoder.layers:
            hidden = layer(hidden, layout)
        return layout.pack(self.encoder.norm(hidden)).float().cpu().numpy()
