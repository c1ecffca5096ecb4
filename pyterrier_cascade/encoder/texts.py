"""The encoder for texts that stand alone: it returns the states of their tokens."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder.chunks import chunks
from pyterrier_cascade.encoder.pairs import TokenPairs, runs
from pyterrier_cascade.encoder.torch_executor import TorchExecutor

SHARES = 2
"""Chunks are laid out for this number of threads, whatever the real number, so that states are always the same bits."""


class TextEncoder(TorchExecutor):
    """Runs a whole encoder without heads over texts and returns the states of its last layer.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        device: The device to compute on.
        precision: The precision of weights and states, ``fp32``, ``bf16`` or ``fp16``.
    """

    def __init__(self, encoder: nn.Module, device: torch.device, precision: str = "fp32"):
        super().__init__(encoder, (), device, precision)

    def states(self, pairs: TokenPairs, progress: Callable[[int], object] = lambda n_done: None) -> torch.Tensor:
        """Returns the states of all tokens end to end, in the order of the texts, ``(n_tokens, width)``, on the CPU.

        Args:
            pairs: The tokenised texts.
            progress: Called with the number of texts that have just been finished.
        """
        found = np.empty((int(pairs.lengths.sum()), self.width), np.float32)
        with self.workers() as pool:
            shares = SHARES if self.device.type == "cpu" else pool.n_threads
            parts = chunks(pairs.lengths, self.budget, shares, self.padding)
            for rows, states in zip(parts, pool.map(lambda rows: self._run(pairs, rows), parts), strict=True):
                # NumPy writes the states, because torch would write with all its threads, which then keep the cores
                # busy for longer than a short text takes.
                found[runs(pairs.starts[rows], pairs.lengths[rows])] = states
                progress(len(rows))
        return torch.from_numpy(found)

    @torch.inference_mode()
    def _run(self, pairs: TokenPairs, rows: np.ndarray) -> np.ndarray:
        layout = self.layout(pairs.lengths[rows])
        hidden = self.embedded(pairs, rows, layout)
        for layer in self.encoder.layers:
            hidden = layer(hidden, layout)
        return layout.pack(self.encoder.norm(hidden)).float().cpu().numpy()
