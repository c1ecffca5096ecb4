"""Linear maps for inference: prepacked ones equal plain ones."""

import numpy as np
import pytest
import torch
from torch import nn

from pyterrier_cascade.encoder import linear
from pyterrier_cascade.encoder.engine import run
from tests.encoder import spans


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"])
def test_prepacked_maps_are_plain_ones(activation, has_bias):
    torch.manual_seed(0)
    weight, bias, x, add = torch.randn(24, 16), torch.randn(24), torch.randn(5, 16), torch.randn(5, 24)
    bias = bias if has_bias else None
    plain, packed = (cls(weight, bias, activation) for cls in (linear.Linear, linear.PackedLinear))
    torch.testing.assert_close(packed(x), plain(x), atol=1e-5, rtol=0)
    if activation is None:
        torch.testing.assert_close(packed(x, add=add), plain(x, add=add), atol=1e-5, rtol=0)


def test_the_fastest_maps_of_a_device():
    assert linear.linear_for(spans.CPU, torch.float32) is linear.PackedLinear
    assert linear.linear_for(torch.device("meta"), torch.float32) is linear.Linear


def test_all_maps_of_a_module_are_replaced():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 2, bias=False)))
    x = torch.randn(3, 16)
    expected = module(x)
    assert linear.with_linears(module, linear.PackedLinear) is module
    assert not any(isinstance(part, nn.Linear) for part in module.modules())
    torch.testing.assert_close(module(x), expected)


def test_a_torch_without_these_operators_falls_back(encoder, monkeypatch):
    def missing(*args, **kwargs):
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")

    monkeypatch.setattr(linear.PackedLinear, "forward", missing)
    assert linear.linear_for(spans.CPU, torch.float32) is linear.Linear
    pairs = spans.inputs(spans.RAGGED)
    made = spans.executor(encoder("bert"), "mean")
    assert type(made.encoder.layers[0].out) is linear.Linear
    np.testing.assert_allclose(run(made, pairs)[:, 2], run(made, pairs, budget=64)[:, 2], atol=1e-5)
