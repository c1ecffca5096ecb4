"""Compiled layers: the same scores, and one compilation for all lengths."""

import functools
import re
import shutil

import numpy as np
import pytest
import torch

from pyterrier_cascade.encoder import engine
from pyterrier_cascade.encoder.torch_executor import TorchExecutor
from tests.encoder import spans

HAS_COMPILER = any(map(shutil.which, ("g++", "clang++", "c++")))


def backend(name: str, monkeypatch, seen: list | None = None) -> None:
    """Lets torch.compile use another backend, and notes each graph that it compiles."""
    from torch._dynamo.backends.registry import lookup_backend

    def noted(graph, inputs, **options):
        if seen is not None:
            seen.append(graph)
        return lookup_backend(name)(graph, inputs, **options)

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=noted))
    torch._dynamo.reset()


def executor(encoder, pooling="mean_nocls", **attributes) -> TorchExecutor:
    made = TorchExecutor(encoder, spans.heads(pooling), spans.CPU, torch_compile=True)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(("family", "pooling"), [("bert", "cls"), ("modernbert", "mean")])
def test_layers_compile_once_for_all_lengths(encoder, family, pooling, monkeypatch):
    graphs = []
    backend("eager", monkeypatch, graphs)
    made, pairs = executor(encoder(family), pooling), spans.inputs(spans.RAGGED)
    n_graphs = len(graphs)
    expected = spans.reference(encoder(family), pairs, pooling)
    np.testing.assert_allclose(engine.run(made, pairs), expected, atol=1e-5, rtol=0)
    for budget in (20, 100, 300):
        engine.run(made, pairs, budget=budget)
    # A layer is divided at the attention. ModernBERT has layers of three kinds: the first, with a window, and without.
    assert len(graphs) == n_graphs <= (6 if family == "modernbert" else 2)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_COMPILER, reason="needs a C++ compiler")
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_generated_code_gives_the_same_scores(encoder, family):
    torch._dynamo.reset()
    pairs = spans.inputs(spans.RAGGED)
    expected = spans.reference(encoder(family), pairs, "mean_nocls")
    np.testing.assert_allclose(engine.run(executor(encoder(family)), pairs), expected, atol=1e-5, rtol=0)


def test_an_error_says_what_torch_needs(encoder, monkeypatch):
    def broken(graph, inputs, **options):
        raise OSError("no compiler here")

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=broken))
    torch._dynamo.reset()
    with pytest.raises(
        RuntimeError, match=re.escape("torch_compile=True: torch cannot compile on this machine (")
    ) as seen:
        executor(encoder())
    assert "no compiler here" in str(seen.value)
    assert str(seen.value).endswith(
        "it needs a C++ compiler such as g++ for CPUs, and Triton for GPUs; install them, or leave torch_compile out"
    )
