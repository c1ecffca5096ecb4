"""The engines at the door, and the executors of one encoder."""

import re

import numpy as np
import pytest
import torch

from pyterrier_cascade.encoder import engine, executors
from pyterrier_cascade.encoder.executors import Executors, check_engine, computed_precision
from tests.encoder import spans


def test_executors_are_made_once_and_anew_when_weights_change(encoder):
    model, pairs = encoder("bert", hidden_dropout_prob=0.0), spans.inputs([5, 9])
    made = Executors(model, spans.heads())
    first = made.get("torch", "fp32", None, pairs)
    assert made.get("torch", "fp32", "cpu", pairs) is first
    assert made.get("torch", "bf16", None, pairs) is not first
    before = engine.run(first, pairs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(**pairs.batch([0, 1])).last_hidden_state.square().sum().backward()
    optimizer.step()
    second = made.get("torch", "fp32", None, pairs)
    after = engine.run(second, pairs)
    assert second is not first and np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, spans.reference(model, pairs, "mean_nocls"), atol=1e-5, rtol=0)


def test_auto_is_fp32_on_a_cpu_with_both_engines(encoder):
    model, pairs = encoder("bert"), spans.inputs([5, 9])
    made = Executors(model, spans.heads())
    assert made.get("torch", "auto", "cpu", pairs) is made.get("torch", "fp32", "cpu", pairs)
    assert [computed_precision(engine, "auto", "cpu") for engine in ("torch", "openvino")] == ["fp32", "fp32"]
    check_engine("torch", "fp16", None)
    with pytest.raises(ValueError, match=r"^precision='fp16' is for GPUs, but this computes on the CPU; use 'auto', "):
        made.get("torch", "fp16", "cpu", pairs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("onnx", "fp32", None), "engine must be one of torch, openvino, not 'onnx'"),
        (
            ("torch", "int4", None),
            "precision must be one of auto, fp32, bf16, fp16, int8, mixed with engine='torch', not 'int4'",
        ),
        (
            ("torch", "mixed", "cuda:0"),
            "precision='mixed' is for CPUs, but this computes on 'cuda:0'; use 'auto', or give device='cpu'",
        ),
        (
            ("torch", "int8", None, True),
            "torch_compile=True with engine='torch' and precision='int8': give True with engine='torch' and another "
            "precision than int8 or mixed, or False",
        ),
        (
            ("openvino", "fp16", None),
            "precision must be one of auto, fp32, bf16, int8, mixed with engine='openvino', not 'fp16' (fp16 needs "
            "engine='torch')",
        ),
        (
            ("torch", "fp16", "cpu"),
            "precision='fp16' is for GPUs, but this computes on the CPU; use 'auto', 'fp32' or 'bf16'",
        ),
        (
            ("openvino", "bf16", "cuda:0"),
            "engine='openvino' computes on the CPU, not on device='cuda:0'; use engine='torch'",
        ),
    ],
)
def test_engines_are_checked_at_the_door(given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_engine(*given)


def test_without_int8_a_warning_says_what_computes(encoder, monkeypatch):
    monkeypatch.setattr(executors, "has_int8", lambda: False)
    monkeypatch.setattr(executors, "int8_precision", lambda precision: "bf16")
    pairs, made = spans.inputs([5] * 32), Executors(encoder("bert"), spans.heads())
    message = (
        "precision='int8' needs a CPU with VNNI and oneDNN's operators for int8 in torch; this computes in bf16 instead"
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        assert made.get("torch", "int8", "cpu", pairs) is made.get("torch", "bf16", "cpu", pairs)
    assert computed_precision("torch", "int8", "cpu") == "bf16" and made.calibration is None
