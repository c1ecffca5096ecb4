"""The layers that join a question and a document (DC-5), and the classifier on top of them (DC-6)."""

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers.activations import ACT2FN

from pyterrier_cascade.encoder.families import family_of, position_limit
from pyterrier_cascade.encoder.families.base import LayerParts

HEADS = ("late", "compare", "paper")

LATE_SCALE = 20.0
"""The factor of the trained weight of late interaction: cosines of good and bad documents differ by hundredths."""


class Encoded(NamedTuple):
    """Texts as token states.

    Attributes:
        states: The states of all texts end to end, ``(n_tokens, width)``.
        lengths: The tokens of each text, ``(n,)``.
    """

    states: torch.Tensor
    lengths: torch.Tensor


def bare_encoder(config: transformers.PretrainedConfig) -> transformers.PreTrainedModel:
    """Returns an encoder with random weights and without a pooler."""
    encoder = transformers.AutoModel.from_config(config, trust_remote_code=False)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder


class _StatesAsTheyAre(nn.Module):
    """Stands in for an encoder's embeddings: states go into the first layer with nothing added."""

    def forward(self, input_ids=None, inputs_embeds=None, *args, **kwargs) -> torch.Tensor:
        return inputs_embeds


class JointLayers(nn.Module):
    """K Transformer layers over question and document together, and a classifier on both CLS (DC-5, DC-6).

    Positions count on from the question to the document, by the true length of the question, so that pads change
    nothing. The sum of states, positions and types is not normalised.

    Args:
        config: The configuration of an encoder of K layers.
        head: One of :data:`HEADS`.
    """

    def __init__(self, config: transformers.PretrainedConfig, head: str):
        super().__init__()
        self.encoder = bare_encoder(config)
        self.encoder.embeddings = _StatesAsTheyAre()
        if hasattr(self.encoder, "embeddings_project"):
            del self.encoder.embeddings_project
        self.family = family_of(config)
        self.activation, self.dropout = ACT2FN[self.family.activation(config)], self.family.dropout(config)
        self.positions = nn.Embedding(position_limit(config), config.hidden_size)
        self.types = nn.Embedding(2, config.hidden_size)
        self.head = Comparison(config.hidden_size, "compare" if head == "late" else head)
        self.late = nn.Parameter(torch.ones(())) if head == "late" else None

    @property
    def layers(self) -> list[LayerParts]:
        """The K layers."""
        return self.family.layer_parts(self.encoder)

    def forward(
        self, questions: Encoded, documents: Encoded, question_of: torch.Tensor, document_of: torch.Tensor
    ) -> torch.Tensor:
        """Returns the log-odds of relevance of pairs, ``(n_pairs,)``."""
        joined = self.joined(questions, documents, question_of, document_of)
        scores = self.compared(joined)
        return scores if self.late is None else scores + LATE_SCALE * self.late * late_interaction(joined)

    def joined(
        self, questions: Encoded, documents: Encoded, question_of: torch.Tensor, document_of: torch.Tensor
    ) -> "Joined":
        """Returns the states of each question and its document end to end."""
        n, m = questions.lengths[question_of], documents.lengths[document_of]
        longest = int((n + m).max())
        if longest > self.positions.num_embeddings:
            raise ValueError(
                f"a question and a document have {longest} tokens together, but there are global positions for "
                f"{self.positions.num_embeddings}; cut them first"
            )
        place = torch.arange(longest, device=n.device)
        in_question, real = place < n[:, None], place < (n + m)[:, None]
        first_q, first_d = (of.lengths.cumsum(0) - of.lengths for of in (questions, documents))
        source = torch.where(
            in_question,
            first_q[question_of][:, None] + place,
            len(questions.states) + first_d[document_of][:, None] + place - n[:, None],
        )
        states = torch.cat([questions.states, documents.states])[source.masked_fill(~real, 0)]
        return Joined(states, n, in_question, real)

    def placed(self, joined: "Joined") -> torch.Tensor:
        """Returns the inputs of the first layer: states, positions and types summed, ``(n_pairs, longest, width)``."""
        places = torch.arange(joined.states.shape[1], device=joined.states.device)
        return joined.states + self.positions(places) + self.types((~joined.in_question).long())

    def compared(self, joined: "Joined") -> torch.Tensor:
        """Returns what the classifier says of the layers' outputs, ``(n_pairs,)``."""
        states, real, n = self.placed(joined), joined.real, joined.n
        if len(self.layers) > 1:
            owner, name = self.family.layer_list(self.encoder)
            every = getattr(owner, name)
            setattr(owner, name, every[:-1])
            try:
                states = self.encoder(inputs_embeds=states, attention_mask=real.long()).last_hidden_state
            finally:
                setattr(owner, name, every)
        both = torch.stack([states[:, 0], states[torch.arange(len(n), device=n.device), n]], 1)
        return self.head(*self.outputs(self.layers[-1], both, states, real).unbind(1))

    def outputs(
        self, layer: LayerParts, asking: torch.Tensor, states: torch.Tensor, real: torch.Tensor
    ) -> torch.Tensor:
        """Returns the outputs of a layer at the asking rows, ``(n, n_asking, width)``, and computes no others.

        No token is projected: queries are multiplied by W_k instead of all keys, and W_v is applied to the weighted
        sums instead of all values. With a single joint layer, training so costs a hundredth.

        Args:
            layer: The layer.
            asking: The states of the rows whose outputs are wanted, ``(n, n_asking, width)``.
            states: The states that they attend to, ``(n, longest, width)``.
            real: Which of these are no pads, ``(n, longest)``.
        """
        dropout = functools.partial(F.dropout, p=self.dropout, training=self.training)
        heads = (self.encoder.config.num_attention_heads, -1)
        key, value = (part.weight.unflatten(0, heads) for part in (layer.key, layer.value))
        query = layer.query(asking).unflatten(-1, heads) * key.shape[1] ** -0.5
        asked = torch.einsum("nrhk,hkd->nrhd", query, key)
        logits = asked.flatten(1, 2) @ states.transpose(1, 2)
        weights = dropout(logits.float().masked_fill(~real[:, None], -torch.inf).softmax(-1)).to(states.dtype)
        context = (weights @ states).unflatten(1, asked.shape[1:3])
        bias = layer.value.bias.unflatten(0, heads) * weights.sum(-1).unflatten(1, asked.shape[1:3])[..., None]
        attended = (torch.einsum("nrhd,hkd->nrhk", context, value) + bias).flatten(2)
        attended = layer.attention_norm(dropout(layer.out(attended)) + asking)
        return layer.output_norm(dropout(layer.down(self.activation(layer.up(attended)))) + attended)


