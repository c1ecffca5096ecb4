"""Two layouts of a chunk's tokens in a tensor: end to end for CPUs, or padded to a block. Layers work on both."""

import numpy as np
import torch
import torch.nn.functional as F

from pyterrier_cascade.forks import cached_property

POOLINGS = ("mean_nocls", "mean", "cls", "mean_cls")
"""The vectors that a head may read (CT-10).

``"mean_nocls"`` is the mean of all symbols except the first. ``"mean"`` is the mean of all symbols. ``"cls"`` is the
first symbol. ``"mean_cls"``, which the paper does not have, is the mean of all symbols and the first symbol side by
side, and is twice as wide.
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
    def blocks(self) -> list[tuple[slice, slice, "Padded"]]:
        """The groups of inputs whose attention is computed at once: their inputs, their tokens, and their block."""
        blocks, end = [], len(self.lengths)
        while end:
            longest = int(self.lengths[end - 1])
            start = int(np.searchsorted(self.lengths[:end], self.merge * longest))
            lengths = self.lengths[start:end]
            first = int(self.starts[start])
            # Merged groups have few different shapes.
            padded = Padded.of(lengths, longest=-(-longest // 8) * 8 if self.merge < 1 else longest)
            blocks.append((slice(start, end), slice(first, first + int(lengths.sum())), padded))
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

    def at_positions(self, table: torch.Tensor) -> torch.Tensor:
        """Returns the row of a table for each token's position, ``(n_rows, ...)``."""
        return table[self.positions]

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
        for inputs, tokens, block in self.blocks:
            asked = query[inputs] if first_only else block.spread(query[tokens])
            given = (block.spread(states[tokens]) for states in (key, value))
            attended = block.attend(asked, *given, n_heads, window)
            found.append(attended if first_only else block.pack(attended))
        return torch.cat(found if first_only else [*found, value[self.n_tokens :]])

    def first(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the states of each input's first symbol, ``(n, width)``."""
        return hidden[self.starts]

    def pooled(self, hidden: torch.Tensor, pooling: str) -> torch.Tensor:
        """Returns the vector of each input that a head with one of the :data:`POOLINGS` reads, ``(n, width)``."""
        if pooling == "cls":
            return self.first(hidden)
        if pooling == "mean_cls":
            return torch.cat([self.pooled(hidden, "mean"), self.first(hidden).float()], 1)
        total = hidden.new_zeros(len(self.lengths), hidden.shape[1], dtype=torch.float32)
        total.index_add_(0, self.owners, self.pack(hidden).float())
        counts = torch.from_numpy(self.lengths)[:, None]
        if pooling == "mean_nocls":
            total, counts = total - self.first(hidden).float(), counts - 1
        return total / counts


class Padded:
    """Tokens as a padded block, ``(n, longest, width)``: a regular shape, on which GPUs and compiled graphs are fast.

    Args:
        real: A mask that is true for tokens and false for pads, boolean, ``(n, longest)``.
        full: Whether no input has pads. It saves copies and masks.
    """

    def __init__(self, real: torch.Tensor, full: bool = False):
        self.real, self.full = real, full

    @classmethod
    def of(cls, lengths: np.ndarray, device: torch.device | str = "cpu", longest: int | None = None) -> "Padded":
        """Returns the layout of inputs of some lengths.

        Args:
            lengths: The tokens of each input, ``(n,)``.
            device: The device of the block.
            longest: The number of tokens that inputs are padded to; the longest input's unless given.
        """
        longest = longest or int(lengths.max())
        real = torch.from_numpy(np.arange(longest) < lengths[:, None]).to(device)
        return cls(real, full=bool(lengths.min() == longest))

    def spread(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns values of tokens end to end, ``(n_tokens, ...)``, as a block, ``(n, longest, ...)``.

        Pads repeat the last token of their input. Layers compute them too, and no result depends on them.
        """
        rows = tokens if self.full else tokens.index_select(0, self._places)
        return rows.unflatten(0, self.real.shape)

    def pack(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns values of a block, ``(n, longest, ...)``, end to end without pads, ``(n_tokens, ...)``."""
        rows = hidden.flatten(0, 1)
        return rows if self.full else rows.index_select(0, self._kept)

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

    def at_positions(self, table: torch.Tensor) -> torch.Tensor:
        """Returns the row of a table for each token's position, ``(n, longest, ...)``."""
        return table[self.positions]

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

    def mask(self, n_queries: int, window: int | None) -> torch.Tensor | None:
        """Returns a mask of the tokens that each of the first queries may see; None if it may see all of them.

        The shape is ``(n, 1, 1 or n_queries, longest)``, or ``(n_queries, longest)`` in a block without pads.
        """
        length = self.real.shape[1]
        if self.full:
            return None if window is None or length <= window + 1 else self._near(n_queries, window)
        mask = self.real[:, None, None]
        if window is None:
            return mask
        # Every token sees itself. Otherwise a pad far behind its input would see nothing, and its NaN would spread.
        return mask & self._near(n_queries, window) | self._near(n_queries, 0)

    def _near(self, n_queries: int, window: int) -> torch.Tensor:
        """Returns a mask of the tokens within the window of each of the first queries, ``(n_queries, longest)``."""
        places = torch.arange(self.real.shape[1], device=self.real.device)
        return (places[:n_queries, None] - places).abs() <= window

    def first(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the states of each input's first symbol, ``(n, width)``."""
        return hidden[:, 0]

    def pooled(self, hidden: torch.Tensor, pooling: str) -> torch.Tensor:
        """Returns the vector of each input that a head with one of the :data:`POOLINGS` reads, ``(n, width)``."""
        if pooling == "cls":
            return self.first(hidden)
        if pooling == "mean_cls":
            return torch.cat([self.pooled(hidden, "mean"), self.first(hidden).float()], 1)
        skipped = 1 if pooling == "mean_nocls" else 0
        # A sum of many states in half precision would be far off.
        weights = self.real[:, skipped:].unsqueeze(-1).float()
        return (hidden[:, skipped:].float() * weights).sum(1) / weights.sum(1)


def _attention(query, key, value, n_heads: int, mask) -> torch.Tensor:
    """Returns attention, ``(n, asked, width)``, of ``query (n, asked, width)`` to ``key, value (n, length, width)``."""
    query, key, value = (states.unflatten(-1, (n_heads, -1)).transpose(1, 2) for states in (query, key, value))
    if query.dtype == torch.bfloat16 and query.device.type == "cpu":
        attended = _products(query, key, value, mask)
    else:
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return attended.transpose(1, 2).flatten(2)


def _products(query, key, value, mask) -> torch.Tensor:
    """Returns the same as torch's own attention, which takes two to three times as long in bf16 on a CPU.

    A column of ones beside the values adds up the weights of each query, and zeros in both hide pads. So the weights
    need no pass of their own for the mask, the largest value or the sum.
    """
    width, real = value.shape[-1], None if mask is None else mask.transpose(-1, -2)
    if mask is not None and mask.shape[-2] > 1:
        return _with_softmax(query, key, value, mask)
    beside = value.new_empty(*value.shape[:-1], width + 1)
    beside[..., :width] = value if mask is None else value * real
    beside[..., width:] = 1 if mask is None else real
    found = torch.bmm(_scores(query, key).exp_(), beside.flatten(0, 1)).float()
    sums = found[..., width:]
    least, most = torch.aminmax(sums)
    # bf16 reaches as far as fp32. Where weights come near its ends, or are NaN, the largest is subtracted first.
    if not (least > 1e-30 and most < 1e30):
        return _with_softmax(query, key, value, mask)
    return (found[..., :width] / sums).to(value.dtype).unflatten(0, query.shape[:2])


def _scores(query, key) -> torch.Tensor:
    """Returns the products of queries and keys over the root of their width, ``(n * heads, asked, length)``."""
    query, key = query.flatten(0, 1), key.flatten(0, 1)
    return torch.baddbmm(query.new_empty(1), query, key.transpose(1, 2), beta=0, alpha=query.shape[-1] ** -0.5)


def _with_softmax(query, key, value, mask) -> torch.Tensor:
    # The softmax is in fp32, because torch's softmax over short rows of bf16 takes longer than both products.
    weights = _scores(query, key).float()
    if mask is not None:
        weights.unflatten(0, query.shape[:2]).add_(torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf))
    return torch.bmm(weights.softmax(-1).to(value.dtype), value.flatten(0, 1)).unflatten(0, query.shape[:2])
