"""Linear maps in int8: numbers by hand, the choice of the scales, and what stays in bf16."""

import pytest
import torch
import torch.nn.functional as F

from pyterrier_cascade.encoder import int8
from pyterrier_cascade.encoder.int8 import SHIFTS, Int8Linear, LowLinear, Watching, fitted, has_int8, int8_maps

pytestmark = pytest.mark.skipif(not has_int8(), reason="needs a CPU with VNNI, and oneDNN's int8 in torch")


def seen(weight, rows, bias=None, activation=None) -> Watching:
    made = Watching(weight, bias, activation)
    for chunk in rows.split(64):
        made(chunk)
    return made


@pytest.mark.parametrize("shift", SHIFTS)
def test_whole_numbers_are_multiplied_exactly(shift):
    """Inputs from 0 to 255 and weights to 127 have scales of one, so nothing is rounded."""
    weight = torch.tensor([[127.0, -127.0, 3.0], [-5.0, 127.0, 127.0]])
    made = Int8Linear(
        weight, torch.tensor([0.5, -1.0]), None, torch.zeros(3), torch.full((3,), 255.0), shift, torch.float32
    )
    x = torch.tensor([[0.0, 255.0, 7.0], [100.0, 30.0, 2.0]])
    expected = [[-32363.5, 33273.0], [8896.5, 3563.0]]
    torch.testing.assert_close(made(x), torch.tensor(expected))
    torch.testing.assert_close(made(x, add=torch.ones(2, 2)), torch.tensor(expected) + 1)


@pytest.mark.parametrize("activation", [None, "gelu", "relu", "gelu_pytorch_tanh", "silu"])
def test_a_map_is_near_the_plain_one(activation):
    torch.manual_seed(0)
    weight, bias, rows = torch.randn(48, 32), torch.randn(48), torch.randn(256, 32)
    plain = seen(weight, rows, bias, activation)
    made, _ = fitted(plain, torch.bfloat16)
    found, exact = made(rows), plain(rows)
    assert found.dtype == torch.bfloat16
    assert (found.float() - exact).square().mean().sqrt() < 0.01 * exact.square().mean().sqrt()


def test_values_beyond_the_calibration_are_its_ends():
    made = Int8Linear(torch.eye(2) * 127, None, None, torch.zeros(2), torch.full((2,), 255.0), 0.5, torch.float32)
    torch.testing.assert_close(made(torch.tensor([[-9.0, 1e6]])), torch.tensor([[0.0, 255.0 * 127]]))


def test_one_large_channel_does_not_blur_the_others():
    """One channel a hundred times as large as the others: its range moves into the weight."""
    torch.manual_seed(0)
    weight, rows = torch.randn(24, 32), torch.randn(256, 32)
    rows[:, 5] *= 100
    weight[:, 5] /= 10
    plain = seen(weight, rows)
    _, loss = fitted(plain, torch.float32)
    exact = F.linear(rows, weight)
    unmoved = Int8Linear(weight, None, None, plain.low, plain.high, 0.0, torch.float32)(rows)
    assert loss < (unmoved - exact).square().mean() / 10


def test_the_mean_error_is_taken_back():
    torch.manual_seed(0)
    weight, rows = torch.randn(24, 32), F.gelu(torch.randn(256, 32) - 1)
    plain = seen(weight, rows)
    made, _ = fitted(plain, torch.float32)
    kept = torch.cat(plain.kept)
    error = made(kept) - F.linear(kept, weight)
    assert error.abs().mean() > 1e-4 and error.mean(0).abs().max() < 1e-6


def test_only_some_rows_are_kept():
    rows = torch.arange(1_000 * 2.0).view(1_000, 2)
    plain = Watching(torch.eye(2), None)
    plain(rows[:101])
    assert plain.kept[0][:, 0].tolist() == [2.0 * int(place) for place in torch.linspace(0, 100, 16)]
    for _ in range(50):
        plain(rows)
    assert sum(map(len, plain.kept)) == 512 and plain.high.tolist() == [1_998.0, 1_999.0]


def test_mixed_spares_the_maps_that_int8_changes_most():
    torch.manual_seed(0)
    rows = torch.randn(64, 16)
    watched = [seen(torch.randn(16, 16) * scale, rows) for scale in (1, 2, 9, 3, 1, 1, 2, 2, 3, 8, 1, 1, 1)]
    assert [type(one) for one in int8_maps(watched, mixed=False)] == [Int8Linear] * 13
    kinds = [type(one) for one in int8_maps(watched, mixed=True)]
    assert [number for number, kind in enumerate(kinds) if kind is LowLinear] == [2, 9]


def test_maps_that_saw_nothing_stay_in_bf16():
    (made,) = int8_maps([Watching(torch.eye(4), None)], mixed=False)
    assert isinstance(made, LowLinear)
    torch.testing.assert_close(made(torch.ones(2, 4), add=torch.ones(2, 4)), torch.full((2, 4), 2.0))


@pytest.mark.parametrize("broken", ["operator", "wrong", "hardware"])
def test_without_int8(monkeypatch, broken):
    def forward(self, x, add=None):
        if broken == "operator":
            raise AttributeError("'_OpNamespace' 'onednn' object has no attribute 'qlinear_pointwise'")
        return x

    if broken == "hardware":
        monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    else:
        monkeypatch.setattr(Int8Linear, "forward", forward)
    int8.has_int8.cache_clear()
    try:
        assert not int8.has_int8()
        monkeypatch.setattr(int8, "low_precision", lambda device: "fp32")
        assert int8.int8_precision("int8") == "fp32"
    finally:
        int8.has_int8.cache_clear()
    monkeypatch.undo()
    assert int8.has_int8() and int8.int8_precision("mixed") in ("mixed and bf16", "mixed and fp32")
