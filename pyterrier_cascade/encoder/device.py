"""The device that an encoder runs on, and the abilities of its hardware."""

import torch

DEVICES = ("cpu", "cuda", "mps", "xpu")
"""The kinds of devices that an encoder can run on."""


def check_device(name: str | None) -> None:
    """Raises unless a name can be that of a device, here or on another machine; None lets the package choose one."""
    if name is None:
        return
    try:
        kind = torch.device(name).type
    except (RuntimeError, TypeError):
        kind = None
    if kind not in DEVICES:
        raise ValueError(
            f"device={name!r} is no device that computes; give one of {', '.join(DEVICES)}, perhaps with a number "
            "('cuda:0'), or None for a GPU where there is one"
        )


def device_of(name: str | None) -> torch.device:
    """Returns the device of a name; for None a GPU if there is one, otherwise the CPU."""
    if name is not None:
        device = torch.device(name)
        n_gpus = torch.cuda.device_count() if device.type == "cuda" else None
        if n_gpus is not None and (device.index or 0) >= n_gpus:
            raise ValueError(f"device={name!r}, but torch finds {n_gpus} GPUs here; give device='cpu', or None")
        return device
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def training_precision(name: str, device: torch.device) -> str:
    """Returns ``"bf16"``, ``"fp16"`` or ``"fp32"`` for the ``precision`` of a training, which may be ``"auto"``.

    A training in fp16 scales its loss, so that small gradients do not become 0.
    """
    if name == "auto":
        return "bf16" if has_bf16(device) else "fp16" if device.type == "cuda" else "fp32"
    if name == "fp16" and device.type != "cuda":
        raise ValueError(
            f"precision='fp16' trains on GPUs of the kind 'cuda' alone, not on {device.type!r}; use 'auto', 'bf16' or "
            "'fp32'"
        )
    return name


def has_bf16(device: torch.device) -> bool:
    """Returns whether the device multiplies bf16 in hardware; on other devices bf16 is slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
