"""The device that an encoder runs on, and the abilities of its hardware."""

import torch


def device_of(name: str | None) -> torch.device:
    """Returns the device of a name; for None a GPU if there is one, otherwise the CPU."""
    if name is not None:
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def has_bf16(device: torch.device) -> bool:
    """Returns whether the device multiplies bf16 in hardware; on other devices bf16 is slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
