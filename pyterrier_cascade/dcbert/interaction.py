"""The joint layers of DC-BERT over states encoded apart (DC-5, DC-6), computed for the two rows that are read."""

import copy
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder.layers import PostNormLayer
from pyterrier_cascade.encoder.layout import Packed, Padded
from pyterrier_cascade.encoder.linear import linear_for, with_linears

SLAB = 128
"""How many documents go through the two-row part at once."""

BLOCK = 2048
"""How many document tokens are in fp32 at once: on a CPU what stays in its cache."""

PADDING = 0.06
"""The share of a block that may be pads."""

CHUNK = 512
"""How many tokens go through full layers at once."""


def check_states(question: torch.Tensor, documents, width: int | None = None) -> None:
    """Raises where a question and its documents cannot be scored together.

    Args:
        question: ``(n_question_tokens, width)``.
        documents: With ``states (n_tokens, width)``, ``lengths (n_docs,)`` and, for int8 states, ``scales (n_tokens,)``.
        width: What the width must be; the question's if None.
    """
    if question.ndim != 2 or not len(question):
        raise ValueError(f"a question's states must be (n_tokens, width) with a token at least; got {shape(question)}")
    width = width or question.shape[1]
    if question.shape[1] != width:
        raise ValueError(f"the question's states have width {question.shape[1]}; {width} is needed")
    states, lengths = documents.states, documents.lengths
    if states.ndim != 2 or states.shape[1] != width:
        raise ValueError(f"the documents' states must be (n_tokens, {width}); got {shape(states)}")
    if len(lengths) and min(lengths) < 1:
        raise ValueError(f"document {int(np.argmin(lengths))} has length {min(lengths)}; every document has a token")
    if sum(lengths) != len(states):
        raise ValueError(f"the documents' lengths sum to {sum(lengths)}, but there are {len(states)} states")
    scales = getattr(documents, "scales", None)
    if scales is not None and len(scales) != len(states):
        raise ValueError(f"there are {len(scales)} scales for {len(states)} states")


def shape(states) -> tuple[int, ...]:
    """Returns the shape as a plain tuple."""
    return tuple(states.shape)


def tensor(values, device: torch.device | None = None) -> torch.Tensor:
    """Returns an array or a tensor as a tensor."""
    if isinstance(values, np.ndarray):
        # torch warns of arrays that it might write to and must not, such as a memory-map's.
        values = torch.from_numpy(values if values.flags.writeable else values.copy())
    return values.to(device) if device is not None else values


