"""The CNN of the aggregation (HR-5) over texts of any length at the speed of matrix products."""

from collections.abc import Iterator, Sequence
from functools import cache

import torch
import torch.nn.functional as F

ROWS = 512
"""Windows that are multiplied at once: enough for full speed, few enough to stay in a core's cache."""

STEP = 64
"""Products have a multiple of so many rows: oneDNN compiles for every shape that it has not seen lately."""

Span = tuple[int, int]
"""Texts of one length that stand together: their length, and how many they are."""


@cache
def _has_onednn() -> bool:
    from pyterrier_cascade.encoder.linear import PackedLinear, linear_for

    if linear_for(torch.device("cpu"), torch.float32) is not PackedLinear:
        return False
    # It is given transposed views too, which spares their copies.
    x, weight, bias = torch.arange(12.0).view(3, 4), torch.arange(6.0).view(3, 2), torch.ones(2)
    return torch.equal(_onednn(x.t(), weight.t(), bias), F.linear(x.t(), weight.t(), bias))


def _onednn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Returns ``x weight' + bias``, ``(n, out)``, by oneDNN where it is the faster; it leads no gradient back.

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
    return _Linear.apply(F.pad(x, (0, 0, 0, -n % STEP)), weight, bias)[:n]


def _blocks(spans: Sequence[Span], kernel: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """Yields spans whose windows are multiplied together, as (first word, first text, texts, length)."""
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


def _windows(x: torch.Tensor, block: list[tuple[int, int, int, int]], kernel: int) -> torch.Tensor:
    """Returns a block's windows of so many words, and zeros up to a whole step, ``(n, kernel * width)``."""
    width = x.shape[1]
    n_windows, row = sum(n * (length - kernel + 1) for _, _, n, length in block), 0
    found = x.new_empty(n_windows + -n_windows % STEP, kernel * width)
    found[n_windows:] = 0
    for word, _, n, length in block:
        shape = (n, length - kernel + 1, kernel * width)
        overlapping = x.as_strided(shape, (length * width, width, 1), x.storage_offset() + word * width)
        end = row + n * (length - kernel + 1)
        found[row:end].view(shape).copy_(overlapping)
        row = end
    return found


class _Maxima(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, spans, trains, *weights):
        x, ctx.spans = x.contiguous(), spans
        top, reached = x.new_empty(sum(n for _, n in spans), len(weights), len(weights[0])), []
        for k, weight in enumerate(weights, start=1):
            for block in _blocks(spans, k):
                y, row = product(_windows(x, block, k), weight), 0
                mask = torch.empty(y.shape, dtype=torch.bool) if trains else None
                for _, text, n, length in block:
                    end = row + n * (length - k + 1)
                    values = y[row:end].view(n, length - k + 1, -1)
                    best = top[text : text + n, k - 1]
                    torch.amax(values, 1, out=best)
                    if trains:
                        torch.eq(values, best[:, None], out=mask[row:end].view(values.shape))
                    row = end
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
            for block in _blocks(ctx.spans, k):
                mask, row = next(masks), 0
                to_y = torch.empty(mask.shape, dtype=x.dtype)
                for _, text, n, length in block:
                    end = row + n * (length - k + 1)
                    won = mask[row:end].view(n, length - k + 1, -1)
                    # Windows that are equally good share the gradient.
                    share = grad[text : text + n, k - 1] / won.sum(1)
                    torch.mul(won, share[:, None].to(x.dtype), out=to_y[row:end].view(won.shape))
                    row = end
                to_y[row:] = 0
                to_weight += product(to_y.t(), _windows(x, block, k).t())
                to_windows, row = product(to_y, weight.t()), 0
                for word, _, n, length in block:
                    end = row + n * (length - k + 1)
                    parts = to_windows[row:end].view(n, length - k + 1, k, width)
                    texts = to_x[word : word + n * length].view(n, length, width)
                    for j in range(k):
                        texts[:, j : j + length - k + 1] += parts[:, :, j]
                    row = end
            to_weights.append(to_weight.to(weight.dtype))
        return to_x.to(x.dtype), None, None, *to_weights


def maxima(x: torch.Tensor, spans: Sequence[Span], weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the greatest value of each channel over each text's windows, ``(n_texts, n_kernels, n_channels)``.

    One product for each kernel size over all windows of all texts; what differs from text to text is only where their
    maxima are taken. Bias and ReLU may follow the maximum, because both keep the order (HR-5).

    Args:
        x: The texts end to end, those of one length together, ``(n_words, width)``.
        spans: The lengths in order, each at least the largest kernel, with the number of their texts.
        weights: Of kernel size k = 1, 2, ...: ``(n_channels, k * width)``, the first word of a window first.
    """
    # What won need be remembered for gradients only; within the function they are always off.
    return _Maxima.apply(x, list(spans), torch.is_grad_enabled(), *weights)
