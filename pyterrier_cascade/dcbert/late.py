"""Late interaction over cached states: the mean over the question's tokens of the best cosine in the document."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F

from pyterrier_cascade.dcbert.interaction import check_states, tensor

SLAB = 8192
"""How many document tokens are in fp32 at once."""


@torch.inference_mode()
def score(question: torch.Tensor, documents, specials: bool = True) -> torch.Tensor:
    """Returns how well each document covers the question's tokens, ``(n_docs,)``, from -1 to 1.

    It is the mean over the question's tokens of the largest cosine with any of the document's tokens. Computed where
    the question is.

    Args:
        question: The question's states, ``(n_question_tokens, width)``.
        documents: With ``states (n_tokens, width)`` end to end in fp16, fp32 or int8 (a cosine needs no scales), and
            ``lengths (n_docs,)``.
        specials: Whether the first and the last token of each text count, which are no words of it. Without them a
            document that has no others gets -1, and a question that has no others is compared by them.
    """
    check_states(question, documents)
    lengths = np.asarray(documents.lengths, dtype=np.int64)
    if not specials and len(question) > 2:
        question = question[1:-1]
    question = F.normalize(question.float(), dim=-1)
    scores = torch.empty(len(lengths))
    starts = np.cumsum(lengths) - lengths
    for slab in _slabs(lengths):
        tokens = slice(int(starts[slab.start]), int(starts[slab.stop - 1] + lengths[slab.stop - 1]))
        states = tensor(documents.states[tokens], question.device).float()
        norms = torch.linalg.vector_norm(states, dim=-1).clamp_min_(1e-12)
        cosines = question @ states.T / norms
        firsts = starts[slab] - starts[slab.start]
        for row, first, length in zip(
            range(slab.start, slab.stop), firsts.tolist(), lengths[slab].tolist(), strict=True
        ):
            kept = cosines[:, first : first + length] if specials else cosines[:, first + 1 : first + length - 1]
            scores[row] = kept.amax(1).mean() if kept.shape[1] else -1.0
    return scores


def _slabs(lengths: np.ndarray) -> Iterator[slice]:
    start, ends = 0, np.cumsum(lengths)
    while start < len(lengths):
        before = ends[start] - lengths[start]
        end = max(start + 1, int(np.searchsorted(ends, before + SLAB, "right")))
        yield slice(start, end)
        start = end
