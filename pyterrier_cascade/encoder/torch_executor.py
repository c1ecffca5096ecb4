"""An executor that runs spans of layers with torch: oneDNN and a thread for each core on CPUs, large chunks on GPUs."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder.chunks import ANY_SIZE
from pyterrier_cascade.encoder.compiled import compile_now, compiled
from pyterrier_cascade.encoder.device import DTYPES, has_varlen, warn_if_emulated
from pyterrier_cascade.encoder.executor import Executor, Span
from pyterrier_cascade.encoder.families import Weights, take_apart
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.jagged import Jagged
from pyterrier_cascade.encoder.layers import Layout
from pyterrier_cascade.encoder.layout import Packed, Padded
from pyterrier_cascade.encoder.linear import Linear, Make, linear_for, with_linears
from pyterrier_cascade.encoder.workers import calling_thread, workers

GPU_BUDGET = 65_536
"""The most tokens of a chunk on a GPU: more would make it no faster."""

BLOCKS = ("mps", "xpu")
"""The devices whose chunks are padded blocks with few pads: torch has not all operators of :class:`Jagged` there."""


def layout_for(lengths: np.ndarray, device: torch.device, dtype: torch.dtype, varlen: bool, merge: float) -> Layout:
    """Returns the layout of a chunk that suits a device.

    Args:
        lengths: The tokens of each input, ``(n,)``; ascending on a CPU.
        device: The device.
        dtype: The type of the states.
        varlen: Whether the device has a kernel for attention within inputs of any lengths.
        merge: The share of :class:`~pyterrier_cascade.encoder.layout.Packed`.
    """
    if device.type == "cpu":
        return Packed(lengths, merge)
    return Padded.of(lengths, device) if device.type in BLOCKS else Jagged(lengths, device, dtype, varlen)


def padding_for(device: torch.device, varlen: bool) -> float | None:
    """Returns the largest share of pads in a chunk: in attention alone, or in a block. None if there are no pads."""
    if device.type == "cpu" or varlen:
        return None
    return 0.08 if device.type in BLOCKS else ANY_SIZE


class TorchExecutor(Executor):
    """Runs the layers up to each head with torch.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        heads: The heads, in order of their layers; the executor computes with copies of them.
        device: The device to compute on.
        precision: The precision of weights and states, ``fp32``, ``bf16`` or ``fp16``; heads compute in fp32. States
            are in fp32 too where a class of linear maps has its own precision, such as ``"int8 and bf16"``.
        torch_compile: Whether torch compiles the layers.
        linear: The class of the linear maps; the fastest for the device unless given.

    Attributes:
        encoder: The encoder, taken apart.
        varlen: Whether attention is one kernel for inputs of any lengths.
        merge: Inputs of a chunk attend together if the shortest has at least this share of the longest one's tokens.
    """

    def __init__(
        self,
        encoder: nn.Module,
        heads: Sequence[Head],
        device: torch.device,
        precision: str = "fp32",
        torch_compile: bool = False,
        linear: Make | None = None,
    ):
        warn_if_emulated(precision, device)
        self.device, self.precision, self.dtype = device, precision, DTYPES.get(precision, torch.float32)
        on_cpu = device.type == "cpu"
        if linear is None:
            linear = Linear if torch_compile else linear_for(device, self.dtype)
        weights = Weights(device, self.dtype, linear, together=not on_cpu)
        self.encoder = take_apart(encoder, weights)
        self.embeddings, self.width = self.encoder.embeddings, self.encoder.width
        self.varlen = has_varlen(device, self.dtype, self.width // self.encoder.layers[0].n_heads)
        self.budget, self.padding = 512 if on_cpu else GPU_BUDGET, padding_for(device, self.varlen)
        # In bf16 one attention with a mask is faster than several small ones. In fp32 torch is faster without masks.
        self.merge = 0.75 if "bf16" in precision else 1.0
        self.workers = workers if on_cpu else calling_thread
        self.heads = [head.to(device) for head in heads]
        for head in self.heads:
            with_linears(head.module, linear_for(device, torch.float32))
        if torch_compile:
            self.encoder = compiled(self.encoder)
        self._spans = [Span(self.encoder, self.heads, number) for number in range(len(heads))]
        if torch_compile:
            compile_now(self)

    def layout(self, lengths: np.ndarray) -> Layout:
        """Returns the layout of a chunk of inputs of some lengths, ``(n,)``, ascending."""
        return layout_for(lengths, self.device, self.dtype, self.varlen, self.merge)

    def span(self, number: int, hidden: torch.Tensor, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the scores ``(n,)`` of the head of a number, and the states after its span."""
        return self._spans[number](hidden, layout)
