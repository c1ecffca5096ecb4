"""One-way joint layers: the question reads the document, layer after layer, and the document stays as it was encoded.

The idea is that of MICE (Vast et al., *MICE: Minimal Interaction Cross-Encoders for efficient Re-ranking*, arXiv
2602.16299). In a joint layer (DC-5) all tokens of question and document attend to one another, and nearly all of the
time goes into the document's. Here a layer computes the question's rows only. They attend to one another and to the
document, whose states are the inputs of every layer alike.

Our layers are joint layers that leave the document's rows out, so that both kinds start from the same weights and can
be compared; where MICE chooses otherwise:

- A layer is the encoder's own, with one softmax over question and document. MICE adds a second attention, over the
  document, to each layer.
- Every row of the question attends to everything. MICE studies masks that hide the document from [CLS]; then a single
  layer would carry nothing of the document to [CLS].
- Positions and types are those of DC-5: they are added to the states once, and positions count on from the question to
  the document. MICE adds none. So the question's rows after the first layer are those of a joint layer, exactly.
"""

import functools
import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.dcbert.interaction import AskingLayer, Interaction, PairInputs
from pyterrier_cascade.dcbert.joint import Joined, JointLayers
from pyterrier_cascade.encoder.chunks import ANY_SIZE, chunks
from pyterrier_cascade.encoder.jagged import Jagged
from pyterrier_cascade.encoder.layout import ROUND
from pyterrier_cascade.encoder.linear import PackedLinear, linear_for
from pyterrier_cascade.encoder.torch_executor import GPU_BUDGET

ROWS = 256
"""About how many rows of questions go together through a layer on a CPU."""


class OneWayLayers(JointLayers):
    """K layers that compute the question's rows, and a classifier.

    The weights are those of :class:`JointLayers` by name and shape, and so is where they start. The classifier reads
    [CLS] of the question behind the last layer, and, in place of an output that no layer computes, the state of the
    document's [CLS] as it was encoded. Without position and type, it is an output of the encoder's last norm, as is
    what it is compared with.
    """

    def compared(self, joined: Joined) -> torch.Tensor:
        """Returns what the classifier says of the layers' outputs, ``(n_pairs,)``."""
        states, real, n = self.placed(joined), joined.real, joined.n
        longest = int(n.max())
        in_question = joined.in_question[:, :longest, None]
        for layer in self.layers[:-1]:
            asking = states[:, :longest]
            # Behind a shorter question the document begins.
            rows = torch.where(in_question, self.outputs(layer, asking, states, real), asking)
            states = torch.cat([rows, states[:, longest:]], 1)
        question_cls = self.outputs(self.layers[-1], states[:, :1], states, real)[:, 0]
        document_cls = joined.states[torch.arange(len(n), device=n.device), n]
        return self.head(question_cls, document_cls)


