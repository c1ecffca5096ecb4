"""An executor that runs spans of layers with torch: oneDNN and a thread for each core on CPUs, large blocks on GPUs."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder.families import Weights, take_apart
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.layout import Packed, Padded
from pyterrier_cascade.encoder.linear import linear_for, with_linears
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.wave_states import WaveStates
from pyterrier_cascade.encoder.workers import calling_thread, workers

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""The types of the precisions."""


class TorchEncoder:
    """An encoder on a device, with the layout of chunks that is fast there.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        device: The device to compute on.
        precision: The precision of weights and states, ``fp32`` or ``bf16``.

    Attributes:
        encoder: The encoder, taken apart.
        width: The width of the states.
        dtype: The type of the states.
        device: The device of the states.
        budget: The most tokens of a chunk: few enough for the cache of a CPU, and enough to keep a GPU busy.
        padding: The largest share of pads in a chunk; None for layouts without pads.
        merge: Inputs of a chunk attend together if the shortest has at least this share of the longest one's tokens.
        workers: A function that returns a context manager, which opens the threads that run chunks.
    """

    def __init__(self, encoder: nn.Module, device: torch.device, precision: str = "fp32"):
        self.device, self.dtype = device, DTYPES[precision]
        self.encoder = take_apart(encoder, Weights(device, self.dtype, linear_for(device, self.dtype)))
        self.width = self.encoder.width
        on_cpu = device.type == "cpu"
        self.budget, self.padding = (512, None) if on_cpu else (65_536, 0.08)
        # In bf16 one attention with a mask is faster than several small ones. In fp32 torch is faster without masks.
        self.merge = 0.75 if precision == "bf16" else 1.0
        self.workers = workers if on_cpu else calling_thread

    def layout(self, lengths: np.ndarray) -> Packed | Padded:
        """Returns the layout of a chunk of inputs of some lengths, ``(n,)``, ascending."""
        return Packed(lengths, self.merge) if self.padding is None else Padded.of(lengths, self.device)

    def embedded(self, pairs: TokenPairs, rows: np.ndarray, layout: Packed | Padded) -> torch.Tensor:
        """Returns the states that enter the first layer.

        Args:
            pairs: All inputs.
            rows: The numbers of the inputs of the chunk.
            layout: The layout of the chunk, in which the states are returned.
        """
        indices = self.encoder.embeddings.indices(pairs, rows)
        tokens = {name: torch.from_numpy(values).to(self.device) for name, values in indices.items()}
        return layout.spread(self.encoder.embeddings(**tokens).to(self.dtype))


class TorchExecutor(TorchEncoder):
    """Runs the layers up to each head with torch.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        heads: The heads, in order of their layers; the executor computes with copies of them.
        device: The device to compute on.
        precision: The precision of weights and states, ``fp32`` or ``bf16``; heads compute in fp32.
    """

    def __init__(self, encoder: nn.Module, heads: Sequence[Head], device: torch.device, precision: str = "fp32"):
        super().__init__(encoder, device, precision)
        self.heads = [head.to(device) for head in heads]
        for head in self.heads:
            with_linears(head.module, linear_for(device, torch.float32))

    @torch.inference_mode()
    def run(self, spans: range, pairs: TokenPairs, rows: np.ndarray, states: WaveStates | None) -> torch.Tensor:
        """Returns the scores that the head of each span gives to some inputs, ``(len(spans), len(rows))``.

        Args:
            spans: The numbers of the spans to run, one after the other; each ends at the head of its number.
            pairs: All inputs.
            rows: The numbers of the inputs to run, in order of length.
            states: The states of the inputs: read if layers have run before, and written if later spans follow. None if
                all spans run in this call.
        """
        layout = self.layout(pairs.lengths[rows])
        hidden = states.read(rows, layout) if spans.start else self.embedded(pairs, rows, layout)
        scores = []
        for span in spans:
            hidden, relevance = self._span(span, hidden, layout)
            scores.append(relevance)
        if states is not None and spans.stop < len(self.heads):
            states.write(rows, layout, hidden)
        return torch.stack(scores)

    def _span(self, span: int, hidden: torch.Tensor, layout: Packed | Padded) -> tuple[torch.Tensor, torch.Tensor]:
        head, first = self.heads[span], self.heads[span - 1].layer if span else 0
        reads_first = span == len(self.heads) - 1 and head.pooling == "cls"
        for number, layer in enumerate(self.encoder.layers[first : head.layer], start=first + 1):
            hidden = layer(hidden, layout, first_only=reads_first and number == head.layer)
        read = self.encoder.norm(hidden)
        return hidden, head.module((read if reads_first else layout.pooled(read, head.pooling)).float())
