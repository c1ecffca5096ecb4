"""The two layouts of a chunk's tokens in a tensor: end to end, or padded to a block. Layers work on both."""

from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F

POOLINGS = ("mean_nocls", "mean", "cls")
"""The vectors that a head may read (CT-10).

``"mean_nocls"`` is the mean of all symbols except the first. ``"mean"`` is the mean of all symbols. ``"cls"`` is the
first symbol.
"""

ROUND = 16
"""The number of rows of a packed chunk is a multiple of this, because oneDNN compiles code for each new number."""


class Packed:
    """Tokens end to end, ``(n_rows, width)``, with a few rows of filler behind them.

    Args:
        lengths: The tokens of each input, ascending, ``(n,)``.
        merge: Attention is computed for several inputs at once, padded and masked, if the shortest of them has at least
            this share of the tokens of the longest. At 1, inputs must have equal lengths.
    """

    def __init__(self, lengths: np.ndarray, merge: float = 1.0):
        self.lengths, self.merge = lengths, merge
        self.starts = torch.from_numpy(np.cumsum(lengths) - lengths)
        self.n_tokens = int(lengths.sum())
        self.n_fillers = -self.n_tokens % ROUND

    def spread(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns values of tokens end to end, ``(n_tokens, ...)``, with zeros as fillers, ``(n_rows, ...)``."""
        return torch.cat([tokens, tokens.new_zeros(self.n_fillers, *tokens.shape[1:])])

    def pack(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns values in this layout, ``(n_rows, ...)``, end to end without fillers, ``(n_tokens, ...)``."""
        return hidden[: self.n_tokens]

    @cached_property
    def blocks(self) -> list["_SimilarLengths"]:
        """The groups of inputs whose attention is computed at once."""
        blocks, end = [], len(self.lengths)
        while end:
            longest = int(self.lengths[end - 1])
            start = int(np.searchsorted(self.lengths[:end], self.merge * longest))
            of_group = slice(start, end)
            blocks.append(_SimilarLengths(of_group, int(self.starts[start]), self.lengths[of_group], self.merge < 1))
            end = start
        return blocks[::-1]

    @cached_property
    def owners(self) -> torch.Tensor:
        """The input of each token, ``(n_tokens,)``."""
        return torch.repeat_interleave(torch.from_numpy(self.lengths))

    @cached_property
    def positions(self) -> torch.Tensor:
        """The position of each token in its input, from 0, ``(n_rows,)``."""
        return self.spread(torch.arange(self.n_tokens) - self.starts[self.owners])

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, n_heads: int, window=None):
        """Returns attention within each input, shaped like ``query``.

        Args:
            query: ``(n_rows, width)``, or ``(n, width)`` for the first symbol of each input only.
            key: ``(n_rows, width)``.
            value: ``(n_rows, width)``.
            n_heads: The number of heads that the width is split into.
            window: The number of tokens that a token sees to either side; None lets it see the whole input.
        """
        found, first_only = [], len(query) == len(self.lengths) < len(key)
        for block in self.blocks:
            given = (block.spread(states) for states in (key, value))
            if first_only:
                found.append(_attention(query[block.rows, None], *given, n_heads, block.mask(1, window)).flatten(0, 1))
            else:
                mask = block.mask(block.longest, window)
                found.append(block.pack(_attention(block.spread(query), *given, n_heads, mask)))
        return torch.cat(found if first_only else [*found, value[self.n_tokens :]])

    def first(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the states of each input's first symbol, ``(n, width)``."""
        return hidden[self.starts]

    def pooled(self, hidden: torch.Tensor, pooling: str) -> torch.Tensor:
        """Returns the vector of each input that a head with one of the :data:`POOLINGS` reads, ``(n, width)``."""
        if pooling == "cls":
            return self.first(hidden)
        total = hidden.new_zeros(len(self.lengths), hidden.shape[1], dtype=torch.float32)
        total.index_add_(0, self.owners, self.pack(hidden).float())
        counts = torch.from_numpy(self.lengths)[:, None]
        if pooling == "mean_nocls":
            total, counts = total - self.first(hidden).float(), counts - 1
        return total / counts


class _SimilarLengths:
    """A group of inputs of similar length within a packed chunk, as a block for attention, ``(n, longest, width)``.

    Args:
        rows: The numbers of the inputs.
        start: The number of their first token.
        lengths: The tokens of each of them, ascending, ``(n,)``.
        round_up: Whether to round ``longest`` up to a multiple of 8.
    """

    def __init__(self, rows: slice, start: int, lengths: np.ndarray, round_up: bool):
        self.rows, self.longest = rows, int(lengths[-1])
        if round_up:
            self.longest += -self.longest % 8
        self.tokens = slice(start, start + int(lengths.sum()))
        self.padded = None
        if lengths[0] < self.longest:
            self.padded = Padded.of(lengths, torch.device("cpu"), self.longest)

    def spread(self, states: torch.Tensor) -> torch.Tensor:
        """Returns the group's part of the chunk's states, ``(n_rows, width)``, as a block, ``(n, longest, width)``."""
        part = states[self.tokens]
        return part.unflatten(0, (-1, self.longest)) if self.padded is None else self.padded.spread(part)

    def pack(self, states: torch.Tensor) -> torch.Tensor:
        """Returns a block, ``(n, longest, width)``, end to end without pads."""
        return states.flatten(0, 1) if self.padded is None else self.padded.pack(states)

    def mask(self, n_queries: int, window: int | None) -> torch.Tensor | None:
        """Returns a mask of the tokens that each of the first queries may see, or None if it may see all of them."""
        if self.padded is not None:
            return self.padded.mask(n_queries, window)
        return None if window is None or self.longest <= window + 1 else _near(n_queries, self.longest, window)


class Padded:
    """Tokens as a padded block, ``(n, longest, width)``: a regular shape, on which GPUs and compiled graphs are fast.

    Args:
        real: A mask that is true for tokens and false for pads, boolean, ``(n, longest)``.
    """

    def __init__(self, real: torch.Tensor):
        self.real = real

    @classmethod
    def of(cls, lengths: np.ndarray, device: torch.device, longest: int | None = None) -> "Padded":
        """Returns the layout of inputs of some lengths.

        Args:
            lengths: The tokens of each input, ``(n,)``.
            device: The device of the block.
            longest: The number of tokens that inputs are padded to; the longest input's unless given.
        """
        return cls(torch.from_numpy(np.arange(longest or lengths.max()) < lengths[:, None]).to(device))

    def spread(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns values of tokens end to end, ``(n_tokens, ...)``, as a block, ``(n, longest, ...)``.

        Pads repeat the last token of their input. Layers compute them too, and no result depends on them.
        """
        return tokens.index_select(0, self._places).unflatten(0, self.real.shape)

    def pack(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns values of a block, ``(n, longest, ...)``, end to end without pads, ``(n_tokens, ...)``."""
        return hidden.flatten(0, 1).index_select(0, self._kept)

    @cached_property
    def _places(self) -> torch.Tensor:
        return self.real.flatten().cumsum(0) - 1

    @cached_property
    def _kept(self) -> torch.Tensor:
        return self.real.flatten().nonzero()[:, 0]

    @property
    def positions(self) -> torch.Tensor:
        """The position of each token in its input, from 0, ``(n, longest)``."""
        return torch.arange(self.real.shape[1], device=self.real.device).expand(self.real.shape)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, n_heads: int, window=None):
        """Returns attention within each input, shaped like ``query``.

        Args:
            query: ``(n, longest, width)``, or ``(n, width)`` for the first symbol of each input only.
            key: ``(n, longest, width)``.
            value: ``(n, longest, width)``.
            n_heads: The number of heads that the width is split into.
            window: The number of tokens that a token sees to either side; None lets it see the whole input.
        """
        asked = query[:, None] if query.dim() == 2 else query
        return _attention(asked, key, value, n_heads, self.mask(asked.shape[1], window)).view(query.shape)

    def mask(self, n_queries: int, window: int | None) -> torch.Tensor:
        """Returns a mask of the tokens that each of the first queries may see, ``(n, 1, 1 or n_queries, longest)``."""
        mask = self.real[:, None, None]
        if window is None:
            return mask
        near, itself = (_near(n_queries, self.real.shape[1], far).to(mask.device) for far in (window, 0))
        # Every token sees itself. Otherwise a pad far behind its input would see nothing, and its NaN would spread.
        return mask & near | itself

    def first(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the states of each input's first symbol, ``(n, width)``."""
        return hidden[:, 0]

    def pooled(self, hidden: torch.Tensor, pooling: str) -> torch.Tensor:
        """Returns the vector of each input that a head with one of the :data:`POOLINGS` reads, ``(n, width)``."""
        if pooling == "cls":
            return self.first(hidden)
        skipped = 1 if pooling == "mean_nocls" else 0
        weights = self.real[:, skipped:].unsqueeze(-1).to(hidden.dtype)
        return (hidden[:, skipped:] * weights).sum(1) / weights.sum(1)


def _attention(query, key, value, n_heads: int, mask) -> torch.Tensor:
    """Returns attention, ``(n, asked, width)``, of ``query (n, asked, width)`` to ``key, value (n, length, width)``."""
    query, key, value = (states.unflatten(-1, (n_heads, -1)).transpose(1, 2) for states in (query, key, value))
    if query.dtype == torch.bfloat16 and query.device.type == "cpu":
        attended = _products(query, key, value, mask)
    else:
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return attended.transpose(1, 2).flatten(2)


def _products(query, key, value, mask) -> torch.Tensor:
    """Returns the same as torch's own attention, which takes two to three times as long in bf16 on a CPU."""
    q, k, v = (states.flatten(0, 1) for states in (query, key, value))
    weights = torch.baddbmm(q.new_empty(1), q, k.transpose(1, 2), beta=0, alpha=q.shape[-1] ** -0.5)
    # The softmax is in fp32, because torch's softmax over short rows of bf16 takes longer than both products.
    weights = weights.float()
    if mask is not None:
        weights.unflatten(0, query.shape[:2]).add_(torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf))
    return torch.bmm(weights.softmax(-1).to(v.dtype), v).unflatten(0, query.shape[:2])


def _near(n_queries: int, length: int, window: int) -> torch.Tensor:
    """Returns a mask of the tokens within the window of each of the first queries, ``(n_queries, length)``."""
    return (torch.arange(n_queries)[:, None] - torch.arange(length)).abs() <= window
