"""Attention with dropout at the speed of a CPU.

torch has no fast kernel for it there: it multiplies in fp32 and draws a random number for each probability, which takes
half of the training when texts are paragraphs.
"""

import contextlib
from collections.abc import Iterator

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

NAME = "pyterrier_cascade_cpu"
STEPS = 2**16


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
    """Returns what each token attends to, ``(n, length, heads, width)``, as Hugging Face's layers ask for it.

    Args:
        module: The layer that asks.
        query: ``(n, heads, length, width)``.
        key: The same shape.
        value: The same shape.
        attention_mask: Where to look: booleans, or what is added; ``(n, 1, length or 1, length)``. None is everywhere.
        dropout: The share of the probabilities that are left out, to the next of 65,536 steps.
        scaling: What dot products are multiplied by; the inverse square root of the width unless given.
        **unused: What other kernels need.
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
        # Smaller than the probabilities, which are what is usually multiplied.
        value = value * (STEPS / (STEPS - left_out))
    return (weights @ value).transpose(1, 2).contiguous(), None


def random_steps(shape: torch.Size) -> torch.Tensor:
    """Returns random numbers of 16 bits, four from each that is drawn."""
    n = shape.numel()
    drawn = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(2**63), None)
    return drawn.view(torch.int16)[:n].view(shape)


@contextlib.contextmanager
def fast_attention(module: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """Has the encoders within a module attend by :func:`attention` for a while, if that is on a CPU.

    transformers below 5 does not ask: encoders attend there as they did.
    """
    changed = []
    for part in module.modules():
        asks = isinstance(part, PreTrainedModel) and getattr(part, "_supports_attention_backend", False)
        if asks and device.type == "cpu" and part.config._attn_implementation == "sdpa":
            part.config._attn_implementation = NAME
            changed.append(part.config)
    try:
        yield
    finally:
        for config in changed:
            config._attn_implementation = "sdpa"


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
