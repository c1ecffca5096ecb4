"""Linear maps for inference: plain, or prepacked for oneDNN on CPUs."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Make = Callable[..., nn.Module]
"""A class of linear maps: it takes a weight ``(out, in)``, a bias ``(out,)`` or None, and the name of an activation."""

FUSED = {"gelu": ("gelu", "none"), "gelu_pytorch_tanh": ("gelu", "tanh"), "relu": ("relu", ""), None: ("none", "")}
"""The names and algorithms of oneDNN for the activations that it can fuse with a linear map."""


class Linear(nn.Module):
    """A linear map with an activation: ``activation(x W' + b)``.

    Args:
        weight: The weight, ``(out, in)``.
        bias: The bias, ``(out,)``, or None.
        activation: The name of one of transformers' activations, or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None = None):
        super().__init__()
        self.weight, self.bias, self.activation = weight, bias, activation_of(activation)

    def forward(self, x: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        """Returns ``(..., out)`` for ``x`` of ``(..., in)``, plus ``add`` of ``(..., out)`` if it is given."""
        y = self.activation(F.linear(x, self.weight, self.bias))
        return y if add is None else y + add


class PackedLinear(nn.Module):
    """The same map computed by oneDNN, with the weight in oneDNN's own layout and the activation or addition fused.

    In fp32 ``F.linear`` uses another library, and this map is about twice as fast on AMD processors.

    Args:
        weight: The weight, ``(out, in)``.
        bias: The bias, ``(out,)``, or None.
        activation: The name of one of transformers' activations, or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None = None):
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
        self.bias = bias
        self.fused = FUSED.get(activation, FUSED[None])
        self.activation = activation_of(None if activation in FUSED else activation)

    def forward(self, x: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        """Returns ``(..., out)`` for ``x`` of ``(..., in)``, plus ``add`` of ``(..., out)`` if it is given."""
        if add is not None:
            return torch.ops.mkldnn._linear_pointwise.binary(x, add, self.weight, self.bias, "add")
        name, algorithm = self.fused
        return self.activation(torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, name, [], algorithm))


def activation_of(name: str | None) -> nn.Module:
    """Returns one of transformers' activations; the identity for None."""
    from transformers.activations import ACT2FN

    return nn.Identity() if name is None else ACT2FN[name]


def linear_for(device: torch.device, dtype: torch.dtype) -> Make:
    """Returns the fastest class of linear maps for a device: prepacked ones if torch has the operators, else plain."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return Linear
    weight, bias, x = torch.ones(16, 16, dtype=dtype), torch.ones(16, dtype=dtype), torch.ones(2, 16, dtype=dtype)
    try:
        works = torch.equal(PackedLinear(weight, bias, "relu")(x), Linear(weight, bias, "relu")(x)) and torch.equal(
            PackedLinear(weight, bias)(x, add=x), Linear(weight, bias)(x, add=x)
        )
    # The operators are internal to torch: another version may not have them, or may take other arguments.
    except (AttributeError, RuntimeError, TypeError):
        return Linear
    return PackedLinear if works else Linear


def with_linears(module: nn.Module, make: Make) -> nn.Module:
    """Replaces all ``nn.Linear`` inside a module by maps of another class, in place, and returns the module.

    Args:
        module: The module.
        make: The class of the new maps.
    """
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, make(child.weight.detach(), None if child.bias is None else child.bias.detach()))
        else:
            with_linears(child, make)
    return module
