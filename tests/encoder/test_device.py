"""The device of an encoder; this test never asks for hardware that is not there."""

import re
import warnings

import numpy as np
import pytest
import torch

from pyterrier_cascade import DCBERT, Cascade, CrossEncoder
from pyterrier_cascade.encoder.device import (
    check_device,
    device_of,
    free_memory,
    has_bf16,
    has_varlen,
    scoring_precision,
    training_precision,
    uploaded,
    warn_if_emulated,
)


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


@pytest.mark.parametrize(
    ("device", "has_bf16", "expected"),
    [("cpu", True, "fp32"), ("cuda", True, "bf16"), ("cuda", False, "fp16"), ("mps", False, "fp16")],
)
def test_the_precision_of_scores(monkeypatch, device, has_bf16, expected):
    """bf16 on GPUs that have it, fp16 on a T4 or a V100 and on MPS, fp32 on a CPU; any other name stays."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    assert scoring_precision("auto", torch.device(device)) == expected
    assert [scoring_precision(name, torch.device(device)) for name in ("fp32", "bf16")] == ["fp32", "bf16"]


def test_emulated_bf16_warns(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    message = "^precision='bf16' is emulated on this cuda device and slow; use precision='auto'$"
    with pytest.warns(UserWarning, match=message):
        warn_if_emulated("bf16", torch.device("cuda"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_emulated("fp16", torch.device("cuda"))
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
        warn_if_emulated("bf16", torch.device("cuda"))


@pytest.mark.parametrize(
    ("device", "dtype", "width", "capability", "expected"),
    [
        ("cuda", torch.float16, 64, (8, 0), True),
        ("cuda", torch.bfloat16, 32, (9, 0), True),
        ("cuda", torch.float32, 64, (8, 0), False),
        ("cuda", torch.float16, 64, (7, 5), False),
        ("cuda", torch.float16, 20, (8, 0), False),
        ("cuda", torch.float16, 264, (8, 0), False),
        ("mps", torch.float16, 64, (8, 0), False),
    ],
)
def test_the_kernel_for_inputs_of_any_lengths_needs_hardware(monkeypatch, device, dtype, width, capability, expected):
    pytest.importorskip("torch.nn.attention.varlen")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert has_varlen(torch.device(device), dtype, width) is expected


def test_free_memory_counts_what_torch_keeps(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1_000, 9_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    assert free_memory(torch.device("cuda")) == 1_300 and free_memory(torch.device("cpu")) is None


def test_uploads_to_cuda_are_pinned_and_not_awaited(monkeypatch):
    """No GPU is asked for: the copy is taken down instead."""
    seen = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: seen.append("pinned") or self)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device, **how: seen.append((str(device), how)) or self)
    assert uploaded(np.arange(3), torch.device("cuda:1")).tolist() == [0, 1, 2]
    assert seen == ["pinned", ("cuda:1", {"non_blocking": True})]
