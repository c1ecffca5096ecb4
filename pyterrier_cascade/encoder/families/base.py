"""The base of encoder families: a family turns a Hugging Face module into this package's own layers."""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pyterrier_cascade.encoder.device import uploaded
from pyterrier_cascade.encoder.layers import Norm, PostNormLayer
from pyterrier_cascade.encoder.linear import Linear, Make
from pyterrier_cascade.encoder.pairs import TokenPairs, runs


class Embeddings(nn.Module):
    """The states that enter the first layer: sums of table rows, normalised, and for some encoders projected.

    Args:
        tables: The weight of each table, by the name of the indices into it: ``input_ids``, ``positions``,
            ``token_type_ids``.
        norm: The norm of the sum.
        project: The linear map behind the norm (ELECTRA); the identity for other encoders.
        padding_id: The id of the padding token if positions are counted from ``padding_id + 1`` (RoBERTa), or None if
            they are counted from 0.
    """

    def __init__(self, tables: dict[str, torch.Tensor], norm: Norm, project: nn.Module, padding_id: int | None):
        super().__init__()
        self.tables, self.norm, self.project, self.padding_id = tables, norm, project, padding_id

    def forward(self, pairs: TokenPairs, rows: np.ndarray) -> torch.Tensor:
        """Returns the states of the tokens of some inputs, end to end, ``(n_tokens, width)``.

        Args:
            pairs: All inputs; token types that they do not have are 0.
            rows: The numbers of the inputs, ``(n,)``.
        """
        lengths = pairs.lengths[rows]
        tokens = runs(pairs.starts[rows], lengths)
        indices = {name: pairs.columns[name][tokens] for name in self.tables if name in pairs.columns}
        if "positions" in self.tables:
            indices["positions"] = self.positions(indices["input_ids"], lengths)
        found = (self._rows(name, indices.get(name)) for name in self.tables)
        return self.project(self.norm(functools.reduce(torch.add, found)))

    def _rows(self, name: str, indices: np.ndarray | None) -> torch.Tensor:
        """Returns the rows of a table, ``(n_tokens, width)``, or its first row if there are no indices."""
        table = self.tables[name]
        return table[0] if indices is None else F.embedding(uploaded(indices, table.device), table)

    def positions(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Returns the row of the position table for each token, ``(n_tokens,)``.

        Args:
            ids: The tokens of some inputs, end to end, ``(n_tokens,)``.
            lengths: The number of tokens of each input, ``(n,)``.
        """
        if self.padding_id is None:
            return runs(np.zeros_like(lengths), lengths)
        # RoBERTa does not count padding tokens, even where a text itself contains one.
        real = ids != self.padding_id
        counted = np.cumsum(real)
        before = np.repeat((counted - real)[np.cumsum(lengths) - lengths], lengths)
        return np.where(real, counted - before, 0) + self.padding_id


@dataclass(frozen=True)
class Encoder:
    """An encoder that was taken apart.

    Attributes:
        embeddings: The embeddings, from indices to states.
        layers: The layers, in order.
        norm: The norm between any layer and a head: ModernBERT's final norm, and the identity for other encoders.
        width: The width of the states.
    """

    embeddings: Embeddings
    layers: list[nn.Module]
    norm: nn.Module
    width: int


@dataclass(frozen=True)
class LayerParts:
    """The Hugging Face modules of one layer with BERT's architecture."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    out: nn.Linear
    attention_norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    output_norm: nn.LayerNorm


class Weights:
    """Turns Hugging Face's modules into modules for inference, on one device, in one type, with one kind of linear map.

    Args:
        device: The device.
        dtype: The type of states and weights.
        make: The class of the linear maps.
        together: Whether maps that take the same input are one map too, which is one product in place of several. It
            needs plain linear maps: the single ones are parts of it.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, make: Make = Linear, together: bool = False):
        self.device, self.dtype, self.make, self.together = device, dtype, make, together

    def tensor(self, weight: torch.Tensor | None) -> torch.Tensor | None:
        """Returns a weight on the device in the type; the user's own tensor if it has both already."""
        return None if weight is None else weight.detach().to(self.device, self.dtype)

    def linear(self, *parts: nn.Linear, activation: str | None = None) -> nn.Module:
        """Returns one linear map whose output is the outputs of several maps side by side.

        Args:
            *parts: The maps, which take the same input.
            activation: The name of the activation behind the map, or None.
        """
        bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
        return self.raw(torch.cat([part.weight for part in parts]), bias, activation)

    def raw(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None = None) -> nn.Module:
        """Returns a linear map with a weight ``(out, in)`` and a bias ``(out,)`` or None."""
        return self.make(self.tensor(weight), self.tensor(bias), activation)

    def divided(
        self, n: int, *parts: nn.Linear, activation: str | None = None
    ) -> tuple[nn.Module, nn.Module, nn.Module | None]:
        """Returns maps of the first outputs of some maps side by side, of the others, and of all; None for the last
        unless ``together``.

        Args:
            n: The number of the first outputs.
            *parts: The maps, which take the same input.
            activation: The name of the activation behind the first outputs, which the map of all leaves out.
        """
        weight = torch.cat([part.weight for part in parts])
        bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
        every = None
        if self.together:
            every = self.raw(weight, bias)
            weight, bias = every.weight, every.bias
        biases = (None, None) if bias is None else (bias[:n], bias[n:])
        return self.raw(weight[:n], biases[0], activation), self.raw(weight[n:], biases[1]), every

    def norm(self, norm: nn.Module) -> nn.Module:
        """Returns a layer norm for inference; an identity stays an identity."""
        if isinstance(norm, nn.Identity):
            return nn.Identity()
        return Norm(self.tensor(norm.weight), self.tensor(norm.bias), norm.eps)

    def embeddings(self, tables: dict[str, nn.Embedding], norm, project=None, padding_id=None) -> Embeddings:
        """Returns the embeddings, in fp32: looking rows up costs nothing, and the states are cast afterwards.

        Args:
            tables: The tables by the names of their indices, as :class:`Embeddings` takes them.
            norm: The norm of the sum.
            project: The linear map behind the norm, or None.
            padding_id: The id of the padding token if positions are counted from it, or None.
        """
        exact = Weights(self.device, torch.float32)
        weights = {name: exact.tensor(table.weight) for name, table in tables.items()}
        project = nn.Identity() if project is None else exact.linear(project)
        return Embeddings(weights, exact.norm(norm), project, padding_id)


def first_of_sequence() -> nn.Module:
    """Returns a map of pooled states to sequences of one state, for modules that read the first of a sequence."""
    return nn.Unflatten(1, (1, -1))


class Family(ABC):
    """A family of encoders that the engine can run layer by layer.

    Everything that depends on a ``model_type`` is an attribute or a method of this class; no other code branches on it.
    A new family is one file with a subclass, and one entry in ``families/__init__.py``.
    """

    model_types: ClassVar[tuple[str, ...]]
    """The values of ``config.model_type`` that belong to the family."""
    has_position_table: ClassVar[bool] = True
    """Whether positions are rows of a trained table."""
    has_tanh_head: ClassVar[bool] = False
    """Whether Hugging Face's classifier is a dense layer, a tanh and a linear map (TA-2)."""

    @abstractmethod
    def take_apart(self, encoder: nn.Module, weights: Weights) -> Encoder:
        """Returns an encoder as layers that can be run one by one.

        Args:
            encoder: A Hugging Face encoder of the family, without a head on top.
            weights: The device, the type and the kind of linear maps of the copied weights.
        """

    def layer_list(self, encoder: nn.Module) -> tuple[nn.Module, str]:
        """Returns the module that holds an encoder's layers, and the name of its attribute with the list of layers."""
        return encoder.encoder, "layer"

    def final_norm(self, encoder: nn.Module) -> nn.Module:
        """Returns the norm behind the last layer, or the identity; heads at earlier layers use it too."""
        return nn.Identity()

    def truncate(self, config: Any, layers: int) -> None:
        """Changes a configuration, in place, to that of an encoder with only the first layers.

        Args:
            config: The configuration.
            layers: The number of layers to keep.
        """
        config.num_hidden_layers = layers

    def first_position(self, config: Any) -> int:
        """Returns the row of the position table that the first token uses."""
        return 0

    def deciding_fields(self, config: Any) -> dict[str, Any]:
        """Returns what scores depend on and only this family has, alike in all versions of transformers.

        :data:`pyterrier_cascade.identity.SCORING` has the fields that several families share.
        """
        return {}

    def classifier_pooling(self, config: Any) -> str:
        """Returns the pooling of Hugging Face's classifier of the family, one of the engine's ``POOLINGS``."""
        return "cls"

    @abstractmethod
    def classifier(self, module: nn.Module) -> nn.Module:
        """Returns the head of a classifier: from pooled states ``(n, width)`` to logits ``(n, outputs)``."""

    def dense_before_tanh(self, module: nn.Module) -> nn.Linear:
        """Returns the dense layer before the tanh of a classifier, if :attr:`has_tanh_head` is true."""
        raise NotImplementedError


class PostNormFamily(Family):
    """A family whose layers have BERT's architecture: attention, addition, norm; feed-forward, addition, norm."""

    def take_apart(self, encoder: nn.Module, weights: Weights) -> Encoder:
        """Returns the encoder as layers that can be run one by one."""
        config, tables = encoder.config, encoder.embeddings
        named = {"input_ids": tables.word_embeddings, "positions": tables.position_embeddings}
        if hasattr(tables, "token_type_embeddings"):
            named["token_type_ids"] = tables.token_type_embeddings
        first = self.first_position(config)
        embeddings = weights.embeddings(
            named,
            tables.LayerNorm,
            project=getattr(encoder, "embeddings_project", None),
            padding_id=first - 1 if first else None,
        )
        return Encoder(embeddings, self.layers(encoder, weights), nn.Identity(), config.hidden_size)

    @abstractmethod
    def layer_parts(self, encoder: nn.Module) -> list[LayerParts]:
        """Returns the Hugging Face modules of each layer."""

    def activation(self, config: Any) -> str:
        """Returns the name of the activation in the feed-forward part of a layer."""
        return config.hidden_act

    def dropout(self, config: Any) -> float:
        """Returns the dropout probability of the layers."""
        return config.hidden_dropout_prob

    def layers(self, encoder: nn.Module, weights: Weights) -> list[PostNormLayer]:
        """Returns the layers of an encoder, ready for inference.

        Args:
            encoder: A Hugging Face encoder of the family; its embeddings are not read.
            weights: The device, the type and the kind of linear maps of the copied weights.
        """
        config, layers = encoder.config, []
        for parts in self.layer_parts(encoder):
            width = parts.query.out_features
            query, key_value, every = weights.divided(width, parts.query, parts.key, parts.value)
            layers.append(
                PostNormLayer(
                    query,
                    key_value,
                    weights.linear(parts.out),
                    weights.norm(parts.attention_norm),
                    weights.linear(parts.up, activation=self.activation(config)),
                    weights.linear(parts.down),
                    weights.norm(parts.output_norm),
                    config.num_attention_heads,
                    every,
                )
            )
        return layers
