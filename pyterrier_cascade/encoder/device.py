"""The device that an encoder runs on, and the abilities of its hardware."""

import inspect

import numpy as np
import torch

from pyterrier_cascade.checks import warn_user

DEVICES = ("cpu", "cuda", "mps", "xpu")
"""The kinds of devices that an encoder can run on."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The types of the precisions of torch."""

PRECISIONS = ("auto", *DTYPES)
"""The names that a user may give for a precision of torch."""

CALIBRATED = ("int8", "mixed")
"""The precisions that need calibration; encoders of pairs have them on CPUs."""

CALIBRATION = (32, 320)
"""The smallest and the largest number of inputs that int8 is calibrated on."""


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


def scoring_precision(name: str, device: torch.device) -> str:
    """Returns the precision that scores are computed in, for the name that the user gave.

    ``"auto"`` is bf16 on GPUs that have it, fp16 on other GPUs, and fp32 on CPUs.

    Args:
        name: One of :data:`PRECISIONS` or :data:`CALIBRATED`.
        device: The device.
    """
    if name in CALIBRATED and device.type != "cpu":
        raise ValueError(
            f"precision={name!r} is for CPUs, but this computes on {str(device)!r}; use 'auto', or give device='cpu'"
        )
    if name == "fp16" and device.type == "cpu":
        raise ValueError("precision='fp16' is for GPUs, but this computes on the CPU; use 'auto', 'fp32' or 'bf16'")
    if name != "auto":
        return name
    if device.type == "cpu":
        return "fp32"
    return "bf16" if has_bf16(device) else "fp16"


def low_precision(device: torch.device) -> str:
    """Returns the precision of what int8 does not cover, such as attention: bf16 where the CPU has it, else fp32."""
    return "bf16" if has_bf16(device) else "fp32"


def warn_if_emulated(precision: str, device: torch.device) -> None:
    """Warns where a device computes in bf16 without the hardware for it."""
    if precision == "bf16" and not has_bf16(device):
        warn_user(f"precision='bf16' is emulated on this {device.type} device and slow; use precision='auto'")


def uploaded(values: np.ndarray | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns the values of an array or a tensor on a device; with CUDA nobody waits until they are there."""
    found = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if device.type == "cuda" and found.device.type == "cpu":
        # Only a copy from pinned memory goes on beside the work of host and GPU.
        return found.pin_memory().to(device, non_blocking=True)
    return found.to(device)


def free_memory(device: torch.device) -> int | None:
    """Returns the bytes that a device has free for new tensors; None where torch cannot say."""
    if device.type != "cuda":
        return None
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def has_varlen(device: torch.device, dtype: torch.dtype, head_width: int) -> bool:
    """Returns whether there is a kernel for attention within inputs of any lengths that lie end to end.

    Args:
        device: The device.
        dtype: The type of the states.
        head_width: The width of an attention head.
    """
    if device.type != "cuda" or dtype == torch.float32 or head_width % 8 or head_width > 256:
        return False
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    # The first versions of torch that have it know no windows.
    has_windows = "window_size" in inspect.signature(varlen_attn).parameters
    return has_windows and torch.cuda.get_device_capability(device) >= (8, 0)


def has_bf16(device: torch.device) -> bool:
    """Returns whether the device multiplies bf16 in hardware; on other devices bf16 is slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
