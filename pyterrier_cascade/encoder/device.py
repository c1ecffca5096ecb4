"""Where an encoder runs, and what the hardware there can do."""

import torch


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
