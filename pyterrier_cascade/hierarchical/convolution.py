"""The CNN of the aggregation (HR-5), computed by matrix products over texts of any length.

The windows of one kernel size are copied side by side and multiplied together. That is several times as fast as
``conv1d`` over padded texts, and no padding is computed.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from pyterrier_cascade.encoder.jagged import Jagged
from pyterrier_cascade.encoder.linear import PackedLinear, linear_for

ROWS = 512
"""The windows that are multiplied at once: enough for full speed, few enough to stay in a core's cache."""

ROW_MULTIPLE = 64
"""The rows of a product are filled up to a multiple of this, because oneDNN compiles code for every new shape."""

Span = tuple[int, int]
"""Neighbouring texts of one length: the length, and the number of texts."""


class Part(NamedTuple):
    """Neighbouring texts of one length whose windows are multiplied together.

    Attributes:
        n: The number of texts.
        words: Their words, among those of all texts.
        texts: Their places, among all texts.
        rows: The rows of their windows in the product.
    """

    n: int
    words: slice
    texts: slice
    rows: slice


@cache
def _has_onednn() -> bool:
    if linear_for(torch.device("cpu"), torch.float32) is not PackedLinear:
        return False
    # Gradients hand transposed views to it, which spares their copies; not every version of torch takes these.
    x, weight, bias = torch.arange(12.0).view(3, 4), torch.arange(6.0).view(3, 2), torch.ones(2)
    return torch.equal(_onednn(x.t(), weight.t(), bias), F.linear(x.t(), weight.t(), bias))


def _onednn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Returns ``x weight' + bias``, ``(n, out)``, by oneDNN where that is faster; the result carries no gradient.

    Args:
        x: ``(n, in)``.
        weight: ``(out, in)``.
        bias: ``(out,)``, or None.
    """
    if x.device.type == "cpu" and x.dtype == torch.float32 and _has_onednn():
        return _onednn(x, weight, bias)
    return F.linear(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        to_x = product(grad, weight.t()) if ctx.needs_input_grad[0] else None
        return to_x, product(grad.t(), x.t()), grad.sum(0)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Returns ``x weight' + bias``, ``(n, out)``, with gradients, as fast as :func:`product`."""
    n = len(x)
    return _Linear.apply(F.pad(x, (0, 0, 0, -n % ROW_MULTIPLE)), weight, bias)[:n]


def _products(spans: Sequence[Span], kernel: int) -> Iterator[list[Part]]:
    """Yields the parts whose windows are multiplied together, with at most ``ROWS`` windows at once."""
    parts, row, word, text = [], 0, 0, 0
    for length, count in spans:
        most = max(1, ROWS // length)
        for start in range(0, count, most):
            n = min(most, count - start)
            n_rows = n * (length - kernel + 1)
            if parts and row + n_rows > ROWS:
                yield parts
                parts, row = [], 0
            parts.append(Part(n, slice(word, word + n * length), slice(text, text + n), slice(row, row + n_rows)))
            row, word, text = row + n_rows, word + n * length, text + n
    if parts:
        yield parts


def _windows(x: torch.Tensor, parts: list[Part], kernel: int) -> torch.Tensor:
    """Returns the windows of ``kernel`` words, filled up with rows of zeros, ``(n, kernel * width)``."""
    n_rows, width = parts[-1].rows.stop, x.shape[1]
    found = x.new_empty(n_rows + -n_rows % ROW_MULTIPLE, kernel * width)
    found[n_rows:] = 0
    for n, words, _, rows in parts:
        windows = x[words].view(n, -1, width).unfold(1, kernel, 1).transpose(2, 3)
        found[rows].view(windows.shape).copy_(windows)
    return found


class _Maxima(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, spans, trains, *weights):
        ctx.spans, ctx.reached = spans, []
        top = x.new_empty(sum(n for _, n in spans), len(weights), len(weights[0]))
        for k, weight in enumerate(weights, start=1):
            for parts in _products(spans, k):
                y = product(_windows(x, parts, k), weight)
                reached = torch.empty_like(y, dtype=torch.bool) if trains else None
                for n, _, texts, rows in parts:
                    values, best = y[rows].view(n, -1, len(weight)), top[texts, k - 1]
                    torch.amax(values, 1, out=best)
                    if trains:
                        torch.eq(values, best[:, None], out=reached[rows].view(values.shape))
                ctx.reached.append(reached)
        ctx.save_for_backward(x, *weights)
        return top

    @staticmethod
    def backward(ctx, grad):
        x, *weights = ctx.saved_tensors
        width, every_reached = x.shape[1], iter(ctx.reached)
        to_x, to_weights = torch.zeros_like(x, dtype=torch.float32), []
        for k, weight in enumerate(weights, start=1):
            to_weight = torch.zeros_like(weight, dtype=torch.float32)
            for parts in _products(ctx.spans, k):
                reached = next(every_reached)
                to_y = torch.empty_like(reached, dtype=x.dtype)
                for n, _, texts, rows in parts:
                    won = reached[rows].view(n, -1, len(weight))
                    # Windows that are equally good share the gradient.
                    share = grad[texts, k - 1] / won.sum(1)
                    torch.mul(won, share[:, None].to(x.dtype), out=to_y[rows].view(won.shape))
                to_y[rows.stop :] = 0
                to_weight += product(to_y.t(), _windows(x, parts, k).t())
                to_windows = product(to_y, weight.t())
                for n, words, _, rows in parts:
                    to_words, of_windows = to_x[words].view(n, -1, width), to_windows[rows].view(n, -1, k, width)
                    for j in range(k):
                        to_words[:, j : j + of_windows.shape[1]] += of_windows[:, :, j]
            to_weights.append(to_weight.to(weight.dtype))
        return to_x.to(x.dtype), None, None, *to_weights


def _maxima_together(x: torch.Tensor, spans: Sequence[Span], weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the same on a GPU, without gradients: a product for each kernel size takes the windows of all texts.

    The windows that end in the next text are computed too, and hidden from the maximum.
    """
    lengths, counts = np.array(spans, dtype=np.int64).T
    layout, tops = Jagged(np.repeat(lengths, counts), x.device, x.dtype, varlen=False), []
    left = layout.counts.index_select(0, layout.owners) - layout.positions
    for k, weight in enumerate(weights, start=1):
        windows = F.pad(x, (0, 0, 0, k - 1)).unfold(0, k, 1).transpose(1, 2).flatten(1)
        y = F.linear(windows, weight).masked_fill_((left < k)[:, None], -torch.inf)
        top = y.new_full((len(layout.lengths), y.shape[1]), -torch.inf)
        tops.append(top.scatter_reduce_(0, layout.owners[:, None].expand(y.shape), y, "amax"))
    return torch.stack(tops, 1)


def maxima(x: torch.Tensor, spans: Sequence[Span], weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the largest value of each channel over each text's windows, ``(n_texts, n_kernels, n_channels)``.

    The windows of all texts are multiplied together, and then the maximum is taken in each text. Bias and ReLU may
    follow the maximum, because both keep the order (HR-5).

    Args:
        x: The texts end to end, with texts of one length together, ``(n_words, width)``.
        spans: The texts of each length in the order of ``x``; no text is shorter than the largest kernel.
        weights: The weights of kernel sizes 1, 2, ...: ``(n_channels, k * width)``, the first word of a window first.
    """
    if x.device.type != "cpu":
        return _maxima_together(x, spans, weights)
    # Only gradients need the places of the maxima. Inside the function gradients always count as off.
    return _Maxima.apply(x, spans, torch.is_grad_enabled(), *weights)
