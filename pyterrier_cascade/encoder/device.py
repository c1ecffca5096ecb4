"""Where an encoder runs and in which precision."""

import contextlib

import torch

PRECISIONS = ("fp32", "bf16")


def device_of(name: str | None) -> torch.device:
    """Returns the named device, else a GPU where there is one, else the CPU."""
    if name is not None:
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def has_bf16(device: torch.device) -> bool:
    """Returns whether the device multiplies bf16 in hardware; elsewhere it is slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def check_precision(precision: str) -> None:
    """Raises where a precision is not one of :data:`PRECISIONS`."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")


def autocast(precision: str, device: torch.device):
    """Returns the context in which an encoder runs in this precision; weights stay fp32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
