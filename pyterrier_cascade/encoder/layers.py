"""The layers of an encoder, for inference only: few large linear maps, and any layout of the tokens."""

import torch
import torch.nn.functional as F
from torch import nn

from pyterrier_cascade.encoder.jagged import Jagged
from pyterrier_cascade.encoder.layout import Packed, Padded

Layout = Packed | Padded | Jagged


class Norm(nn.Module):
    """Layer normalisation with given weights.

    Args:
        weight: The weight, ``(width,)``.
        bias: The bias, ``(width,)``, or None.
        eps: The number that is added to the variance.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, eps: float):
        super().__init__()
        self.weight, self.bias, self.eps = weight, bias, eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the normalised states, shaped like ``x``."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class PostNormLayer(nn.Module):
    """BERT's layer: attention, addition, norm; feed-forward, addition, norm.

    Args:
        query: The linear map of the queries, from ``width`` to ``width``.
        key_value: The linear map of keys and values, from ``width`` to ``2 * width``.
        out: The linear map behind the attention, from ``width`` to ``width``.
        attention_norm: The norm after the first addition.
        up: The linear map from ``width`` to the feed-forward width, with its activation.
        down: The linear map from the feed-forward width back to ``width``.
        output_norm: The norm after the second addition.
        n_heads: The number of attention heads.
        query_key_value: The linear map of queries, keys and values at once, from ``width`` to ``3 * width``, or None.
    """

    def __init__(
        self, query, key_value, out, attention_norm, up, down, output_norm, n_heads: int, query_key_value=None
    ):
        super().__init__()
        self.query, self.key_value, self.out, self.attention_norm = query, key_value, out, attention_norm
        self.query_key_value = query_key_value
        self.up, self.down, self.output_norm, self.n_heads = up, down, output_norm, n_heads

    def forward(self, hidden: torch.Tensor, layout: Layout, first_only: bool = False) -> torch.Tensor:
        """Returns the states after this layer, shaped like ``hidden``; ``(n, width)`` with ``first_only``.

        Args:
            hidden: The states before this layer, in the shape of the layout.
            layout: The layout of the tokens.
            first_only: Whether to compute only the state of each input's first symbol. This is enough for a head that
                reads nothing else.
        """
        asking = layout.first(hidden) if first_only else hidden
        if first_only or self.query_key_value is None:
            query, (key, value) = self.query(asking), self.key_value(hidden).chunk(2, -1)
        else:
            query, key, value = self.query_key_value(hidden).chunk(3, -1)
        attended = layout.attend(query, key, value, self.n_heads)
        attended = self.attention_norm(self.out(attended, add=asking))
        return self.output_norm(self.down(self.up(attended), add=attended))


class ModernLayer(nn.Module):
    """ModernBERT's layer: norms first, rotary positions, a gated feed-forward, and attention in a window.

    Args:
        attention_norm: The norm before the attention; the identity in the first layer.
        query: The linear map of the queries, from ``width`` to ``width``.
        key_value: The linear map of keys and values, from ``width`` to ``2 * width``.
        out: The linear map behind the attention, from ``width`` to ``width``.
        feed_norm: The norm before the feed-forward.
        up: The linear map from ``width`` to the feed-forward width, with its activation.
        gate: The linear map of the gate, from ``width`` to the feed-forward width.
        down: The linear map from the feed-forward width back to ``width``.
        cos: The cosines of the rotation at each position, ``(positions, head_width)``.
        sin: The sines of the rotation at each position, ``(positions, head_width)``.
        n_heads: The number of attention heads.
        window: The number of tokens that a token sees to either side; None lets it see the whole input.
        query_key_value: The linear map of queries, keys and values at once, from ``width`` to ``3 * width``, or None.
        up_gate: The linear map to the feed-forward width and of the gate at once, without activation, or None.
    """

    def __init__(
        self,
        attention_norm,
        query,
        key_value,
        out,
        feed_norm,
        up,
        gate,
        down,
        cos,
        sin,
        n_heads: int,
        window: int | None = None,
        query_key_value=None,
        up_gate=None,
    ):
        super().__init__()
        self.attention_norm, self.query, self.key_value, self.out = attention_norm, query, key_value, out
        self.feed_norm, self.up, self.gate, self.down = feed_norm, up, gate, down
        self.cos, self.sin, self.n_heads, self.window = cos, sin, n_heads, window
        self.query_key_value, self.up_gate = query_key_value, up_gate

    def forward(self, hidden: torch.Tensor, layout: Layout, first_only: bool = False) -> torch.Tensor:
        """Returns the states after this layer, shaped like ``hidden``; ``(n, width)`` with ``first_only``.

        Args:
            hidden: The states before this layer, in the shape of the layout.
            layout: The layout of the tokens.
            first_only: Whether to compute only the state of each input's first symbol.
        """
        normed = self.attention_norm(hidden)
        asking, residual = (layout.first(x) if first_only else x for x in (normed, hidden))
        if first_only or self.query_key_value is None:
            key, value = self.key_value(normed).chunk(2, -1)
            # The first symbol is at position 0, where the rotation changes nothing.
            query = self.query(asking) if first_only else self._rotated(self.query(asking), layout, self.n_heads)
            key = self._rotated(key, layout, self.n_heads)
        else:
            width = normed.shape[-1]
            query_key, value = self.query_key_value(normed).split([2 * width, width], -1)
            query, key = self._rotated(query_key, layout, 2 * self.n_heads).chunk(2, -1)
        attended = layout.attend(query, key, value, self.n_heads, self.window)
        residual = self.out(attended, add=residual)
        return self.down(self._fed(self.feed_norm(residual)), add=residual)

    def _fed(self, normed: torch.Tensor) -> torch.Tensor:
        if self.up_gate is None:
            return self.up(normed) * self.gate(normed)
        up, gate = self.up_gate(normed).chunk(2, -1)
        return self.up.activation(up) * gate

    def _rotated(self, states: torch.Tensor, layout: Layout, n_heads: int) -> torch.Tensor:
        heads = states.unflatten(-1, (n_heads, -1)).float()
        left, right = heads.chunk(2, -1)
        cos, sin = layout.at_positions(self.cos).unsqueeze(-2), layout.at_positions(self.sin).unsqueeze(-2)
        return (heads * cos + torch.cat((-right, left), -1) * sin).to(states.dtype).flatten(-2)
