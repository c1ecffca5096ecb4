"""The layers of an encoder, for inference only: few large linear maps, and any layout of the tokens."""

import torch
import torch.nn.functional as F
from torch import nn

from pyterrier_cascade.encoder.layout import Packed, Padded

Layout = Packed | Padded


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
    """

    def __init__(self, query, key_value, out, attention_norm, up, down, output_norm, n_heads: int):
        super().__init__()
        self.query, self.key_value, self.out, self.attention_norm = query, key_value, out, attention_norm
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
        key, value = self.key_value(hidden).chunk(2, -1)
        attended = layout.attend(self.query(asking), key, value, self.n_heads)
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
    """

    def __init__(
        self, attention_norm, query, key_value, out, feed_norm, up, gate, down, cos, sin, n_heads: int, window=None
    ):
        super().__init__()
        self.attention_norm, self.query, self.key_value, self.out = attention_norm, query, key_value, out
        self.feed_norm, self.up, self.gate, self.down = feed_norm, up, gate, down
        self.cos, self.sin, self.n_heads, self.window = cos, sin, n_heads, window

    def forward(self, hidden: torch.Tensor, layout: Layout, first_only: bool = False) -> torch.Tensor:
        """Returns the states after this layer, shaped like ``hidden``; ``(n, width)`` with ``first_only``.

        Args:
            hidden: The states before this layer, in the shape of the layout.
            layout: The layout of the tokens.
            first_only: Whether to compute only the state of each input's first symbol.
        """
        normed = self.attention_norm(hidden)
        asking, residual = (layout.first(x) if first_only else x for x in (normed, hidden))
        positions = layout.positions
        key, value = self.key_value(normed).chunk(2, -1)
        # The first symbol is at position 0, where the rotation changes nothing.
        query = self.query(asking) if first_only else self._rotated(self.query(asking), positions)
        attended = layout.attend(query, self._rotated(key, positions), value, self.n_heads, self.window)
        residual = self.out(attended, add=residual)
        normed = self.feed_norm(residual)
        return self.down(self.up(normed) * self.gate(normed), add=residual)

    def _rotated(self, states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        heads = states.unflatten(-1, (self.n_heads, -1)).float()
        left, right = heads.chunk(2, -1)
        cos, sin = self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2)
        return (heads * cos + torch.cat((-right, left), -1) * sin).to(states.dtype).flatten(-2)
