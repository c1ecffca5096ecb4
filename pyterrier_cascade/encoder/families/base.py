"""What an encoder family is: how a Hugging Face module of that family is taken apart into layers of ours."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pyterrier_cascade.encoder.layers import Norm, PostNormLayer
from pyterrier_cascade.encoder.linear import Linear, Make
from pyterrier_cascade.encoder.pairs import TokenPairs, runs


class Embeddings(nn.Module):
    """The states that enter the first layer: sums of table rows, normalised and perhaps projected.

    Args:
        tables: The weight of each table by the name of its index: ``input_ids``, ``positions``, ``token_type_ids``.
        norm: Applied to the sum.
        project: Applied to the norm (ELECTRA).
        padding_id: The padding token where positions count from behind its number (RoBERTa), or None where positions
            count from 0.
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
        """Returns the indices that :meth:`forward` takes for some inputs, end to end, each ``(n_tokens,)``."""
        starts, lengths = pairs.starts[rows], pairs.lengths[rows]
        tokens = runs(starts, lengths)
        found = {name: pairs.columns[name][tokens] for name in self.tables if name in pairs.columns}
        if "positions" in self.tables:
            found["positions"] = self._positions(found["input_ids"], lengths)
        return found

    def _positions(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        if self.padding_id is None:
            return runs(np.zeros_like(lengths), lengths)
        # A text may spell the padding token, which RoBERTa does not count.
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
        norm: Applied to the states of any layer before a head reads them (ModernBERT's final norm, else nothing).
        width: The width of the states.
    """

    embeddings: Embeddings
    layers: list[nn.Module]
    norm: nn.Module
    width: int


@dataclass(frozen=True)
class LayerParts:
    """The modules of a layer after BERT's plan: linear maps and norms, the library's own with their gradients."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    out: nn.Linear
    attention_norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    output_norm: nn.LayerNorm


class Weights:
    """Copies weights to the device, the type and the kind of linear map that they are computed with.

    Args:
        device: The device.
        dtype: The type of states and weights.
        make: Makes the linear maps.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, make: Make = Linear):
        self.device, self.dtype, self.make = device, dtype, make

    def tensor(self, weight: torch.Tensor | None) -> torch.Tensor | None:
        """Returns the weight; the user's own tensor, not a copy, where nothing has to change."""
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
        """Returns the embeddings; they stay in fp32, because a lookup costs nothing, and are cast at their end."""
        exact = Weights(self.device, torch.float32)
        weights = {name: exact.tensor(table.weight) for name, table in tables.items()}
        project = nn.Identity() if project is None else exact.linear(project)
        return Embeddings(weights, exact.norm(norm), project, padding_id)


class Family(ABC):
    """How encoders of one family are run layer by layer. A new family is a file and a line in ``families/__init__``.

    Everything that depends on a ``model_type`` is a method here, so that no other code asks for it.
    """

    model_types: ClassVar[tuple[str, ...]]
    """The ``model_type`` of the configurations that belong to the family."""
    has_position_table: ClassVar[bool] = True
    """Whether positions are rows of a trained table."""
    has_tanh_head: ClassVar[bool] = False
    """Whether Hugging Face's classifier consists of a dense layer, a tanh and a linear map (TA-2)."""

    @abstractmethod
    def take_apart(self, encoder: nn.Module, weights: Weights) -> Encoder:
        """Returns an encoder without a head on top as layers that can be run one by one."""

    def layer_list(self, encoder: nn.Module) -> tuple[nn.Module, str]:
        """Returns the module that holds an encoder's layers, and the name of its list of them."""
        return encoder.encoder, "layer"

    def final_norm(self, encoder: nn.Module) -> nn.Module:
        """Returns the norm behind the last layer, which heads at earlier layers read through too."""
        return nn.Identity()

    def truncate(self, config: Any, layers: int) -> None:
        """Changes a configuration to that of the first layers."""
        config.num_hidden_layers = layers

    def first_position(self, config: Any) -> int:
        """Returns the row of the position table that the first token uses."""
        return 0

    def classifier_pooling(self, config: Any) -> str:
        """Returns how Hugging Face's classifier of the family reads the last layer."""
        return "cls"

    @abstractmethod
    def classifier(self, module: nn.Module) -> nn.Module:
        """Returns the part of a Hugging Face classifier above the encoder: pooled states ``(n, width)`` to logits."""

    def dense_before_tanh(self, module: nn.Module) -> nn.Linear:
        """Returns the dense layer of a classifier where :attr:`has_tanh_head` is true."""
        raise NotImplementedError


class PostNormFamily(Family):
    """A family with layers after BERT's plan: attention, addition, norm; feed-forward, addition, norm."""

    @abstractmethod
    def layer_parts(self, encoder: nn.Module) -> list[LayerParts]:
        """Returns the parts of each layer."""

    def activation(self, config: Any) -> str:
        """Returns the name of the activation behind a layer's ``up``."""
        return config.hidden_act

    def dropout(self, config: Any) -> float:
        """Returns the dropout of the layers."""
        return config.hidden_dropout_prob

    def layers(self, encoder: nn.Module, weights: Weights) -> list[PostNormLayer]:
        """Returns the layers alone, ready for inference; the embeddings are not used."""
        config = encoder.config
        with torch.no_grad():
            return [
                PostNormLayer(
                    weights.linear(parts.query),
                    weights.linear(parts.key, parts.value),
                    weights.linear(parts.out),
                    weights.norm(parts.attention_norm),
                    weights.linear(parts.up, activation=self.activation(config)),
                    weights.linear(parts.down),
                    weights.norm(parts.output_norm),
                    config.num_attention_heads,
                )
                for parts in self.layer_parts(encoder)
            ]


class Stack(nn.Module):
    """Modules applied one after the other to pooled states; some of them want a sequence, ``(n, 1, width)``.

    Args:
        *steps: Pairs of a module and whether it wants a sequence.
    """

    def __init__(self, *steps: tuple[nn.Module, bool]):
        super().__init__()
        self.steps = nn.ModuleList(module for module, _ in steps)
        self.sequences = [sequence for _, sequence in steps]

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Returns logits ``(n, outputs)`` for ``(n, width)``."""
        for step, sequence in zip(self.steps, self.sequences, strict=True):
            pooled = step(pooled[:, None] if sequence else pooled)
        return pooled