class Interaction:
    """Scores cached documents for a question: K Transformer layers over both, and a classifier on the two CLS (DC-6).

    Of the last layer only the two rows that the classifier reads are computed, and nothing of the other tokens is
    projected: ``(x W_k) q = x (W_k' q)``, so the two queries take W_k instead of all keys, and W_v is applied to the
    weighted sums instead of all values. With one layer the documents' states are read and nothing more.

    Args:
        layers: The K joint layers.
        positions: The global position embeddings, ``(n_positions, width)`` (DC-5).
        types: The global type embeddings of the question and of the document, ``(2, width)``.
        classifier: From the outputs at the question's CLS ``(n, width)`` and at the document's ``(n, width)`` to
            relevance ``(n,)``.
        device: Where to compute.
    """

    def __init__(
        self,
        layers: Sequence[PostNormLayer],
        positions: torch.Tensor,
        types: torch.Tensor,
        classifier: nn.Module,
        device: torch.device | str = "cpu",
    ):
        self.device = torch.device(device)
        if not layers or not all(isinstance(layer, PostNormLayer) for layer in layers):
            names = [type(layer).__name__ for layer in layers]
            raise ValueError(f"the interaction needs one PostNormLayer or more; got {names}")
        self.positions, self.types = (table.detach().to(self.device, torch.float32) for table in (positions, types))
        self.width = self.positions.shape[1]
        if shape(types) != (2, self.width):
            raise ValueError(f"the type embeddings must be (2, {self.width}), as wide as positions; got {shape(types)}")
        *self.full, last = layers
        self.last = TwoRows(last)
        classifier = copy.deepcopy(classifier).to(self.device).eval()
        self.classifier = with_linears(classifier, linear_for(self.device, torch.float32))

    @torch.inference_mode()
    def score(self, question: torch.Tensor, documents) -> torch.Tensor:
        """Returns the relevance of each document, ``(n_docs,)``.

        Args:
            question: The question's states, ``(n_question_tokens, width)``.
            documents: With ``states (n_tokens, width)`` end to end in fp16 or fp32, or in int8 with
                ``scales (n_tokens,)``, and ``lengths (n_docs,)``.
        """
        check_states(question, documents, self.width)
        lengths = np.asarray(documents.lengths, dtype=np.int64)
        n, longest = len(question), int(lengths.max(initial=0))
        if n + longest > len(self.positions):
            raise ValueError(
                f"a question of {n} tokens and a document of {longest} need {n + longest} positions, but there are "
                f"{len(self.positions)}; shorten the documents or split them into passages"
            )
        question = question.to(self.device, torch.float32) + self.positions[:n] + self.types[0]
        reader = _Reader(documents, self.positions[n : n + longest] + self.types[1], self.device)
        scores = torch.empty(len(lengths))
        order = np.argsort(lengths, kind="stable")
        for rows in self._slabs(order, lengths[order] + n):
            pair = self._last(question, reader, rows) if not self.full else self._layers(question, reader, rows)
            scores[torch.from_numpy(rows)] = self.classifier(pair[:, 0], pair[:, 1]).float().cpu()
        return scores

    def _slabs(self, order: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
        if not self.full:
            yield from (order[start : start + SLAB] for start in range(0, len(order), SLAB))
            return
        start = 0
        while start < len(order):
            size = max(1, int(np.searchsorted(np.cumsum(lengths[start : start + SLAB]), CHUNK, "right")))
            yield order[start : start + size]
            start += size

    def _last(self, question: torch.Tensor, reader: "_Reader", rows: np.ndarray) -> torch.Tensor:
        asking = torch.empty(len(rows), 2, self.width, device=self.device)
        asking[:, 0], asking[:, 1] = question[0], reader.first(rows)
        return self.last(asking, question, reader, rows)

    def _layers(self, question: torch.Tensor, reader: "_Reader", rows: np.ndarray) -> torch.Tensor:
        n, lengths = len(question), reader.lengths[rows]
        tokens = torch.cat([part for row in rows for part in (question, reader.document(row))])
        layout = Packed(lengths + n) if self.device.type == "cpu" else Padded.of(lengths + n, self.device)
        hidden = layout.spread(tokens)
        for layer in self.full:
            hidden = layer(hidden, layout)
        hidden = layout.pack(hidden)
        starts = torch.from_numpy(np.cumsum(lengths + n) - lengths - n).to(self.device)
        asking = torch.stack([hidden[starts], hidden[starts + n]], 1)
        joint = _Reader(_Hidden(hidden, lengths + n), None, self.device)
        return self.last(asking, hidden[:0], joint, np.arange(len(rows)))


class _Hidden:
    def __init__(self, states: torch.Tensor, lengths: np.ndarray):
        self.states, self.lengths = states, lengths


class _Reader:
    """Documents as the layers take them: in fp32, with what is added to each of their places."""

    def __init__(self, documents, added: torch.Tensor | None, device: torch.device):
        self.states, self.added, self.device = documents.states, added, device
        self.scales = getattr(documents, "scales", None)
        self.lengths = np.asarray(documents.lengths, dtype=np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.width = self.states.shape[1]

    def first(self, rows: np.ndarray) -> torch.Tensor:
        """Returns the first token of some documents, ``(n, width)``."""
        places = self.starts[rows]
        states = tensor(self.states[places], self.device).float()
        if self.scales is not None:
            states = states * tensor(self.scales[places], self.device)[:, None]
        return states if self.added is None else states + self.added[0]

    def document(self, row: int) -> torch.Tensor:
        """Returns a document, ``(length, width)``."""
        into = torch.empty(int(self.lengths[row]), self.width, device=self.device)
        self._read(row, into)
        return into.add_(self.added[: len(into)])

    def block(self, rows: np.ndarray, into: torch.Tensor) -> torch.Tensor:
        """Returns some documents padded with zeros, or with what is added there, ``(n, longest, width)``.

        Args:
            rows: Their numbers.
            into: Where to write, ``(n, longest, width)``.
        """
        for row, document in zip(rows, into, strict=True):
            length = int(self.lengths[row])
            self._read(row, document[:length])
            document[length:] = 0
        return into if self.added is None else into.add_(self.added[: into.shape[1]])

    def _read(self, row: int, into: torch.Tensor) -> None:
        tokens = slice(int(self.starts[row]), int(self.starts[row] + self.lengths[row]))
        into.copy_(tensor(self.states[tokens]))
        if self.scales is not None:
            into.mul_(tensor(self.scales[tokens], self.device)[:, None])


class TwoRows:
    """A layer's outputs at a few rows of each input, without keys or values.

    Args:
        layer: The layer.
    """

    def __init__(self, layer: PostNormLayer):
        self.layer, self.n_heads = layer, layer.n_heads
        key_value, bias = layer.key_value.weight, layer.key_value.bias
        # Prepacked weights are in a layout of oneDNN's.
        key_value = key_value.to_dense() if key_value.is_mkldnn else key_value
        key, value = key_value.float().chunk(2)
        self.key = (key * (len(key) // self.n_heads) ** -0.5).unflatten(0, (self.n_heads, -1))
        self.value = value.unflatten(0, (self.n_heads, -1)).transpose(1, 2)
        self.value_bias = None if bias is None else bias.float().chunk(2)[1]

    def __call__(self, asking: torch.Tensor, shared: torch.Tensor, reader: _Reader, rows: np.ndarray) -> torch.Tensor:
        """Returns the outputs at the rows that ask, ``(n, n_asking, width)``.

        Args:
            asking: The states of the rows whose outputs are wanted, ``(n, n_asking, width)``.
            shared: The tokens that all inputs begin with, ``(n_shared, width)``.
            reader: Their other tokens.
            rows: The inputs in it, ascending in length, ``(n,)``.
        """
        n, n_asking, width = asking.shape
        residual = asking.flatten(0, 1)
        query = self.layer.query(residual).unflatten(-1, (self.n_heads, -1)).transpose(0, 1)
        # (n * n_asking, n_heads, width), as the rows of one input lie side by side for its tokens.
        asked = torch.bmm(query, self.key).transpose(0, 1).reshape(n, -1, width)
        context = torch.empty_like(asked)
        buffer = asked.new_empty(0)
        for part in _blocks(reader.lengths[rows]):
            lengths = reader.lengths[rows[part]]
            size = len(lengths) * int(lengths[-1]) * width
            if len(buffer) < size:
                buffer = asked.new_empty(size)
            block = reader.block(rows[part], buffer[:size].view(len(lengths), -1, width))
            context[part] = _attended(asked[part], shared, block, lengths)
        context = context.view(n * n_asking, self.n_heads, width).transpose(0, 1)
        value = torch.bmm(context, self.value).transpose(0, 1).flatten(1)
        if self.value_bias is not None:
            value = value + self.value_bias
        layer = self.layer
        attended = layer.attention_norm(layer.out(value, add=residual))
        return layer.output_norm(layer.down(layer.up(attended), add=attended)).view(n, n_asking, width)


def _attended(asked: torch.Tensor, shared: torch.Tensor, block: torch.Tensor, lengths: np.ndarray) -> torch.Tensor:
    """Returns the weighted sums of the tokens, ``(n, n_queries, width)``.

    Args:
        asked: The queries, ``(n, n_queries, width)``.
        shared: Tokens of all inputs, ``(n_shared, width)``.
        block: Tokens of each, ``(n, longest, width)``.
        lengths: How many of these are real, ``(n,)``.
    """
    longest = block.shape[1]
    logits = torch.bmm(asked, block.transpose(1, 2))
    if lengths[0] < longest:
        pads = torch.from_numpy(np.arange(longest) >= lengths[:, None]).to(asked.device)
        logits.masked_fill_(pads[:, None], -torch.inf)
    logits = torch.cat([asked @ shared.T, logits], -1)
    weights = logits.softmax(-1)
    context = torch.bmm(weights[..., len(shared) :], block)
    return context.add_(weights[..., : len(shared)] @ shared) if len(shared) else context


def _blocks(lengths: np.ndarray) -> Iterator[slice]:
    """Returns the inputs, given by ascending length, in blocks that stay in the cache and hold few pads."""
    start, tokens = 0, np.concatenate([[0], np.cumsum(lengths)]).tolist()
    longest = lengths.tolist()
    while start < len(longest):
        end = start + 1
        while end < len(longest):
            size = (end + 1 - start) * longest[end]
            if size > BLOCK or size * (1 - PADDING) > tokens[end + 1] - tokens[start]:
                break
            end += 1
        yield slice(start, end)
        start = end
