"""Which Hugging Face encoders can be run layer by layer, and where their weights are.

A family is a function that takes a Hugging Face module apart; a new one is a function and a line in
:data:`FAMILIES`.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pyterrier_cascade.encoder.layers import ModernLayer, Norm, PostNormLayer
from pyterrier_cascade.encoder.linear import Linear, Make
from pyterrier_cascade.encoder.pairs import TokenPairs, runs


class Embeddings(nn.Module):
    """The states that enter the first layer: sums of table rows, normalised and perhaps projected.

    Args:
        tables: The weight of each table by the name of what it is indexed with: ``input_ids``, ``positions``,
            ``token_type_ids``.
        norm: Applied to the sum.
        project: Applied to the norm (ELECTRA).
        padding_id: The token that has no position of its own, behind whose number the others' begin (RoBERTa), or
            None where positions count from 0.
    """

    def __init__(self, tables: dict[str, torch.Tensor], norm: Norm, project: nn.Module, padding_id: int | None):
        super().__init__()
        self.tables, self.norm, self.project, self.padding_id = tables, norm, project, padding_id

    def forward(self, **indices: torch.Tensor) -> torch.Tensor:
        """Returns ``(..., width)``; token types that are not given are 0."""
        total = F.embedding(indices["input_ids"], self.tables["input_ids"])
        if "positions" in self.tables:
            total = total + F.embedding(indices["positions"], self.tables["positions"])
        if "token_type_ids" in self.tables:
            types = indices.get("token_type_ids")
            table = self.tables["token_type_ids"]
            total = total + (table[0] if types is None else F.embedding(types, table))
        return self.project(self.norm(total))

    def indices(self, pairs: TokenPairs, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns what :meth:`forward` looks up for some inputs, end to end, each ``(n_tokens,)``."""
        starts, lengths = pairs.starts[rows], pairs.lengths[rows]
        tokens = runs(starts, lengths)
        found = {name: pairs.columns[name][tokens] for name in self.tables if name in pairs.columns}
        if "positions" in self.tables:
            found["positions"] = self._positions(found["input_ids"], lengths)
        return found

    def _positions(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        if self.padding_id is None:
            return runs(np.zeros_like(lengths), lengths)
        # A text may spell the padding token; RoBERTa does not count it.
        real = ids != self.padding_id
        counted = np.cumsum(real)
        before = np.repeat((counted - real)[np.cumsum(lengths) - lengths], lengths)
        return np.where(real, counted - before, 0) + self.padding_id


@dataclass(frozen=True)
class Encoder:
    """An encoder taken apart.

    Attributes:
        embeddings: From indices to states.
        layers: One after the other.
        norm: What a head's reading of any layer goes through first (ModernBERT's final norm, else nothing).
        width: The width of the states.
    """

    embeddings: Embeddings
    layers: list[nn.Module]
    norm: nn.Module
    width: int


class Weights:
    """Copies weights to where and how they are computed with.

    Args:
        device: The device.
        dtype: The type of states and weights.
        make: Makes the linear maps.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, make: Make = Linear):
        self.device, self.dtype, self.make = device, dtype, make

    def tensor(self, weight: torch.Tensor | None) -> torch.Tensor | None:
        """Returns the weight; the user's own tensor, not a copy, where it already is as needed."""
        return None if weight is None else weight.detach().to(self.device, self.dtype)

    def linear(self, *parts: nn.Linear, activation: str | None = None) -> nn.Module:
        """Returns one map that gives the results of several side by side."""
        bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
        return self.raw(torch.cat([part.weight for part in parts]), bias, activation)

    def raw(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None = None) -> nn.Module:
        """Returns a map of given weights."""
        return self.make(self.tensor(weight), self.tensor(bias), activation)

    def norm(self, norm: nn.Module) -> nn.Module:
        """Returns the norm."""
        if isinstance(norm, nn.Identity):
            return nn.Identity()
        return Norm(self.tensor(norm.weight), self.tensor(norm.bias), norm.eps)

    def embeddings(self, tables: dict[str, nn.Embedding], norm, project=None, padding_id=None) -> Embeddings:
        """Returns the embeddings; in fp32, for a lookup costs nothing, and cast at their end."""
        exact = Weights(self.device, torch.float32)
        weights = {name: exact.tensor(table.weight) for name, table in tables.items()}
        project = nn.Identity() if project is None else exact.linear(project)
        return Embeddings(weights, exact.norm(norm), project, padding_id)


def _bert(encoder, config, weights: Weights) -> Encoder:
    tables = encoder.embeddings
    embeddings = weights.embeddings(
        {
            "input_ids": tables.word_embeddings,
            "positions": tables.position_embeddings,
            "token_type_ids": tables.token_type_embeddings,
        },
        tables.LayerNorm,
        getattr(encoder, "embeddings_project", None),
        padding_id=config.pad_token_id if config.model_type in PADDING_FIRST else None,
    )
    return Encoder(embeddings, post_norm_layers(encoder, weights), nn.Identity(), config.hidden_size)


def _bert_parts(encoder) -> list["Parts"]:
    return [
        Parts(
            *(layer.attention.self.query, layer.attention.self.key, layer.attention.self.value),
            *(layer.attention.output.dense, layer.attention.output.LayerNorm),
            *(layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm),
        )
        for layer in encoder.encoder.layer
    ]


def _distilbert(encoder, config, weights: Weights) -> Encoder:
    tables = encoder.embeddings
    embeddings = weights.embeddings(
        {"input_ids": tables.word_embeddings, "positions": tables.position_embeddings}, tables.LayerNorm
    )
    return Encoder(embeddings, post_norm_layers(encoder, weights), nn.Identity(), config.dim)


def _distilbert_parts(encoder) -> list["Parts"]:
    return [
        Parts(
            *(layer.attention.q_lin, layer.attention.k_lin, layer.attention.v_lin),
            *(layer.attention.out_lin, layer.sa_layer_norm),
            *(layer.ffn.lin1, layer.ffn.lin2, layer.output_layer_norm),
        )
        for layer in encoder.transformer.layer
    ]


def _modernbert(encoder, config, weights: Weights) -> Encoder:
    tables = encoder.embeddings
    embeddings = weights.embeddings({"input_ids": tables.tok_embeddings}, tables.norm)
    rotary = {}
    layers = []
    for layer in encoder.layers:
        attention, feed = layer.attn, layer.mlp
        kind = "sliding_attention" if _is_local(layer) else "full_attention"
        if kind not in rotary:
            rotary[kind] = tuple(table.to(weights.device) for table in _rotary(encoder, layer, kind, config))
        qkv, bias = attention.Wqkv.weight, attention.Wqkv.bias
        query, key_value = (
            weights.raw(qkv[part], None if bias is None else bias[part])
            for part in (slice(0, config.hidden_size), slice(config.hidden_size, None))
        )
        (up, gate), biases = feed.Wi.weight.chunk(2), (None, None) if feed.Wi.bias is None else feed.Wi.bias.chunk(2)
        layers.append(
            ModernLayer(
                weights.norm(layer.attn_norm),
                query,
                key_value,
                weights.linear(attention.Wo),
                weights.norm(layer.mlp_norm),
                weights.raw(up, biases[0], config.hidden_activation),
                weights.raw(gate, biases[1]),
                weights.linear(feed.Wo),
                *rotary[kind],
                config.num_attention_heads,
                config.local_attention // 2 if kind == "sliding_attention" else None,
            )
        )
    return Encoder(embeddings, layers, weights.norm(encoder.final_norm), config.hidden_size)


def _is_local(layer) -> bool:
    """Returns whether the layer sees a window only; transformers 4 and 5 say it differently."""
    if hasattr(layer, "attention_type"):
        return layer.attention_type == "sliding_attention"
    return layer.attn.local_attention != (-1, -1)


def _rotary(encoder, layer, kind: str, config) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the cosines and sines that the library itself computes, each ``(positions, head_width)``."""
    positions = torch.arange(config.max_position_embeddings, device=encoder.final_norm.weight.device)[None]
    like = encoder.final_norm.weight.detach().float()
    shared = getattr(encoder, "rotary_emb", None)
    if shared is not None:
        cos, sin = shared(like, positions, kind)
    else:
        cos, sin = layer.attn.rotary_emb(like, position_ids=positions)
    return cos[0], sin[0]


FAMILIES: dict[str, Callable[..., Encoder]] = {
    "bert": _bert,
    "roberta": _bert,
    "xlm-roberta": _bert,
    "camembert": _bert,
    "electra": _bert,
    "distilbert": _distilbert,
    "modernbert": _modernbert,
}
"""How to take an encoder apart, by the ``model_type`` of its configuration; MiniLM's is ``bert``."""

PADDING_FIRST = ("roberta", "xlm-roberta", "camembert")
"""The families whose first position lies behind the padding id."""


def check_family(config) -> None:
    """Raises where an encoder is of no family that can be run layer by layer."""
    name = config.model_type
    if name not in FAMILIES:
        raise ValueError(
            f"encoders of type {name!r} cannot be run layer by layer; supported are {', '.join(sorted(FAMILIES))} "
            f"(MiniLM is one of bert)"
        )
    relative = getattr(config, "position_embedding_type", None) or "absolute"
    if relative != "absolute":
        raise ValueError(f"this {name} encoder has {relative!r} positions; only 'absolute' ones are supported")
    if getattr(config, "is_decoder", False):
        raise ValueError(f"this {name} model is a decoder (is_decoder=True in its config.json); give an encoder")


def layers_of(encoder: nn.Module) -> tuple[nn.Module, str]:
    """Returns the module that holds an encoder's layers, and the name of its list of them."""
    owner = getattr(encoder, "encoder", None) or getattr(encoder, "transformer", None) or encoder
    return owner, "layer" if hasattr(owner, "layer") else "layers"


def take_apart(encoder: nn.Module, weights: Weights) -> Encoder:
    """Returns the encoder as layers that can be run one by one.

    Args:
        encoder: A Hugging Face encoder without a head on top (``module.base_model`` of one with a head).
        weights: Where and how it will be computed with.
    """
    check_family(encoder.config)
    with torch.no_grad():
        return FAMILIES[encoder.config.model_type](encoder, encoder.config, weights)


@dataclass(frozen=True)
class Parts:
    """The modules of a layer after BERT's plan: linear maps and norms, the library's own with their gradients."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    out: nn.Linear
    attention_norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    output_norm: nn.LayerNorm


def parts_of(encoder: nn.Module) -> list[Parts]:
    """Returns the parts of each layer of an encoder of a family other than ModernBERT's."""
    return (_distilbert_parts if encoder.config.model_type == "distilbert" else _bert_parts)(encoder)


def activation_of(config) -> str:
    """Returns the name of the activation behind a layer's ``up``."""
    return config.activation if config.model_type == "distilbert" else config.hidden_act


def post_norm_layers(encoder: nn.Module, weights: Weights) -> list[PostNormLayer]:
    """Returns the layers alone of an encoder that has them after BERT's plan; its embeddings are not looked at.

    Args:
        encoder: A Hugging Face encoder of a family other than ModernBERT's.
        weights: Where and how they will be computed with.
    """
    config = encoder.config
    with torch.no_grad():
        return [
            PostNormLayer(
                weights.linear(parts.query),
                weights.linear(parts.key, parts.value),
                weights.linear(parts.out),
                weights.norm(parts.attention_norm),
                weights.linear(parts.up, activation=activation_of(config)),
                weights.linear(parts.down),
                weights.norm(parts.output_norm),
                config.num_attention_heads,
            )
            for parts in parts_of(encoder)
        ]


@dataclass(frozen=True)
class Head:
    """What gives scores after a layer.

    Attributes:
        layer: The layer whose states it reads, from 1.
        pooling: How it reads them, one of :data:`~pyterrier_cascade.encoder.layout.POOLINGS`.
        module: From pooled states ``(n, width)`` to relevance ``(n,)``.
    """

    layer: int
    pooling: str
    module: nn.Module

    def to(self, device: torch.device) -> "Head":
        """Returns a copy for inference on a device."""
        return Head(self.layer, self.pooling, copy.deepcopy(self.module).to(device).eval())
