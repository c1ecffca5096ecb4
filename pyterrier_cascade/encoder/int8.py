"""Linear maps in int8 on CPUs, with scales that are calibrated on inputs, computed by oneDNN."""

import functools
import math
import warnings
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from pyterrier_cascade.encoder.device import DTYPES, low_precision
from pyterrier_cascade.encoder.linear import FUSED, Linear, activation_of, linear_for

SHIFTS = (0.5, 0.7, 0.85, 1.0)
"""How far a channel's range may move from the inputs into the weight (SmoothQuant's alpha): 0 not at all, 1 wholly.

States have a few channels with values far above the others, and one scale for all would leave the others few steps.
"""

KEPT = (16, 512)
"""The most rows of inputs that a map keeps of each chunk, and of all chunks."""

SPARED = 6
"""One of so many maps stays in bf16 in the precision ``mixed``: those whose results int8 changes most."""

_CPU = torch.device("cpu")
_LEAST = 1e-6


class Watching(Linear):
    """A plain linear map that notes the range of each channel of its inputs, and keeps some of them.

    Attributes:
        low: The smallest value of each channel so far, at most 0, ``(in,)``.
        high: The largest value of each channel so far, at least 0, ``(in,)``.
        kept: Some of the inputs, in arrays of ``(n, in)``.
        name: The name of the activation, or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None = None):
        super().__init__(weight, bias, activation)
        self.low, self.high = torch.zeros(2, weight.shape[1])
        self.kept: list[torch.Tensor] = []
        self.name = activation

    def forward(self, x: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        """Returns what the plain map returns."""
        self.low, self.high = torch.minimum(self.low, x.amin(0)), torch.maximum(self.high, x.amax(0))
        each, most = KEPT
        if len(self.kept) * each < most:
            self.kept.append(x[torch.linspace(0, len(x) - 1, min(len(x), each)).long()])
        return super().forward(x, add)


class Int8Linear(nn.Module):
    """A linear map with an activation in int8: ``activation(x W' + b)``.

    The weight has a scale for each output, and the inputs have one scale for all, after each channel was divided by a
    number that the weight is multiplied by. All scales are fixed, so no score depends on the other inputs of a chunk.

    Args:
        weight: The weight, ``(out, in)``.
        bias: The bias, ``(out,)``, or None.
        activation: The name of one of transformers' activations, or None.
        low: The smallest value of each channel of the inputs, at most 0, ``(in,)``.
        high: The largest value of each channel of the inputs, at least 0, ``(in,)``.
        shift: One of the :data:`SHIFTS`.
        dtype: The type of the results to which nothing is added.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        activation: str | None,
        low: torch.Tensor,
        high: torch.Tensor,
        shift: float,
        dtype: torch.dtype,
    ):
        super().__init__()
        reach, strength = torch.maximum(-low, high).clamp_min(_LEAST), weight.abs().amax(0).clamp_min(_LEAST)
        moved = reach**shift / strength ** (1 - shift)
        lowest, highest = (low / moved).min().item(), (high / moved).max().item()
        # Unsigned inputs have the fast kernels; the zero lies where the range needs it (behind GELU near the bottom).
        self.scale = max(highest - lowest, _LEAST) / 255
        self.zero = round(-lowest / self.scale)
        self.factors = 1 / (moved * self.scale)
        weight = weight * moved
        self.scales = weight.abs().amax(1).clamp_min(_LEAST) / 127
        whole = (weight / self.scales[:, None]).round().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(whole, None)
        self.zeros = torch.zeros(len(whole), dtype=torch.int32)
        self.bias = None if bias is None else bias.float()
        self.fused = FUSED.get(activation, FUSED[None])
        self.activation = activation_of(None if activation in FUSED else activation)
        self.dtype = dtype

    def forward(self, x: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        """Returns ``(n, out)`` for ``x`` of ``(n, in)``, plus ``add`` of ``(n, out)`` if it is given, in its type."""
        # States in bf16 become a new tensor, which may change in place.
        x = x * self.factors if x.dtype == torch.float32 else x.float().mul_(self.factors)
        whole = torch.quantize_per_tensor(x, 1.0, self.zero, torch.quint8)
        # The same memory as plain numbers.
        whole = torch.empty(0, dtype=torch.uint8).set_(whole.untyped_storage(), 0, whole.shape, whole.stride())
        given = whole, self.scale, self.zero, self.weight, self.scales, self.zeros
        if add is not None:
            return torch.ops.onednn.qlinear_pointwise.binary(
                *given, add, self.bias, 1.0, 0, add.dtype, 1.0, 0, "add", 1.0, "none", [], ""
            )
        name, algorithm = self.fused
        found = torch.ops.onednn.qlinear_pointwise(*given, self.bias, 1.0, 0, self.dtype, name, [], algorithm)
        return self.activation(found)


class LowLinear(nn.Module):
    """A linear map in a lower precision between states in fp32, which takes the place of one in int8.

    Args:
        weight: The weight, ``(out, in)``.
        bias: The bias, ``(out,)``, or None.
        activation: The name of one of transformers' activations, or None.
        dtype: The lower precision.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None, dtype: torch.dtype):
        super().__init__()
        self.map = linear_for(_CPU, dtype)(weight.to(dtype), None if bias is None else bias.to(dtype), activation)
        self.dtype = dtype

    def forward(self, x: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        """Returns ``(n, out)`` for ``x`` of ``(n, in)``, plus ``add`` of ``(n, out)`` if it is given, in its type."""
        found = self.map(x.to(self.dtype))
        return found if add is None else add + found


def fitted(seen: Watching, dtype: torch.dtype) -> tuple[Int8Linear, float]:
    """Returns a map in int8 with the least squared error on the inputs that were seen, and this error.

    The mean error of each output is taken back by the bias.

    Args:
        seen: The plain map, which has seen the inputs of the calibration.
        dtype: The type of the results to which nothing is added.
    """
    rows, bias = torch.cat(seen.kept), seen.bias
    exact, best = F.linear(rows, seen.weight), (math.inf, SHIFTS[0], torch.zeros(len(seen.weight)))
    for shift in SHIFTS:
        error = exact - Int8Linear(seen.weight, None, None, seen.low, seen.high, shift, torch.float32)(rows)
        mean = error.mean(0)
        best = min(best, ((error - mean).square().mean().item(), shift, mean), key=lambda found: found[0])
    loss, shift, mean = best
    bias = mean if bias is None else bias + mean
    return Int8Linear(seen.weight, bias, seen.name, seen.low, seen.high, shift, dtype), loss


def int8_maps(watched: Sequence[Watching], mixed: bool) -> list[nn.Module]:
    """Returns the maps of an encoder in int8, in the order of the plain ones.

    Args:
        watched: The plain maps, which have seen the inputs of the calibration.
        mixed: Whether some maps stay in bf16, as :data:`SPARED` says.
    """
    dtype = DTYPES[low_precision(_CPU)]

    def low(one: Watching) -> LowLinear:
        return LowLinear(one.weight, one.bias, one.name, dtype)

    # Layers above the last head have seen nothing, and are never run.
    found = [fitted(one, dtype) if one.kept else (low(one), 0.0) for one in watched]
    losses = torch.tensor([loss for _, loss in found])
    spared = losses.argsort(descending=True)[: len(found) // SPARED].tolist() if mixed else []
    return [low(one) if number in spared else found[number][0] for number, one in enumerate(watched)]


@functools.cache
def has_int8() -> bool:
    """Returns whether this CPU multiplies in int8 and torch has the operators for it."""
    weight, bias, x = torch.eye(16), torch.ones(16), torch.arange(32.0).view(2, 16) / 16
    try:
        # Without these instructions sums of products overflow.
        if not torch.backends.mkldnn.is_available() or not torch.cpu._is_vnni_supported():
            return False
        with warnings.catch_warnings():
            # torch announces the end of an operator, and only once in a process.
            warnings.simplefilter("ignore")
            tried = Int8Linear(weight, bias, "relu", torch.zeros(16), x.amax(0), 0.5, torch.float32)
            return all(torch.allclose(tried(x, *add), x + 1 + sum(add), atol=0.02) for add in ([], [x]))
    # The operators are internal to torch: another version may not have them, or may take other arguments.
    except (AttributeError, RuntimeError, TypeError):
        return False


def int8_precision(precision: str) -> str:
    """Returns the precision that torch computes in on this CPU, such as ``"int8 and bf16"``.

    Where int8 would not be faster it is bf16 or fp32.

    Args:
        precision: ``int8`` or ``mixed``.
    """
    rest = low_precision(_CPU)
    return f"{precision} and {rest}" if has_int8() else rest
