"""The joint layers of DC-BERT over states that were encoded apart (DC-5, DC-6), for ranking.

Of the last layer only two rows are computed: those that the classifier reads.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder.chunks import ANY_SIZE, chunks
from pyterrier_cascade.encoder.device import uploaded
from pyterrier_cascade.encoder.jagged import Jagged
from pyterrier_cascade.encoder.layers import PostNormLayer
from pyterrier_cascade.encoder.layout import Packed
from pyterrier_cascade.encoder.linear import linear_for, with_linears
from pyterrier_cascade.encoder.torch_executor import GPU_BUDGET

SLAB = 128
"""How many documents go together through the steps after the last attention. Other steps take one or a chunk."""


class Interaction:
    """Scores documents for a question: K Transformer layers over the states of both, a classifier on their two CLS.

    Of the last layer only the two rows that the classifier reads are computed, see :class:`AskingLayer`. With one layer
    (DC-9) no token of a document is projected: its states are read once, and summed with weights. The scores equal
    those of whole layers, to rounding. It computes in the type of the layers' weights, and threads may share it.

    Args:
        layers: The K joint layers.
        positions: The global position embeddings, ``(n_positions, width)`` (DC-5).
        types: The global type embeddings, of the question and of the document, ``(2, width)``.
        classifier: From the outputs at the question's CLS, ``(n, width)``, and at the document's, ``(n, width)``, to
            relevance, ``(n,)``; in fp32.
        device: Where to compute; the layers are there.
    """

    def __init__(
        self,
        layers: Sequence[PostNormLayer],
        positions: torch.Tensor,
        types: torch.Tensor,
        classifier: nn.Module,
        device: torch.device | str = "cpu",
    ):
        kinds = [type(layer).__name__ for layer in layers]
        if set(kinds) != {PostNormLayer.__name__}:
            raise ValueError(f"the interaction needs layers like BERT's (PostNormLayer), one or more; got {kinds}")
        if types.shape != (2, positions.shape[1]):
            wanted = (2, positions.shape[1])
            raise ValueError(f"the types must be {wanted}, as wide as the positions; got {tuple(types.shape)}")
        self.device = torch.device(device)
        self.positions, self.types = (table.detach().to(self.device, torch.float32) for table in (positions, types))
        *self.layers, last = layers
        self.last = AskingLayer(last)
        # The tokens of a chunk: few enough for the cache of a CPU.
        self.chunk = 512
        # The same choice as in the executor: a mask costs less than more products, but in bf16 only.
        self.merge = 0.75 if self.last.dtype == torch.bfloat16 else 1.0
        classifier = copy.deepcopy(classifier).to(self.device).eval()
        self.classifier = with_linears(classifier, linear_for(self.device, torch.float32))

    @torch.inference_mode()
    def score(self, question: torch.Tensor, documents) -> torch.Tensor:
        """Returns the relevance of each document, ``(n_docs,)``, in fp32 on the CPU.

        Args:
            question: The question's states, ``(n_question_tokens, width)``.
            documents: With ``states (n_tokens, width)``, those of all documents end to end, in fp16, fp32, or int8 with
                ``scales (n_tokens,)``; and ``lengths (n_docs,)``.
        """
        pairs = PairInputs(question, documents, self.positions, self.types)
        if self.device.type != "cpu":
            return self._score_together(pairs)
        attend = self._after_layers if self.layers else self._at_once
        scores = torch.empty(len(pairs.lengths))
        # In the order of length, because pairs of equal length attend side by side in full layers.
        order = np.argsort(pairs.lengths, kind="stable")
        for start in range(0, len(order), SLAB):
            rows = order[start : start + SLAB]
            question_cls, document_cls = self.last.outputs(*attend(pairs, rows)).float().unbind(1)
            scores[torch.from_numpy(rows)] = self.classifier(question_cls, document_cls).cpu()
        return scores

    def _at_once(self, pairs: "PairInputs", rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the two CLS before the only layer and their weighted sums, for :meth:`AskingLayer.outputs`."""
        dtype = self.last.dtype
        question_cls, document_cls = pairs.question[:1].to(dtype), pairs.document_cls(rows).to(dtype)
        # The heads of one question ask all documents for the same.
        asked = self.last.asked(question_cls).expand(len(rows), -1, -1), self.last.asked(document_cls)
        context = self.last.context(torch.cat(asked, 1), (tokens.to(dtype) for tokens in pairs.each(rows)))
        return torch.stack([question_cls.expand_as(document_cls), document_cls], 1), context

    def _after_layers(self, pairs: "PairInputs", rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the same where layers come before the last one."""
        tokens = np.cumsum(pairs.lengths[rows])
        chunks = np.split(rows, np.flatnonzero(np.diff(tokens // self.chunk)) + 1)
        asking, context = zip(*(self._after_layers_of_chunk(pairs, chunk) for chunk in chunks), strict=True)
        return torch.cat(asking), torch.cat(context)

    def _after_layers_of_chunk(self, pairs: "PairInputs", rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        lengths = pairs.lengths[rows]
        layout = Packed(lengths, self.merge)
        hidden = layout.spread(pairs.all(rows).to(self.last.dtype))
        for layer in self.layers:
            hidden = layer(hidden, layout)
        inputs = layout.pack(hidden).split(lengths.tolist())
        asking = torch.stack([tokens[[0, len(pairs.question)]] for tokens in inputs])
        asked = self.last.asked(asking.flatten(0, 1)).unflatten(0, (-1, 2)).flatten(1, 2)
        return asking, self.last.context(asked, inputs)

    def _score_together(self, pairs: "PairInputs") -> torch.Tensor:
        """Returns the relevance of each document, ``(n_docs,)``: on a GPU an operation takes many documents."""
        together, found = pairs.on_device(), []
        # Half of a block may be pads: more chunks would take longer than pads.
        parts = chunks(pairs.lengths, GPU_BUDGET, padding=ANY_SIZE)
        for rows in parts:
            layout = Jagged(pairs.lengths[rows], self.device, self.last.dtype, varlen=False)
            hidden = pairs.flat(together, pairs.starts(rows), layout).to(self.last.dtype)
            for layer in self.layers:
                hidden = layer(hidden, layout)
            firsts = torch.stack([layout.starts, layout.starts + len(pairs.question)], 1).flatten()
            asking = hidden.index_select(0, firsts)
            asked = self.last.asked(asking).unflatten(0, (-1, 2)).flatten(1, 2)
            context = self.last.context_of_block(asked, layout.block(hidden), layout.pads)
            outputs = self.last.outputs(asking.unflatten(0, (-1, 2)), context)
            found.append(self.classifier(*outputs.float().unbind(1)))
        scores = torch.empty(len(pairs.lengths))
        if found:
            scores[torch.from_numpy(np.concatenate(parts))] = torch.cat(found).cpu()
        return scores


class PairInputs:
    """The inputs of the joint layers: a question with each of its documents, states, positions and types summed (DC-5).

    Args:
        question: See :meth:`Interaction.score`.
        documents: See :meth:`Interaction.score`.
        positions: ``(n_positions, width)``.
        types: ``(2, width)``.

    Attributes:
        lengths: The tokens of the question and each document, ``(n_docs,)``.
        question: The beginning of each input, ``(n_question_tokens, width)``.
    """

    def __init__(self, question: torch.Tensor, documents, positions: torch.Tensor, types: torch.Tensor):
        self._lengths, n = checked_lengths(question, documents, positions.shape[1]), len(question)
        self._states, self._scales = documents.states, getattr(documents, "scales", None)
        if self._scales is None and not tensor(self._states[:0]).is_floating_point():
            raise ValueError(f"states in {self._states.dtype} need scales, one for each token")
        longest = int(self._lengths.max(initial=0))
        if n + longest > len(positions):
            raise ValueError(
                f"a question of {n} tokens and a document of {longest} need {n + longest} positions, but there are "
                f"{len(positions)}; score longer documents by passages"
            )
        self.lengths, self._starts = self._lengths + n, np.cumsum(self._lengths) - self._lengths
        self.question = question.to(positions) + positions[:n] + types[0]
        self._added = positions[n : n + longest] + types[1]

    def document_cls(self, rows: np.ndarray) -> torch.Tensor:
        """Returns the first token of some documents, ``(n, width)``."""
        return self.first_states(rows) + self._added[0]

    def first_states(self, rows: np.ndarray) -> torch.Tensor:
        """Returns the state of the first token of some documents, without position and type, ``(n, width)``."""
        places = self._starts[rows]
        states = tensor(self._states[places]).to(self._added)
        if self._scales is not None:
            states *= tensor(self._scales[places]).to(states)[:, None]
        return states

    def on_device(self) -> torch.Tensor:
        """Returns the question's inputs and behind them all documents' states, on the device of the positions."""
        states = uploaded(tensor(self._states), self.question.device).to(self.question)
        if self._scales is not None:
            states = states * uploaded(tensor(self._scales), states.device).to(states)[:, None]
        return torch.cat([self.question, states])

    def starts(self, rows: np.ndarray) -> torch.Tensor:
        """Returns where some documents begin among all of them, on the device of the positions, ``(n,)``."""
        return uploaded(self._starts[rows], self.question.device)

    def flat(self, together: torch.Tensor, starts: torch.Tensor, layout: Jagged) -> torch.Tensor:
        """Returns some inputs end to end, ``(n_tokens, width)``.

        Args:
            together: What :meth:`on_device` returned.
            starts: What :meth:`starts` returned for them.
            layout: Their layout.
        """
        n, place = len(self.question), layout.positions
        source = torch.where(place < n, place, place + starts.index_select(0, layout.owners))
        # Those of the question are in it already.
        added = torch.cat([torch.zeros_like(self.question), self._added])
        return together.index_select(0, source) + added.index_select(0, place)

    def each(
        self, rows: np.ndarray, questions: torch.Tensor | None = None, multiple: int = 1
    ) -> Iterator[torch.Tensor]:
        """Yields some inputs one by one, ``(length, width)``; each overwrites the one before in memory.

        Args:
            rows: The numbers of the inputs.
            questions: What stands at the beginning of each input in place of the question's inputs,
                ``(n, n_question_tokens, width)``.
            multiple: The number of rows is a multiple of this; zeros fill it up.
        """
        n, real = len(self.question), self.lengths[rows]
        lengths = -(-real // multiple) * multiple
        tokens = self.question.new_empty(int(lengths.max()), self.question.shape[1])
        tokens[:n] = self.question
        for number, (row, end, length) in enumerate(zip(rows.tolist(), real.tolist(), lengths.tolist(), strict=True)):
            if questions is not None:
                tokens[:n] = questions[number]
            self._with_document(row, tokens[:end])
            if length > end:
                tokens[end:length] = 0
            yield tokens[:length]

    def all(self, rows: np.ndarray) -> torch.Tensor:
        """Returns some inputs end to end, ``(n_tokens, width)``."""
        return torch.cat([tokens.clone() for tokens in self.each(rows)])

    def _with_document(self, row: int, tokens: torch.Tensor) -> None:
        start, length = int(self._starts[row]), int(self._lengths[row])
        document, added, part = tokens[-length:], self._added[:length], slice(start, start + length)
        document.copy_(tensor(self._states[part]))
        if self._scales is None:
            document.add_(added)
        else:
            torch.addcmul(added, document, tensor(self._scales[part]).to(added)[:, None], out=document)


class AskingLayer:
    """Computes the outputs of a layer at some rows of each input, without keys and values of the other rows.

    The weight of token ``x`` for query ``q`` in a head is ``(x W_k + b_k) q = x (W_k' q)`` plus a constant, which the
    softmax removes. So the query is multiplied by ``W_k`` instead of every token. Likewise
    ``sum a_j (x_j W_v + b_v) = (sum a_j x_j) W_v + b_v``, because the weights sum to 1.

    Args:
        layer: The layer; its linear maps may be prepacked.

    Attributes:
        dtype: The type of its weights, and of all tensors here.
    """

    def __init__(self, layer: PostNormLayer):
        self.layer, self.n_heads = layer, layer.n_heads
        weight, bias = layer.key_value.weight, layer.key_value.bias
        # A prepacked weight is in an order that only oneDNN knows.
        weight = weight.to_dense() if weight.is_mkldnn else weight
        self.dtype = weight.dtype
        key, value = weight.unflatten(0, (2, self.n_heads, -1))
        self.key, self.value = key * key.shape[1] ** -0.5, value.transpose(1, 2)
        self.value_bias = 0 if bias is None else bias.chunk(2)[1]

    def asked(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns the queries of the heads of some rows ``(n, width)`` for tokens' states, ``(n, n_heads, width)``."""
        return self.absorbed(self.layer.query(rows)).transpose(0, 1)

    def absorbed(self, query: torch.Tensor) -> torch.Tensor:
        """Returns the same for rows' queries ``(n, width)``, one head after the other, ``(n_heads, n, width)``."""
        return torch.bmm(query.unflatten(-1, (self.n_heads, -1)).transpose(0, 1), self.key)

    def context(self, asked: torch.Tensor, inputs: Iterable[torch.Tensor]) -> torch.Tensor:
        """Returns the weighted sums of each input's tokens, shaped like ``asked``.

        Args:
            asked: The queries for each input, ``(n, n_asked, width)``.
            inputs: Each ``(length, width)``.
        """
        context = torch.empty_like(asked, memory_format=torch.contiguous_format)
        for queries, tokens, into in zip(asked, inputs, context, strict=True):
            weights = torch.mm(queries, tokens.T).softmax(-1, torch.float32).to(self.dtype)
            torch.mm(weights, tokens, out=into)
        return context

    def context_of_block(self, asked: torch.Tensor, block: torch.Tensor, pads: torch.Tensor | None) -> torch.Tensor:
        """Returns the weighted sums of each input's tokens, shaped like ``asked``.

        Args:
            asked: The queries for each input, ``(n, n_asked, width)``.
            block: The inputs, ``(n, longest, width)``.
            pads: What hides pads, ``(n, 1, 1, longest)``, or None.
        """
        weights = torch.bmm(asked, block.transpose(1, 2)).float()
        weights = weights if pads is None else weights + pads[:, 0]
        return torch.bmm(weights.softmax(-1).to(self.dtype), block)

    def outputs(self, rows: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Returns the layer's outputs at some rows of each input, ``(n, n_rows, width)``.

        Args:
            rows: Their states before it, ``(n, n_rows, width)``.
            context: The weighted sums for the heads of each, ``(n, n_rows * n_heads, width)``.
        """
        context = context.view(-1, self.n_heads, context.shape[-1]).transpose(0, 1)
        return self.after_attention(rows, self.values(context))

    def values(self, context: torch.Tensor) -> torch.Tensor:
        """Returns what the attention gives, without the bias of the values, ``(n_rows, width)``.

        Args:
            context: The weighted sums of states, one head after the other, ``(n_heads, n_rows, width)``.
        """
        return torch.bmm(context, self.value).transpose(0, 1).flatten(1)

    def after_attention(self, rows: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Returns the layer's outputs, shaped like ``rows``.

        Args:
            rows: See :meth:`outputs`.
            values: What :meth:`values` returns, for all rows end to end, ``(n * n_rows, width)``.
        """
        layer = self.layer
        attended = layer.attention_norm(layer.out(values + self.value_bias, add=rows.flatten(0, 1)))
        return layer.output_norm(layer.down(layer.up(attended), add=attended)).view(rows.shape)


def checked_lengths(question: torch.Tensor, documents, width: int | None = None) -> np.ndarray:
    """Returns the tokens of each document, ``(n_docs,)``; raises where documents do not fit the question.

    Args:
        question: The question's states, ``(n_question_tokens, width)``.
        documents: With ``states (n_tokens, width)``, ``lengths (n_docs,)`` and perhaps ``scales (n_tokens,)``.
        width: The width that both must have; the question's if None.
    """
    if question.ndim != 2 or not len(question):
        raise ValueError(f"a question's states must be (n_tokens, width), at least one; got {tuple(question.shape)}")
    width = width or question.shape[1]
    if question.shape[1] != width:
        raise ValueError(f"the question's states have width {question.shape[1]}, but {width} is needed")
    states, lengths = documents.states, np.asarray(documents.lengths, dtype=np.int64)
    if states.ndim != 2 or states.shape[1] != width:
        raise ValueError(f"the documents' states must be (n_tokens, {width}); got {tuple(states.shape)}")
    if len(lengths) and lengths.min() < 1:
        raise ValueError(f"document {lengths.argmin()} has length {lengths.min()}; each needs one token at least")
    if lengths.sum() != len(states):
        raise ValueError(f"the documents' lengths sum to {lengths.sum()}, but they have {len(states)} states")
    scales = getattr(documents, "scales", None)
    if scales is not None and tuple(scales.shape) != (len(states),):
        raise ValueError(f"{len(states)} states need as many scales; got {tuple(scales.shape)}")
    return lengths


def tensor(values: np.ndarray | torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """Returns the values of an array, which may be memory-mapped, or of a tensor as a tensor, perhaps on a device."""
    if not isinstance(values, torch.Tensor):
        # torch warns about arrays that are read-only.
        values = torch.from_numpy(values if values.flags.writeable else values.copy())
    return values if device is None else uploaded(values, device)
