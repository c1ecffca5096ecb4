"""An executor that runs spans of layers with torch: oneDNN and a thread for each core on CPUs, large blocks on GPUs."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder.compiled import compile_now, compiled
from pyterrier_cascade.encoder.executor import Executor, Span
from pyterrier_cascade.encoder.families import Weights, take_apart
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.layout import Packed, Padded
from pyterrier_cascade.encoder.linear import Linear, linear_for, with_linears
from pyterrier_cascade.encoder.workers import calling_thread, workers

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""The types of the precisions."""


class TorchExecutor(Executor):
    """Runs the layers up to each head with torch.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        heads: The heads, in order of their layers; the executor computes with copies of them.
        device: The device to compute on.
        precision: The precision of weights and states, ``fp32`` or ``bf16``; heads compute in fp32.
        torch_compile: Whether torch compiles the layers.

    Attributes:
        encoder: The encoder, taken apart.
        merge: Inputs of a chunk attend together if the shortest has at least this share of the longest one's tokens.
    """

    def __init__(
        self,
        encoder: nn.Module,
        heads: Sequence[Head],
        device: torch.device,
        precision: str = "fp32",
        torch_compile: bool = False,
    ):
        self.device, self.dtype = device, DTYPES[precision]
        linear = Linear if torch_compile else linear_for(device, self.dtype)
        self.encoder = take_apart(encoder, Weights(device, self.dtype, linear))
        self.embeddings, self.width = self.encoder.embeddings, self.encoder.width
        on_cpu = device.type == "cpu"
        self.budget, self.padding = (512, None) if on_cpu else (65_536, 0.08)
        # In bf16 one attention with a mask is faster than several small ones. In fp32 torch is faster without masks.
        self.merge = 0.75 if precision == "bf16" else 1.0
        self.workers = workers if on_cpu else calling_thread
        self.heads = [head.to(device) for head in heads]
        for head in self.heads:
            with_linears(head.module, linear_for(device, torch.float32))
        if torch_compile:
            self.encoder = compiled(self.encoder)
        self._spans = [Span(self.encoder, self.heads, number) for number in range(len(heads))]
        if torch_compile:
            compile_now(self)

    def layout(self, lengths: np.ndarray) -> Packed | Padded:
        """Returns the layout of a chunk of inputs of some lengths, ``(n,)``, ascending."""
        return Packed(lengths, self.merge) if self.padding is None else Padded.of(lengths, self.device)

    def span(self, number: int, hidden: torch.Tensor, layout: Packed | Padded) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the scores ``(n,)`` of the head of a number, and the states after its span."""
        return self._spans[number](hidden, layout)
