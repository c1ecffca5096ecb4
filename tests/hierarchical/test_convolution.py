"""The CNN's maxima and their gradients equal torch's own convolution."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pyterrier_cascade.hierarchical import convolution
from pyterrier_cascade.hierarchical.convolution import linear, maxima


def by_conv1d(x, spans, weights):
    found, start = [], 0
    for length, count in spans:
        for _ in range(count):
            text = x[start : start + length].T[None]
            start += length
            tops = [
                F.conv1d(text, weight.view(len(weight), k, x.shape[1]).transpose(1, 2))[0].amax(1)
                for k, weight in enumerate(weights, start=1)
            ]
            found.append(torch.stack(tops))
    return torch.stack(found)


@pytest.mark.parametrize("rows", [1, 7, 10_000])
@pytest.mark.parametrize("plain", [False, True])
def test_maxima_and_gradients(rows, plain, monkeypatch):
    monkeypatch.setattr(convolution, "ROWS", rows)
    if plain:
        monkeypatch.setattr(convolution, "_has_onednn", lambda: False)
    torch.manual_seed(0)
    spans = [(5, 2), (6, 1), (9, 4)]
    x = torch.randn(5 * 2 + 6 + 9 * 4, 3, requires_grad=True)
    weights = [torch.randn(4, 3 * k, requires_grad=True) for k in (1, 2, 3, 4, 5)]
    ours, theirs = maxima(x, spans, weights), by_conv1d(x, spans, weights)
    torch.testing.assert_close(ours, theirs)
    grad = torch.randn_like(ours)
    for mine, other in zip(
        torch.autograd.grad(ours, [x, *weights], grad), torch.autograd.grad(theirs, [x, *weights], grad), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_rows_that_fill_up_a_product_change_nothing():
    """Windows and gradients leave these rows unset; torch fills them with NaN here, which must not spread."""
    torch.manual_seed(0)
    x, weights = torch.randn(12, 2, requires_grad=True), [torch.randn(3, 2 * k, requires_grad=True) for k in (1, 2)]
    torch.use_deterministic_algorithms(True)
    try:
        ours = maxima(x, [(5, 1), (7, 1)], weights)
        found = torch.autograd.grad(ours.sum(), [x, *weights])
    finally:
        torch.use_deterministic_algorithms(False)
    expected = by_conv1d(x, [(5, 1), (7, 1)], weights)
    torch.testing.assert_close(ours, expected)
    for mine, other in zip(found, torch.autograd.grad(expected.sum(), [x, *weights]), strict=True):
        torch.testing.assert_close(mine, other)


def test_equal_windows_share_the_gradient():
    x = torch.ones(5, 1, requires_grad=True)
    (grad,) = torch.autograd.grad(maxima(x, [(5, 1)], [torch.ones(1, 1)]).sum(), [x])
    assert grad[:, 0].tolist() == pytest.approx([0.2] * 5)


def test_maxima_in_inference_mode():
    with torch.inference_mode():
        assert maxima(torch.ones(6, 2), [(6, 1)], [torch.ones(3, 2)]).tolist() == [[[2.0] * 3]]


def test_the_linear_map_has_its_gradients():
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((7, 4), (3, 4), (3,)))
    ours, theirs = linear(x, weight, bias), F.linear(x, weight, bias)
    torch.testing.assert_close(ours, theirs)
    grad = torch.from_numpy(np.arange(21, dtype=np.float32)).view(7, 3)
    for mine, other in zip(*(torch.autograd.grad(y, [x, weight, bias], grad) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, other)
