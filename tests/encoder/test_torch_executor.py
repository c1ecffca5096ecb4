"""Spans of layers on torch: precisions, the work that is left out, and the user's own weights."""

import numpy as np
import pytest
import torch

from pyterrier_cascade.encoder import jagged, torch_executor
from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.encoder.families import Weights, take_apart
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.jagged import Jagged
from pyterrier_cascade.encoder.layout import Packed, Padded
from pyterrier_cascade.encoder.torch_executor import TorchExecutor
from tests.encoder import spans


@pytest.mark.parametrize("merge", [1.0, 0.75, 0.01])
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_bf16_is_near_for_every_grouping_of_attention(encoder, family, merge):
    pairs = spans.inputs(spans.RAGGED)
    exact = run(spans.executor(encoder(family), "mean"), pairs)
    near = run(spans.executor(encoder(family), "mean", "bf16", merge=merge), pairs)
    assert 0 < np.abs(near - exact).max() < 0.1 and np.abs(near - exact).mean() < 0.02
    assert np.corrcoef(near[:, 2], exact[:, 2])[0, 1] > 0.999


def test_only_states_that_the_head_reads_are_computed(encoder, monkeypatch):
    """The last layer of a span that ends in a CLS head gives one row an input; a mean needs all."""
    rows = {}
    for pooling in ("cls", "mean"):
        made = spans.executor(encoder("bert"), pooling)
        seen = []
        for layer in made.encoder.layers:
            layer.register_forward_hook(lambda module, given, out, seen=seen: seen.append(len(out)))
        run(made, spans.inputs([5, 5, 5]))
        rows[pooling] = seen
    assert rows == {"cls": [16, 16, 16, 3], "mean": [16, 16, 16, 16]}


def test_the_users_weights_are_not_moved_or_changed(encoder):
    """Heads are copied for inference: a head under training keeps its dropout, and stays where it is."""
    head = torch.nn.Sequential(torch.nn.Dropout(0.9), spans.Sum()).train()
    model = encoder("bert")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    made = TorchExecutor(model, [Head(2, "mean", head)], spans.CPU)
    first, second = (run(made, spans.inputs([6, 8])) for _ in range(2))
    assert (first == second).all() and head.training and isinstance(head[1].map, torch.nn.Linear)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize(
    ("device", "varlen", "padding", "layout"),
    [
        ("cuda", True, None, Jagged),
        ("cuda", False, 0.5, Jagged),
        ("mps", False, 0.08, Padded),
        ("cpu", False, None, Packed),
    ],
)
def test_chunks_and_layouts_of_devices(encoder, monkeypatch, device, varlen, padding, layout):
    """A device with a queue of its own gets large chunks from the calling thread; no GPU is asked for here."""
    monkeypatch.setattr(
        torch_executor, "take_apart", lambda *a: take_apart(encoder("bert"), Weights(spans.CPU, torch.float32))
    )
    monkeypatch.setattr(Head, "to", lambda self, device: self)
    monkeypatch.setattr(torch_executor, "has_varlen", lambda *given: varlen)
    monkeypatch.setattr(jagged, "uploaded", lambda values, device: torch.from_numpy(values))
    monkeypatch.setattr(Padded, "of", classmethod(lambda cls, lengths, device: cls(torch.ones(1, 1))))
    made = TorchExecutor(encoder("bert"), spans.heads(), torch.device(device))
    how = (512, "workers") if device == "cpu" else (65_536, "calling_thread")
    assert (made.budget, made.workers.__name__) == how and made.padding == padding
    assert type(made.layout(np.array([3, 5]))) is layout