class Joined(NamedTuple):
    """Questions, each with a document behind it, padded.

    Attributes:
        states: The states, ``(n_pairs, longest, width)``.
        n: The number of the question's tokens, ``(n_pairs,)``.
        in_question: Which tokens are the question's, ``(n_pairs, longest)``.
        real: Which tokens are no pads, ``(n_pairs, longest)``.
    """

    states: torch.Tensor
    n: torch.Tensor
    in_question: torch.Tensor
    real: torch.Tensor


def late_interaction(joined: Joined) -> torch.Tensor:
    """Returns the mean over the question's tokens of the best cosine with a token of the document, ``(n_pairs,)``."""
    states, n = F.normalize(joined.states.float(), dim=-1), joined.n
    longest = int(n.max())
    cosines = states[:, :longest] @ states.transpose(1, 2)
    best = cosines.masked_fill(~(joined.real & ~joined.in_question)[:, None], -torch.inf).amax(-1)
    return best.masked_fill(~joined.in_question[:, :longest], 0).sum(1) / n


class Comparison(nn.Module):
    """Two layers with a tanh between, on the outputs of the question's CLS and of the document's (DC-6).

    Args:
        width: The width of each output.
        kind: ``"paper"`` reads both, side by side; ``"compare"`` reads their product and distance too. The paper's
            head learns slowly, and only if easy negatives come first: a tanh of a sum has to learn what a product
            shows at once.
    """

    def __init__(self, width: int, kind: str):
        super().__init__()
        self.kind = kind
        self.hidden = nn.Linear((2 if kind == "paper" else 4) * width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, question: torch.Tensor, document: torch.Tensor) -> torch.Tensor:
        """Returns the log-odds of relevance ``(n,)`` for ``(n, width)`` and ``(n, width)``."""
        read = [question, document]
        if self.kind == "compare":
            read += [question * document, (question - document).abs()]
        return self.out(self.hidden(torch.cat(read, -1)).tanh())[:, 0]
