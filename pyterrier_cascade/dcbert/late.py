"""Late interaction over cached states: each token of the question takes its best cosine in the document."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from pyterrier_cascade.dcbert.interaction import checked_lengths, tensor
from pyterrier_cascade.encoder.linear import linear_for

SLAB = 1024
"""How many document tokens are in fp32 at once. It is the only number of rows that oneDNN compiles for."""

GROUP = 65_536
"""How many document tokens' cosines are kept at once, unless a document has more."""

_linear_for = functools.cache(linear_for)


def scorer(device: torch.device) -> Callable[[torch.Tensor, Any], torch.Tensor]:
    """Returns :func:`score` for questions of any device, computed on one device."""
    return lambda question, documents: score(tensor(question, device), documents)


@torch.inference_mode()
def score(question: torch.Tensor, documents, specials: bool = True) -> torch.Tensor:
    """Returns how well each document covers the question's tokens, ``(n_docs,)``, from -1 to 1, in fp32 on the CPU.

    A score is the mean over the question's tokens of the largest cosine with any token of the document. It is computed
    on the question's device, and needs no training.

    Args:
        question: The question's states, ``(n_question_tokens, width)``.
        documents: With ``states (n_tokens, width)``, those of all documents end to end, in fp16, fp32 or int8 (a cosine
            needs no scales); and ``lengths (n_docs,)``.
        specials: Whether the first and the last token of each text, [CLS] and [SEP], count. If they do not, a document
            without other tokens gets -1, and a question without other tokens is compared by these two nevertheless.
    """
    lengths = checked_lengths(question, documents)
    if not specials and len(question) > 2:
        question = question[1:-1]
    compare = _linear_for(question.device, torch.float32)(F.normalize(question.float(), dim=-1), None)
    starts, scores = np.cumsum(lengths) - lengths, np.empty(len(lengths), dtype=np.float32)
    for group in _groups(lengths):
        first, firsts = starts[group][0], starts[group] - starts[group][0]
        cosines = _cosines(compare, documents.states[first : first + lengths[group].sum()])
        if not specials:
            # No cosine is lower.
            cosines[firsts] = cosines[firsts + lengths[group] - 1] = -1
        scores[group] = np.maximum.reduceat(cosines, firsts).mean(1)
    return torch.from_numpy(scores)


def _cosines(compare: torch.nn.Module, states) -> np.ndarray:
    """Returns the cosines of document tokens with the question's, ``(n_tokens, n_question_tokens)``."""
    device = compare.weight.device
    if device.type != "cpu":
        # A GPU takes any number of rows.
        rows = tensor(states, device).float()
        return (compare(rows) / _norms(rows)).cpu().numpy()
    slab, found = torch.zeros(SLAB, states.shape[1]), []
    for start in range(0, len(states), SLAB):
        part = tensor(states[start : start + SLAB])
        slab[: len(part)] = part
        found.append((compare(slab) / _norms(slab))[: len(part)])
    return torch.cat(found).numpy()


def _norms(rows: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min_(1e-12)


def _groups(lengths: np.ndarray) -> Iterator[slice]:
    """Returns consecutive documents that together have at most :data:`GROUP` tokens, or stand alone."""
    ends, start = np.cumsum(lengths), 0
    while start < len(lengths):
        end = max(start + 1, int(np.searchsorted(ends, ends[start] - lengths[start] + GROUP, "right")))
        yield slice(start, end)
        start = end
