"""The CNN of the aggregation (HR-5), computed by matrix products over texts of any length.

The windows of one kernel size are copied side by side and multiplied together. That is several times as fast as
``conv1d`` over padded texts, and no padding is computed.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import torch
import torch.nn.functional as F

ROWS = 512
"""The windows that are multiplied at once: enough for full speed, few enough to stay in a core's cache."""

ROW_MULTIPLE = 64
"""The rows of a product are filled up to a multiple of this, because oneDNN compiles code for every new shape."""

Span = tuple[int, int]
"""Neighbouring texts of one length: the length, and the number of texts."""
Part = tuple[int, int, int, int]
"""Some texts of a span: the first word, the number of the first text, how many texts, and their length."""


@cache
def _has_onednn() -> bool:
    from pyterrier_cascade.encoder.linear import PackedLinear, linear_for

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


def _window_blocks(spans: Sequence[Span], kernel: int) -> Iterator[list[Part]]:
    """Yields the texts whose windows are multiplied together, at most ``ROWS`` windows at once."""
    block, n_rows, word, text = [], 0, 0, 0
    for length, count in spans:
        most = max(1, ROWS // length)
        for start in range(0, count, most):
            n = min(most, count - start)
            if block and n_rows + n * (length - kernel + 1) > ROWS:
                yield block
                block, n_rows = [], 0
            block.append((word, text, n, length))
            n_rows, word, text = n_rows + n * (length - kernel + 1), word + n * length, text + n
    if block:
        yield block


def _rows_of_parts(block: list[Part], kernel: int) -> Iterator[tuple[slice, Part]]:
    """Yields each part of a block with the rows that its windows have in the block's product."""
    row = 0
    for part in block:
        _, _, n, length = part
        yield slice(row, row := row + n * (length - kernel + 1)), part


def _windows(x: torch.Tensor, block: list[Part], kernel: int) -> torch.Tensor:
    """Returns a block's windows of ``kernel`` words, filled up with rows of zeros, ``(n, kernel * width)``."""
    width = x.shape[1]
    n_windows = sum(n * (length - kernel + 1) for _, _, n, length in block)
    found = x.new_empty(n_windows + -n_windows % ROW_MULTIPLE, kernel * width)
    found[n_windows:] = 0
    for rows, (word, _, n, length) in _rows_of_parts(block, kernel):
        shape = (n, length - kernel + 1, kernel * width)
        overlapping = x.as_strided(shape, (length * width, width, 1), x.storage_offset() + word * width)
        found[rows].view(shape).copy_(overlapping)
    return found


class _Maxima(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, spans, trains, *weights):
        x, ctx.spans = x.contiguous(), spans
        top, reached = x.new_empty(sum(n for _, n in spans), len(weights), len(weights[0])), []
        for k, weight in enumerate(weights, start=1):
            for block in _window_blocks(spans, k):
                y = product(_windows(x, block, k), weight)
                mask = torch.empty(y.shape, dtype=torch.bool) if trains else None
                for rows, (_, text, n, length) in _rows_of_parts(block, k):
                    values = y[rows].view(n, length - k + 1, -1)
                    best = top[text : text + n, k - 1]
                    torch.amax(values, 1, out=best)
                    if trains:
                        torch.eq(values, best[:, None], out=mask[rows].view(values.shape))
                reached.append(mask)
        ctx.reached = reached
        ctx.save_for_backward(x, *weights)
        return top

    @staticmethod
    def backward(ctx, grad):
        x, *weights = ctx.saved_tensors
        width, masks = x.shape[1], iter(ctx.reached)
        to_x, to_weights = torch.zeros_like(x, dtype=torch.float32), []
        for k, weight in enumerate(weights, start=1):
            to_weight = torch.zeros_like(weight, dtype=torch.float32)
            for block in _window_blocks(ctx.spans, k):
                mask = next(masks)
                to_y = torch.empty(mask.shape, dtype=x.dtype)
                for rows, (_, text, n, length) in _rows_of_parts(block, k):
                    won = mask[rows].view(n, length - k + 1, -1)
                    # Windows that are equally good share the gradient.
                    share = grad[text : text + n, k - 1] / won.sum(1)
                    torch.mul(won, share[:, None].to(x.dtype), out=to_y[rows].view(won.shape))
                to_y[rows.stop :] = 0
                to_weight += product(to_y.t(), _windows(x, block, k).t())
                to_windows = product(to_y, weight.t())
                for rows, (word, _, n, length) in _rows_of_parts(block, k):
                    to_words = to_windows[rows].view(n, length - k + 1, k, width)
                    texts = to_x[word : word + n * length].view(n, length, width)
                    for j in range(k):
                        texts[:, j : j + length - k + 1] += to_words[:, :, j]
            to_weights.append(to_weight.to(weight.dtype))
        return to_x.to(x.dtype), None, None, *to_weights


def maxima(x: torch.Tensor, spans: Sequence[Span], weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the largest value of each channel over each text's windows, ``(n_texts, n_kernels, n_channels)``.

    The windows of all texts are multiplied together, and then the maximum is taken in each text. Bias and ReLU may
    follow the maximum, because both keep the order (HR-5).

    Args:
        x: The texts end to end, with texts of one length together, ``(n_words, width)``.
        spans: The texts of each length in the order of ``x``; no text is shorter than the largest kernel.
        weights: The weights of kernel sizes 1, 2, ...: ``(n_channels, k * width)``, the first word of a window first.
    """
    # Only gradients need the places of the maxima. Inside the function gradients always count as off.
    return _Maxima.apply(x, list(spans), torch.is_grad_enabled(), *weights)
