"""The layout of a chunk's tokens on GPUs: end to end without pads or fillers, with offsets that lie on the device."""

import numpy as np
import torch
import torch.nn.functional as F

from pyterrier_cascade.encoder.device import uploaded
from pyterrier_cascade.forks import cached_property


class Jagged:
    """Tokens end to end, ``(n_tokens, width)``. One array is uploaded, and nothing asks the device for a number.

    Attention is one kernel for inputs of any lengths where the hardware has it. Elsewhere it is computed in a block
    with a mask, or, in a window, in blocks of all tokens end to end; everything else has no pads there either.

    Args:
        lengths: The tokens of each input, ``(n,)``.
        device: The device.
        dtype: The type of the states.
        varlen: Whether to use the kernel, as :func:`~pyterrier_cascade.encoder.device.has_varlen` says.
    """

    def __init__(self, lengths: np.ndarray, device: torch.device, dtype: torch.dtype, varlen: bool):
        self.lengths, self.device, self.dtype, self.varlen = lengths, device, dtype, varlen
        self.n_tokens, self.longest = int(lengths.sum()), int(lengths.max())
        self.full = int(lengths.min()) == self.longest
        self.offsets = uploaded(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), device)
        self.starts = self.offsets[:-1]
        self._tables: dict[int, torch.Tensor] = {}
        self._windows: dict[int, torch.Tensor] = {}

    def spread(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns values of tokens end to end, ``(n_tokens, ...)``, as they are."""
        return tokens

    def pack(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns values in this layout, ``(n_tokens, ...)``, as they are."""
        return hidden

    @cached_property
    def counts(self) -> torch.Tensor:
        """The tokens of each input, ``(n,)``."""
        return self.offsets.diff()

    @cached_property
    def owners(self) -> torch.Tensor:
        """The input of each token, ``(n_tokens,)``."""
        # Without the size of the result the host would have to ask for it.
        return torch.repeat_interleave(self.counts.long(), output_size=self.n_tokens)

    @cached_property
    def positions(self) -> torch.Tensor:
        """The position of each token in its input, from 0, ``(n_tokens,)``."""
        return torch.arange(self.n_tokens, device=self.device) - self.starts.index_select(0, self.owners)

    def at_positions(self, table: torch.Tensor) -> torch.Tensor:
        """Returns the row of a table for each token's position, ``(n_tokens, ...)``; each table is read once."""
        if id(table) not in self._tables:
            self._tables[id(table)] = table.index_select(0, self.positions)
        return self._tables[id(table)]

    def first(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the states of each input's first symbol, ``(n, width)``."""
        return hidden.index_select(0, self.starts)

    def pooled(self, hidden: torch.Tensor, pooling: str) -> torch.Tensor:
        """Returns the vector of each input that a head with one of the ``POOLINGS`` reads, ``(n, width)`` in fp32."""
        first = self.first(hidden).float()
        if pooling == "cls":
            return first
        # "unsafe" leaves out a check that would wait for the device.
        total = torch.segment_reduce(hidden.float(), "sum", offsets=self.offsets.long(), axis=0, unsafe=True)
        counts = self.counts[:, None]
        if pooling == "mean_nocls":
            return (total - first) / (counts - 1)
        return total / counts if pooling == "mean" else torch.cat([total / counts, first], 1)

    @cached_property
    def places(self) -> torch.Tensor:
        """The place of each input's tokens in a block, where pads repeat the last token, ``(n, longest)``.

        The block of inputs of several lengths is filled up to a multiple of 8, as kernels with masks like it.
        """
        within = torch.arange(self.longest if self.full else -(-self.longest // 8) * 8, device=self.device)
        return torch.minimum(within, self.counts[:, None] - 1) + self.starts[:, None]

    @cached_property
    def pads(self) -> torch.Tensor | None:
        """What is added to attention so that nothing sees pads, ``(n, 1, 1, longest)``; None where there are none."""
        if self.full:
            return None
        pads = torch.arange(self.places.shape[1], device=self.device) >= self.counts[:, None]
        return self._hiding(pads)[:, None, None]

    def block(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns values of tokens, ``(n_tokens, ...)``, as a block, ``(n, longest, ...)``."""
        if self.full:
            return hidden.unflatten(0, (len(self.lengths), self.longest))
        return hidden.index_select(0, self.places.flatten()).unflatten(0, self.places.shape)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, n_heads: int, window=None):
        """Returns attention within each input, shaped like ``query``.

        Args:
            query: ``(n_tokens, width)``, or ``(n, width)`` for the first symbol of each input only.
            key: ``(n_tokens, width)``.
            value: ``(n_tokens, width)``.
            n_heads: The number of heads that the width is split into.
            window: The number of tokens that a token sees to either side; None lets it see the whole input.
        """
        first_only = len(query) == len(self.lengths) < len(key)
        if window is not None and self.longest <= window + 1:
            window = None
        if first_only and window is not None:
            # The first symbol sees the beginning of its input only.
            near = Jagged(np.minimum(self.lengths, window + 1), self.device, self.dtype, self.varlen)
            places = near.positions + self.starts.index_select(0, near.owners)
            return near.attend(query, key.index_select(0, places), value.index_select(0, places), n_heads)
        query, key, value = (states.unflatten(-1, (n_heads, -1)) for states in (query, key, value))
        if self.varlen:
            found = self._by_kernel(query, key, value, first_only, window)
        elif window is None:
            found = self._in_block(query, key, value, first_only)
        else:
            found = self._in_window(query, key, value, window)
        return found.flatten(1)

    def _by_kernel(self, query, key, value, first_only: bool, window: int | None) -> torch.Tensor:
        from torch.nn.attention.varlen import varlen_attn

        asked, longest = self.offsets, self.longest
        if first_only:
            asked, longest = torch.arange(len(query) + 1, dtype=torch.int32, device=self.device), 1
        reach = (-1, -1) if window is None else (window, window)
        return varlen_attn(query, key, value, asked, self.offsets, longest, self.longest, window_size=reach)

    def _in_block(self, query, key, value, first_only: bool) -> torch.Tensor:
        asked = query[:, None] if first_only else self.block(query)
        asked, given, values = (states.transpose(1, 2) for states in (asked, self.block(key), self.block(value)))
        found = F.scaled_dot_product_attention(asked, given, values, attn_mask=self.pads).transpose(1, 2).flatten(0, 1)
        return found if first_only or self.full else found.index_select(0, self._kept)

    @cached_property
    def _kept(self) -> torch.Tensor:
        """The places of the tokens in a block."""
        return self.owners * self.places.shape[1] + self.positions

    def _in_window(self, query, key, value, window: int) -> torch.Tensor:
        """Returns attention of blocks of tokens to three blocks each: the work and the mask grow with the tokens."""
        n_blocks = -(-self.n_tokens // window)
        fillers = n_blocks * window - self.n_tokens
        asked = F.pad(query, (0, 0, 0, 0, 0, fillers)).unflatten(0, (n_blocks, window)).transpose(1, 2)
        around = (0, 0, 0, 0, window, fillers + window)
        given = (F.pad(states, around).unfold(0, 3 * window, window).transpose(2, 3) for states in (key, value))
        found = F.scaled_dot_product_attention(asked, *given, attn_mask=self._outside(window, n_blocks, fillers))
        return found.transpose(1, 2).flatten(0, 1)[: self.n_tokens]

    def _outside(self, window: int, n_blocks: int, fillers: int) -> torch.Tensor:
        """Returns what is added so that a token sees its own input and window, ``(n_blocks, 1, window, 3 * window)``.

        Fillers are an input of their own and see themselves; a row that sees nothing would be NaN.
        """
        if window not in self._windows:
            own = F.pad(self.owners, (0, fillers), value=-1).unflatten(0, (n_blocks, window))
            others = F.pad(self.owners, (window, fillers + window), value=-1).unfold(0, 3 * window, window)
            place = torch.arange(3 * window, device=self.device)
            far = (place - place[window : 2 * window, None]).abs() > window
            self._windows[window] = self._hiding((own[:, :, None] != others[:, None]) | far)[:, None]
        return self._windows[window]

    def _hiding(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns minus infinity where a mask is true and 0 elsewhere; kernels would convert a mask in every layer."""
        return torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, -torch.inf)
