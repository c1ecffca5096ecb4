"""Spans of layers on torch: oneDNN and a thread for each core on CPUs, large blocks on GPUs."""

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
from pyterrier_cascade.encoder.workers import here, workers

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class TorchExecutor:
    """Runs the layers up to each head.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        heads: In order of their layers.
        device: Where to compute.
        precision: ``fp32`` or ``bf16``, of weights and states; heads read and score in fp32.

    Attributes:
        width: The width of the states.
        dtype: Their type.
        budget: The tokens of a chunk: on a CPU what stays in its cache, on a GPU what keeps it busy.
        padding: The share of a chunk that may be pads; None where there are none, whatever the lengths.
        workers: Opens the threads that chunks are dealt to.
    """

    def __init__(self, encoder: nn.Module, heads: Sequence[Head], device: torch.device, precision: str = "fp32"):
        self.device, self.dtype = device, DTYPES[precision]
        self.encoder = take_apart(encoder, Weights(device, self.dtype, linear_for(device, self.dtype)))
        self.heads = [head.to(device) for head in heads]
        for head in self.heads:
            with_linears(head.module, linear_for(device, torch.float32))
        self.width = self.encoder.width
        on_cpu = device.type == "cpu"
        self.budget, self.padding = (512, None) if on_cpu else (65_536, 0.08)
        # In bf16 a mask costs less than another pair of small products; torch's attention in fp32 is better without.
        self.merge = 0.75 if precision == "bf16" else 1.0
        self.workers = workers if on_cpu else here

    @torch.inference_mode()
    def run(self, spans: range, pairs: TokenPairs, rows: np.ndarray, states: WaveStates | None) -> torch.Tensor:
        """Returns the relevance that the head of each span gives to some inputs, ``(len(spans), len(rows))``.

        Args:
            spans: The numbers of the heads that are reached, one after the other.
            pairs: All inputs.
            rows: Those to run, in order of length.
            states: Where the span before left their states and this one leaves them; None where nothing goes on.
        """
        lengths = pairs.lengths[rows]
        layout = Packed(lengths, self.merge) if self.padding is None else Padded.of(lengths, self.device)
        if spans.start == 0:
            indices = self.encoder.embeddings.indices(pairs, rows)
            tokens = {name: torch.from_numpy(values).to(self.device) for name, values in indices.items()}
            hidden = layout.spread(self.encoder.embeddings(**tokens).to(self.dtype))
        else:
            hidden = states.read(rows, layout)
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