class OneWay(Interaction):
    """Scores documents for a question by one-way layers; see :class:`OneWayLayers`.

    No token of a document is projected, as in :class:`AskingLayer`. In the first layer all documents are asked the
    same; of the last layer only [CLS] is computed. Linear maps take the rows of many documents at once. The products
    with a document's states are made one document after the other on a CPU, because oneDNN makes each of them twice as
    fast as torch makes a product of batches, and needs no pads.

    Args:
        layers: The K layers.
        positions: See :class:`Interaction`.
        types: See :class:`Interaction`.
        classifier: From the outputs at the question's CLS, ``(n, width)``, and the states of the document's,
            ``(n, width)``, to relevance, ``(n,)``; in fp32.
        device: Where to compute; the layers are there.
    """

    def __init__(self, layers, positions, types, classifier: nn.Module, device: torch.device | str = "cpu"):
        super().__init__(layers, positions, types, classifier, device)
        self.before_last = [AskingLayer(layer) for layer in self.layers]
        self.product = product_for(self.device, self.last.dtype)

    @torch.inference_mode()
    def score(self, question: torch.Tensor, documents) -> torch.Tensor:
        """Returns the relevance of each document, ``(n_docs,)``, in fp32 on the CPU.

        Args:
            question: See :meth:`Interaction.score`.
            documents: See :meth:`Interaction.score`.
        """
        pairs = PairInputs(question, documents, self.positions, self.types)
        scores = torch.empty(len(pairs.lengths))
        if not len(scores):
            return scores
        n_asking, dtype = len(question) if self.layers else 1, self.last.dtype
        if self.device.type == "cpu":
            parts = np.array_split(np.arange(len(scores)), -(-len(scores) // max(1, ROWS // n_asking)))
            documents = (_OneByOne(pairs, rows, self.product, dtype) for rows in parts)
        else:
            # A document takes memory for its tokens, and for what each head of each row asks it.
            parts = chunks(pairs.lengths + n_asking * self.last.n_heads, GPU_BUDGET, padding=ANY_SIZE)
            together = pairs.on_device()
            documents = (_Together(pairs, rows, together, dtype) for rows in parts)
        found = torch.cat([self._scores(some) for some in documents])
        scores[torch.from_numpy(np.concatenate(parts))] = found.cpu()
        return scores

    def _scores(self, documents: "_OneByOne | _Together") -> torch.Tensor:
        """Returns the relevance of some documents, ``(n,)``."""
        hidden = None
        for layer in self.before_last:
            hidden = documents.read(layer, hidden)
        return self.classifier(documents.read_by_cls(self.last, hidden).float(), documents.cls)


class _OneByOne:
    """Some documents on a CPU, which are read one by one.

    In each layer they are read from memory anew. It is cheaper to convert and to place states again than to keep them.

    Args:
        pairs: All documents with their question.
        rows: The numbers of these documents.
        product: What :func:`product_for` returns.
        dtype: The type of the layers' weights.

    Attributes:
        cls: The states of the documents' [CLS], ``(n, width)``.
    """

    def __init__(self, pairs: PairInputs, rows: np.ndarray, product: Callable, dtype: torch.dtype):
        self.pairs, self.rows, self.product, self.dtype = pairs, rows, product, dtype
        self.start, self.cls = pairs.question.to(dtype)[None], pairs.first_states(rows)

    def read(self, layer: AskingLayer, hidden: torch.Tensor | None) -> torch.Tensor:
        """Returns the outputs of a layer at the question's rows, ``(n, n_question_tokens, width)``.

        Args:
            layer: The layer.
            hidden: The states of these rows before the layer, likewise; None before the first layer, where they are the
                same for all documents.
        """
        n, lengths = len(self.rows), self.pairs.lengths[self.rows].tolist()
        rows = self.start if hidden is None else hidden
        asked = map(layer.absorbed, layer.layer.query(rows))
        if hidden is None:
            asked = itertools.repeat(next(asked), n)
        rows = rows.expand(n, -1, -1)
        values = torch.empty_like(rows, memory_format=torch.contiguous_format)
        # oneDNN compiles for each new number of tokens.
        inputs = self.pairs.each(self.rows, hidden, ROUND)
        for queries, tokens, length, into in zip(asked, inputs, lengths, values, strict=True):
            tokens = tokens.to(self.dtype)
            logits = self.product(queries.flatten(0, 1), tokens)
            logits[:, length:] = -torch.inf
            context = self.product(logits.softmax(-1, torch.float32).to(self.dtype), tokens.T)
            into.copy_(layer.values(context.view(queries.shape)))
        return layer.after_attention(rows, values.flatten(0, 1))

    def read_by_cls(self, layer: AskingLayer, hidden: torch.Tensor | None) -> torch.Tensor:
        """Returns the outputs of a layer at the question's [CLS], ``(n, width)``; arguments as for :meth:`read`."""
        n, rows = len(self.rows), (self.start if hidden is None else hidden)[:, :1]
        inputs = self.pairs.each(self.rows, hidden)
        asked = layer.asked(rows[:, 0]).expand(n, -1, -1)
        return layer.outputs(rows.expand(n, -1, -1), layer.context(asked, (one.to(self.dtype) for one in inputs)))[:, 0]


class _Together:
    """Some documents in a block on a GPU, where an operation takes all of them.

    Args:
        pairs: All documents with their question.
        rows: The numbers of these documents.
        together: What ``pairs.on_device()`` returned.
        dtype: The type of the layers' weights.

    Attributes:
        cls: The states of the documents' [CLS], ``(n, width)``.
    """

    def __init__(self, pairs: PairInputs, rows: np.ndarray, together: torch.Tensor, dtype: torch.dtype):
        layout, starts = Jagged(pairs.lengths[rows], together.device, dtype, varlen=False), pairs.starts(rows)
        self.block, self.pads = layout.block(pairs.flat(together, starts, layout).to(dtype)), layout.pads
        self.start = pairs.question.to(dtype)[None]
        self.cls = together.index_select(0, starts + len(pairs.question))

    def read(self, layer: AskingLayer, hidden: torch.Tensor | None) -> torch.Tensor:
        """Returns the same as :meth:`_OneByOne.read`."""
        return self._outputs(layer, hidden, self.start.shape[1])

    def read_by_cls(self, layer: AskingLayer, hidden: torch.Tensor | None) -> torch.Tensor:
        """Returns the same as :meth:`_OneByOne.read_by_cls`."""
        return self._outputs(layer, hidden, 1)[:, 0]

    def _outputs(self, layer: AskingLayer, hidden: torch.Tensor | None, n_rows: int) -> torch.Tensor:
        n, rows = len(self.block), self.start if hidden is None else hidden
        if hidden is not None:
            self.block[:, : hidden.shape[1]] = hidden
        rows = rows[:, :n_rows]
        asked = layer.asked(rows.flatten(0, 1)).unflatten(0, rows.shape[:2]).flatten(1, 2).expand(n, -1, -1)
        return layer.outputs(rows.expand(n, -1, -1), layer.context_of_block(asked, self.block, self.pads))


@functools.cache
def product_for(device: torch.device, dtype: torch.dtype) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Returns the fastest product of a matrix ``(n, k)`` and another one's transpose ``(m, k)``.

    Where :func:`linear_for` gives prepacked maps, oneDNN takes a weight that is not prepacked too.
    """
    if linear_for(device, dtype) is not PackedLinear:
        return _by_torch
    left, right = torch.ones(2, 16, dtype=dtype), torch.ones(16, 3, dtype=dtype).T
    try:
        works = torch.equal(_by_onednn(left, right), _by_torch(left, right))
    # As in linear_for: another version of torch may take other arguments.
    except (AttributeError, RuntimeError, TypeError):
        return _by_torch
    return _by_onednn if works else _by_torch


def _by_torch(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.mm(left, right.T)


def _by_onednn(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")
