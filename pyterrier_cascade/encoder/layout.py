"""How the tokens of a chunk lie in a tensor: end to end, or padded to a block. Layers work on either."""

from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F

POOLINGS = ("mean_nocls", "mean", "cls")
"""What a head reads of a layer's states: the mean of all symbols but the first, of all, or the first (CT-10)."""


class Packed:
    """Tokens end to end, ``(n_tokens, width)``, inputs in order of length.

    No pad is ever computed, and inputs of equal length attend together without a mask.

    Args:
        lengths: The tokens of each input, ascending, ``(n,)``.
    """

    def __init__(self, lengths: np.ndarray):
        self.lengths = lengths
        self.starts = torch.from_numpy(np.cumsum(lengths) - lengths)

    def spread(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns values of the tokens end to end, ``(n_tokens, ...)``, as this layout has them: as they are."""
        return tokens

    def pack(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns values in this layout end to end, ``(n_tokens, ...)``: as they are."""
        return hidden

    @cached_property
    def blocks(self) -> list[tuple[slice, slice, int]]:
        """The runs of inputs of equal length: their rows, their tokens and the length."""
        lengths, counts = np.unique(self.lengths, return_counts=True)
        blocks, row, token = [], 0, 0
        for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
            blocks.append((slice(row, row + count), slice(token, token + count * length), length))
            row, token = row + count, token + count * length
        return blocks

    @cached_property
    def positions(self) -> torch.Tensor:
        """The place of each token in its input, from 0, ``(n_tokens,)``."""
        return torch.arange(int(self.lengths.sum())) - torch.repeat_interleave(
            self.starts, torch.from_numpy(self.lengths)
        )

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, n_heads: int, window=None):
        """Returns attention within each input, ``(n_rows, width)``.

        Args:
            query: ``(n_tokens, width)``, or ``(n, width)`` where only the first symbol of each input asks.
            key: ``(n_tokens, width)``.
            value: ``(n_tokens, width)``.
            n_heads: The heads that the width is split into.
            window: How far a token sees to either side; the whole input if None.
        """
        one_row_each = len(query) == len(self.lengths)
        found = []
        for rows, tokens, length in self.blocks:
            asked = query[rows if one_row_each else tokens].unflatten(0, (rows.stop - rows.start, -1))
            given = (states[tokens].unflatten(0, (-1, length)) for states in (key, value))
            mask = None
            if window is not None and length > window + 1:
                mask = _near(asked.shape[1], length, window)
            found.append(_attention(asked, *given, n_heads, mask).flatten(0, 1))
        return torch.cat(found) if len(found) > 1 else found[0]

    def first(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the states of each input's first symbol, ``(n, width)``."""
        return hidden[self.starts]

    def pooled(self, hidden: torch.Tensor, pooling: str) -> torch.Tensor:
        """Returns what a head with one of the :data:`POOLINGS` reads, ``(n, width)``."""
        if pooling == "cls":
            return self.first(hidden)
        skipped = 1 if pooling == "mean_nocls" else 0
        return torch.cat(
            [hidden[tokens].unflatten(0, (-1, length))[:, skipped:].mean(1) for _, tokens, length in self.blocks]
        )


class Padded:
    """Tokens as a block, ``(n, longest, width)``: for GPUs and compiled graphs, which like one regular piece of work.

    Args:
        real: Which places hold tokens, boolean, ``(n, longest)``.
    """

    def __init__(self, real: torch.Tensor):
        self.real = real

    @classmethod
    def of(cls, lengths: np.ndarray, device: torch.device, longest: int | None = None) -> "Padded":
        """Returns the block of inputs of these lengths, ``(n,)``, as wide as the longest or as is given."""
        return cls(torch.from_numpy(np.arange(longest or lengths.max()) < lengths[:, None]).to(device))

    def spread(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns values of the tokens end to end, ``(n_tokens, ...)``, as a block, ``(n, longest, ...)``.

        Pads repeat a token of their input: what they hold is computed with, though nobody looks.
        """
        return tokens[(self.real.flatten().cumsum(0) - 1).view(self.real.shape)]

    def pack(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns values of a block, ``(n, longest, ...)``, end to end without pads, ``(n_tokens, ...)``."""
        return hidden[self.real]

    @property
    def positions(self) -> torch.Tensor:
        """The place of each token in its input, from 0, ``(n, longest)``."""
        return torch.arange(self.real.shape[1], device=self.real.device).expand(self.real.shape)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, n_heads: int, window=None):
        """Returns attention within each input, shaped like ``query``.

        Args:
            query: ``(n, longest, width)``, or ``(n, width)`` where only the first symbol of each input asks.
            key: ``(n, longest, width)``.
            value: ``(n, longest, width)``.
            n_heads: The heads that the width is split into.
            window: How far a token sees to either side; the whole input if None.
        """
        mask = self.real[:, None, None]
        asked = query[:, None] if query.dim() == 2 else query
        if window is not None:
            near, itself = (_near(asked.shape[1], key.shape[1], far).to(mask.device) for far in (window, 0))
            # A pad far behind its input would otherwise see nothing, and its NaN reach the others.
            mask = mask & near | itself
        return _attention(asked, key, value, n_heads, mask).view(query.shape)

    def first(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the states of each input's first symbol, ``(n, width)``."""
        return hidden[:, 0]

    def pooled(self, hidden: torch.Tensor, pooling: str) -> torch.Tensor:
        """Returns what a head with one of the :data:`POOLINGS` reads, ``(n, width)``."""
        if pooling == "cls":
            return self.first(hidden)
        skipped = 1 if pooling == "mean_nocls" else 0
        weights = self.real[:, skipped:].unsqueeze(-1).to(hidden.dtype)
        return (hidden[:, skipped:] * weights).sum(1) / weights.sum(1)


def _attention(query, key, value, n_heads: int, mask) -> torch.Tensor:
    """Returns ``(n, asked, width)`` for ``query (n, asked, width)`` and ``key``, ``value`` ``(n, length, width)``."""
    query, key, value = (states.unflatten(-1, (n_heads, -1)).transpose(1, 2) for states in (query, key, value))
    if mask is None and query.dtype == torch.bfloat16 and query.device.type == "cpu":
        attended = _batched_products(query, key, value)
    else:
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return attended.transpose(1, 2).flatten(2)


def _batched_products(query, key, value) -> torch.Tensor:
    """Returns the same as torch's fused attention, which takes twice the time on short inputs in bf16 on a CPU."""
    q, k, v = (states.flatten(0, 1) for states in (query, key, value))
    weights = torch.baddbmm(q.new_empty(1), q, k.transpose(1, 2), beta=0, alpha=q.shape[-1] ** -0.5).softmax(-1)
    return torch.bmm(weights, v).view(query.shape)


def _near(n_queries: int, length: int, window: int) -> torch.Tensor:
    """Returns which tokens each of the first ``n_queries`` may see, boolean, ``(n_queries, length)``."""
    return (torch.arange(n_queries)[:, None] - torch.arange(length)).abs() <= window
