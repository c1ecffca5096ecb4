"""Random states of questions and documents, and the largest tensor that something needs."""

from types import SimpleNamespace

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode


def texts(lengths, width=32, seed=0):
    """Returns the states of texts, each ``(length, width)``."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, width, generator=generator) for length in lengths]


def flat(documents, dtype="fp32"):
    """Returns documents as a cache gives them."""
    states, lengths = torch.cat(documents).numpy(), np.array([len(document) for document in documents])
    if dtype == "int8":
        scales = np.abs(states).max(1) / 127
        return SimpleNamespace(states=np.rint(states / scales[:, None]).astype("i1"), lengths=lengths, scales=scales)
    return SimpleNamespace(states=states.astype({"fp32": "f4", "fp16": "f2"}[dtype]), lengths=lengths)


def restored(documents):
    """Returns what a cache's states stand for, as texts."""
    states = torch.from_numpy(documents.states.astype("f4"))
    if hasattr(documents, "scales"):
        states = states * torch.from_numpy(documents.scales)[:, None]
    return list(states.split(documents.lengths.tolist()))


class Largest(TorchDispatchMode):
    """Keeps the size of the largest floating-point tensor that operations return."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32:
                self.elements = max(self.elements, tensor.numel())
        return result
