"""Attention with dropout that is fast on a CPU.

On a CPU torch has no fast kernel for attention with dropout. It multiplies in fp32 and draws one random number for each
attention probability. With texts of a paragraph's length this takes half of the training time.
"""

import contextlib
from collections.abc import Iterator

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

NAME = "pyterrier_cascade_cpu"
"""The name under which transformers knows :func:`attention`."""

STEPS = 2**16
"""The number of different values of a 16-bit random number; dropout is rounded to a multiple of ``1 / STEPS``."""


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **unused,
) -> tuple[torch.Tensor, None]:
    """Returns the output of multi-head attention, ``(n, length, heads, width)``, and None in place of the weights.

    The signature is that of transformers' attention functions.

    Args:
        module: The layer that calls the function.
        query: ``(n, heads, length, width)``.
        key: ``(n, heads, length, width)``.
        value: ``(n, heads, length, width)``.
        attention_mask: ``(n, 1, length or 1, length)``: booleans that are true where a token may look, or numbers that
            are added to the scores. None lets every token look everywhere.
        dropout: The share of the attention probabilities that become 0, rounded to a multiple of 1 / 65,536.
        scaling: The factor of the dot products; the inverse square root of the width unless given.
        **unused: Arguments of other attention functions.
    """
    scores = (query * (query.shape[-1] ** -0.5 if scaling is None else scaling)) @ key.transpose(-1, -2)
    if attention_mask is not None:
        if attention_mask.dtype == torch.bool:
            attention_mask = torch.zeros_like(attention_mask, dtype=scores.dtype).masked_fill(
                ~attention_mask, torch.finfo(scores.dtype).min
            )
        scores += attention_mask.to(scores.dtype)
    weights = scores.softmax(-1)
    if dropout:
        left_out = round(dropout * STEPS)
        kept = torch.empty(weights.shape, dtype=weights.dtype)
        torch.ge(random_steps(weights.shape), left_out - STEPS // 2, out=kept)
        weights = weights * kept
        # Dropout usually scales the probabilities. The values are a smaller tensor, and the product is the same.
        value = value * (STEPS / (STEPS - left_out))
    return (weights @ value).transpose(1, 2).contiguous(), None


def random_steps(shape: torch.Size) -> torch.Tensor:
    """Returns random 16-bit integers of a shape; each 64-bit number that torch draws gives four of them."""
    n = shape.numel()
    drawn = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(2**63), None)
    return drawn.view(torch.int16)[:n].view(shape)


@contextlib.contextmanager
def fast_attention(module: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """Makes the encoders inside a module use :func:`attention` within a ``with`` block, if the device is a CPU.

    With transformers below 5 nothing changes, because its encoders do not look attention functions up.

    Args:
        module: The module, which may contain several encoders.
        device: The device of the training.
    """
    changed = []
    for part in module.modules():
        supported = isinstance(part, PreTrainedModel) and getattr(part, "_supports_attention_backend", False)
        if supported and device.type == "cpu" and part.config._attn_implementation == "sdpa":
            part.config._attn_implementation = NAME
            changed.append(part.config)
    try:
        yield
    finally:
        for config in changed:
            config._attn_implementation = "sdpa"


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
