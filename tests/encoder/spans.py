"""Heads at several layers of a tiny encoder, inputs for it, and the scores that Hugging Face's forward pass gives."""

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder import engine
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.torch_executor import TorchExecutor

CPU = torch.device("cpu")
LAYERS = (1, 2, 4)
RAGGED = [3, 40, 40, 7, 1, 25, 2, 26, 27, 90]


class Sum(nn.Module):
    """A head whose scores can be computed by hand from the states."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.map = nn.Linear(width, 1, bias=False)
        self.map.weight.data = torch.linspace(-1, 1, width)[None]

    def forward(self, pooled):
        return self.map(pooled)[:, 0]


def heads(pooling: str = "mean_nocls", layers=LAYERS) -> list[Head]:
    return [Head(layer, pooling, Sum(64 if pooling == "mean_cls" else 32)) for layer in layers]


def executor(encoder, pooling: str = "mean_nocls", precision: str = "fp32", **attributes) -> TorchExecutor:
    """An executor with heads at :data:`LAYERS`; attributes such as ``padding`` replace those that it chose."""
    made = TorchExecutor(encoder, heads(pooling), CPU, precision)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def inputs(lengths, vocabulary: int = 80, seed: int = 0) -> TokenPairs:
    """Inputs of given lengths; tokens from 5, behind the special ones."""
    rng, lengths = np.random.default_rng(seed), np.asarray(lengths, dtype=np.int64)
    tokens = rng.integers(5, vocabulary, lengths.sum()).astype(np.int32)
    return TokenPairs({"input_ids": tokens}, lengths, np.arange(len(lengths)), {"input_ids": 1})


def mean(states: torch.Tensor, real: torch.Tensor, skipped: int) -> torch.Tensor:
    weights = real[:, skipped:, None].float()
    return (states[:, skipped:] * weights).sum(1) / weights.sum(1)


@torch.no_grad()
def reference(encoder, pairs: TokenPairs, pooling: str, layers=LAYERS) -> np.ndarray:
    """The heads over Hugging Face's own forward passes, each of an encoder that ends at the head's layer."""
    stack = getattr(encoder, "encoder", None) or getattr(encoder, "transformer", None) or encoder
    name = "layer" if hasattr(stack, "layer") else "layers"
    every, batch, found = getattr(stack, name), pairs.batch(np.arange(len(pairs.lengths))), []
    for layer in layers:
        setattr(stack, name, every[:layer])
        states = encoder(**batch).last_hidden_state
        real = batch["attention_mask"]
        pooled = {
            "cls": lambda s=states: s[:, 0],
            "mean": lambda s=states, r=real: mean(s, r, 0),
            "mean_nocls": lambda s=states, r=real: mean(s, r, 1),
            "mean_cls": lambda s=states, r=real: torch.cat([mean(s, r, 0), s[:, 0]], 1),
        }[pooling]()
        found.append((pooled @ torch.linspace(-1, 1, pooled.shape[1])).numpy())
    setattr(stack, name, every)
    return np.stack(found, 1)


def assert_equals_hugging_face(encoder, pairs: TokenPairs, pooling: str = "mean_nocls", **attributes) -> np.ndarray:
    """Compares the scores at all heads with those over Hugging Face's own forward pass, and returns them."""
    got = engine.run(executor(encoder, pooling, **attributes), pairs)
    np.testing.assert_allclose(got, reference(encoder, pairs, pooling), atol=1e-5, rtol=0)
    return got
