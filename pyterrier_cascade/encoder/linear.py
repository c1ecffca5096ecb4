"""Linear maps for inference: plain, or prepacked for oneDNN on CPUs."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Make = Callable[..., nn.Module]
"""Makes a linear map from weight ``(out, in)``, bias ``(out,)`` or None, and the activation that follows it."""

_FUSED = {"gelu": ("gelu", "none"), "gelu_pytorch_tanh": ("gelu", "tanh"), "relu": ("relu", ""), None: ("none", "")}
"""What oneDNN calls the activations that it can apply while the result is still in its registers."""


class Linear(nn.Module):
    """``activation(x W' + b)``, plus another tensor of the result's shape where one is given.

    Args:
        weight: ``(out, in)``.
        bias: ``(out,)`` or None.
        activation: A name among transformers' activations, or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None = None):
        super().__init__()
        self.weight, self.bias, self.activation = weight, bias, _activation(activation)

    def forward(self, x: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        """Returns ``(..., out)`` for ``(..., in)``."""
        y = self.activation(F.linear(x, self.weight, self.bias))
        return y if add is None else y + add


class PackedLinear(nn.Module):
    """The same on oneDNN, with the weight in its own layout and activation or addition fused.

    Where ``F.linear`` goes to another library, as it does in fp32, this is about twice as fast on AMD processors.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None = None):
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
        self.bias = bias
        self.fused = _FUSED.get(activation, _FUSED[None])
        self.activation = _activation(None if activation in _FUSED else activation)

    def forward(self, x: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        """Returns ``(..., out)`` for ``(..., in)``."""
        if add is not None:
            return torch.ops.mkldnn._linear_pointwise.binary(x, add, self.weight, self.bias, "add")
        name, algorithm = self.fused
        return self.activation(torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, name, [], algorithm))


def _activation(name: str | None) -> nn.Module:
    from transformers.activations import ACT2FN

    return nn.Identity() if name is None else ACT2FN[name]


def linear_for(device: torch.device, dtype: torch.dtype) -> Make:
    """Returns the fastest map that works here: prepacked on a CPU whose torch has these operators, else plain."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return Linear
    weight, bias, x = torch.ones(16, 16, dtype=dtype), torch.ones(16, dtype=dtype), torch.ones(2, 16, dtype=dtype)
    try:
        works = torch.equal(PackedLinear(weight, bias, "relu")(x), Linear(weight, bias, "relu")(x)) and torch.equal(
            PackedLinear(weight, bias)(x, add=x), Linear(weight, bias)(x, add=x)
        )
    # The operators are torch's own and undocumented: another version may lack them or take other arguments.
    except (AttributeError, RuntimeError, TypeError):
        return Linear
    return PackedLinear if works else Linear


def with_linears(module: nn.Module, make: Make) -> nn.Module:
    """Returns the module with all its linear maps made anew, in place."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, make(child.weight.detach(), None if child.bias is None else child.bias.detach()))
        else:
            with_linears(child, make)
    return module
