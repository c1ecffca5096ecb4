"""The base of executors, which run the spans of layers between heads."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder.families.base import Encoder
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.layers import Layout
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.wave_states import WaveStates


class Span(nn.Module):
    """The layers between two heads and the second of the two heads.

    Args:
        encoder: The encoder taken apart.
        heads: All heads, in order of their layers.
        number: The number of the head at which the span ends. The first span begins behind the embeddings.
    """

    def __init__(self, encoder: Encoder, heads: Sequence[Head], number: int):
        super().__init__()
        head, first = heads[number], heads[number - 1].layer if number else 0
        self.layers, self.norm = nn.ModuleList(encoder.layers[first : head.layer]), encoder.norm
        self.head, self.pooling = head.module, head.pooling
        self.reads_first = number == len(heads) - 1 and head.pooling == "cls"

    def forward(self, hidden: torch.Tensor, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the scores of the head, ``(n,)``, and the states after the last layer.

        Args:
            hidden: The states before the first layer, in the shape of the layout.
            layout: The layout of the tokens.
        """
        for number, layer in enumerate(self.layers, start=1):
            hidden = layer(hidden, layout, first_only=self.reads_first and number == len(self.layers))
        read = self.norm(hidden)
        return self.head((read if self.reads_first else layout.pooled(read, self.pooling)).float()), hidden


class Executor(ABC):
    """Runs the layers up to each head on chunks of inputs.

    Attributes:
        embeddings: The embeddings of the encoder.
        heads: The heads, in order of their layers; copies for inference.
        width: The width of the states.
        precision: The name of the precision that scores are computed in.
        dtype: The type of the states.
        device: The device of the states.
        budget: The most tokens of a chunk: few enough for the cache of a CPU, and enough to keep a GPU busy.
        limit: The most tokens of a chunk that the device has memory for, as far as is known.
        padding: The largest share of pads in a chunk; None for layouts without pads.
        workers: A function that returns a context manager, which opens the threads that run chunks.
    """

    limit: float = math.inf

    @abstractmethod
    def layout(self, lengths: np.ndarray) -> Layout:
        """Returns the layout of a chunk of inputs of some lengths, ``(n,)``, ascending."""

    @abstractmethod
    def span(self, number: int, hidden: torch.Tensor, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the scores ``(n,)`` of the head of a number, and the states after its span.

        Args:
            number: The number of the head and the span.
            hidden: The states before the span.
            layout: The layout of the chunk.
        """

    def embedded(self, pairs: TokenPairs, rows: np.ndarray, layout: Layout) -> torch.Tensor:
        """Returns the states that enter the first layer.

        Args:
            pairs: All inputs.
            rows: The numbers of the inputs of the chunk.
            layout: The layout of the chunk, in which the states are returned.
        """
        return layout.spread(self.embeddings(pairs, rows).to(self.dtype))

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
        for number in spans:
            relevance, hidden = self.span(number, hidden, layout)
            scores.append(relevance)
        if states is not None and spans.stop < len(self.heads):
            states.write(rows, layout, hidden)
        return torch.stack(scores)
