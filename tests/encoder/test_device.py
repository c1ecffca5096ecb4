"""The device of an encoder; this test never asks for hardware that is not there."""

import re

import pytest
import torch

from pyterrier_cascade import DCBERT, Cascade, CrossEncoder
from pyterrier_cascade.encoder.device import check_device, device_of, has_bf16, training_precision


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_best_device_there_is(monkeypatch, cuda, mps, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert device_of(None) == torch.device(expected)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize(("name", "n_gpus"), [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2)])
def test_gpus_that_are_not_there(monkeypatch, name, n_gpus):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    with pytest.raises(ValueError, match=f"^device='{name}', but torch finds {n_gpus} GPUs here; give device='cpu'"):
        device_of(name)


@pytest.mark.parametrize("supported", [True, False])
def test_bf16_needs_hardware(monkeypatch, supported):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert has_bf16(torch.device("cuda")) is supported
    assert has_bf16(torch.device("mps")) is False


@pytest.mark.parametrize("name", ["foo", "cuda:x", "meta", "cpu cpu", "", 1.5])
def test_no_device(name):
    expected = (
        f"device={name!r} is no device that computes; give one of cpu, cuda, mps, xpu, perhaps with a number "
        "('cuda:0'), or None for a GPU where there is one"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        check_device(name)


@pytest.mark.parametrize("name", [None, "cpu", "cuda", "cuda:1", "mps", "xpu:0", torch.device("cpu")])
def test_a_device_that_may_be_on_another_machine(name):
    check_device(name)


@pytest.mark.parametrize("ranker", [CrossEncoder, Cascade, DCBERT])
def test_rankers_refuse_it_when_they_are_made(ranker):
    with pytest.raises(ValueError, match=r"^device='foo' is no device that computes; give one of cpu"):
        ranker.from_pretrained("nowhere", device="foo")


def test_the_precision_of_a_training(monkeypatch):
    cpu = torch.device("cpu")
    for supported, expected in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda supported=supported: supported)
        found = [training_precision(name, cpu) for name in ("auto", "bf16", "fp32")]
        assert found == [expected, "bf16", "fp32"]
    gpu = torch.device("cuda:1")
    for supported, expected in ((True, "bf16"), (False, "fp16")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda supported=supported, **how: supported)
        assert [training_precision(name, gpu) for name in ("auto", "fp16", "fp32")] == [expected, "fp16", "fp32"]
    for device in (cpu, torch.device("mps")):
        with pytest.raises(
            ValueError, match=f"^precision='fp16' trains on GPUs of the kind 'cuda' alone, not on '{device.type}'"
        ):
            training_precision("fp16", device)
