"""The device of an encoder; this test never asks for hardware that is not there."""

import pytest
import torch

from pyterrier_cascade.encoder.device import device_of, has_bf16


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_best_device_there_is(monkeypatch, cuda, mps, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert device_of(None) == torch.device(expected)
    assert device_of("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize("supported", [True, False])
def test_bf16_needs_hardware(monkeypatch, supported):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert has_bf16(torch.device("cuda")) is supported
    assert has_bf16(torch.device("mps")) is False
