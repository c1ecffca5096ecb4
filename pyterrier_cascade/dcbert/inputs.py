"""What is scored: a question's states and its documents' cached ones."""

import numpy as np
import torch


def checked_lengths(question: torch.Tensor, documents, width: int | None = None) -> np.ndarray:
    """Returns the tokens of each document, ``(n_docs,)``; raises where they cannot be scored for the question.

    Args:
        question: The question's states, ``(n_question_tokens, width)``.
        documents: With ``states (n_tokens, width)``, ``lengths (n_docs,)`` and perhaps ``scales (n_tokens,)``.
        width: What the width must be; the question's if None.
    """
    if question.ndim != 2 or not len(question):
        raise ValueError(f"a question's states must be (n_tokens, width), at least one; got {tuple(question.shape)}")
    width = width or question.shape[1]
    if question.shape[1] != width:
        raise ValueError(f"the question's states have width {question.shape[1]}, but {width} is needed")
    states, lengths = documents.states, np.asarray(documents.lengths, dtype=np.int64)
    if states.ndim != 2 or states.shape[1] != width:
        raise ValueError(f"the documents' states must be (n_tokens, {width}); got {tuple(states.shape)}")
    if len(lengths) and lengths.min() < 1:
        raise ValueError(f"document {lengths.argmin()} has length {lengths.min()}; each needs one token at least")
    if lengths.sum() != len(states):
        raise ValueError(f"the documents' lengths sum to {lengths.sum()}, but they have {len(states)} states")
    scales = getattr(documents, "scales", None)
    if scales is not None and tuple(scales.shape) != (len(states),):
        raise ValueError(f"{len(states)} states need as many scales; got {tuple(scales.shape)}")
    return lengths


def tensor(values: np.ndarray | torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """Returns values of an array, which may be a memory-map's, or a tensor as a tensor, perhaps on a device."""
    if not isinstance(values, torch.Tensor):
        # torch warns of arrays that must not be written to.
        values = torch.from_numpy(values if values.flags.writeable else values.copy())
    return values if device is None else values.to(device)
