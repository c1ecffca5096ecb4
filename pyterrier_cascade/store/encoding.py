"""Encoding documents with a model that the store does not know."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pyterrier_cascade.store.documents import Document

Encode = Callable[[list[str]], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Gives for texts their token states ``(n_tokens, width)`` end to end in float32, the tokens of each entry
``(n_entries,)`` and the text of each entry as an ascending number ``(n_entries,)``. An entry is a text, or a passage of
a long one."""


class Batch(NamedTuple):
    """Some documents that were encoded together.

    Attributes:
        docnos: Their names.
        states: Their tokens end to end ``(n_tokens, width)`` in float32.
        lengths: The tokens of each entry ``(n_entries,)``.
        owner: The document of each entry as a number, ascending ``(n_entries,)``.
    """

    docnos: list[str]
    states: np.ndarray
    lengths: np.ndarray
    owner: np.ndarray


def batches(documents: Sequence[Document], encode: Encode, batch_size: int, width: int) -> Iterator[Batch]:
    """Encodes documents and yields them in batches, after a check of what the model returned.

    Args:
        documents: Docnos and texts.
        encode: The model.
        batch_size: The texts that are encoded together.
        width: The numbers in a token's state.
    """
    for start in range(0, len(documents), batch_size):
        docnos, texts = (list(part) for part in zip(*documents[start : start + batch_size], strict=True))
        yield _checked(docnos, width, *encode(texts))


def _checked(docnos: list[str], width: int, states: np.ndarray, lengths: np.ndarray, owner: np.ndarray) -> Batch:
    states, lengths, owner = np.ascontiguousarray(states, np.float32), np.asarray(lengths), np.asarray(owner)
    if states.ndim != 2 or states.shape[1] != width:
        raise ValueError(f"encode returned states of shape {states.shape}, not (n_tokens, {width})")
    if len(lengths) != len(owner) or lengths.sum() != len(states):
        raise ValueError(
            f"encode returned {len(lengths)} lengths that sum to {lengths.sum()} for {len(states)} tokens, and "
            f"{len(owner)} owners; they must agree"
        )
    if not np.array_equal(np.unique(owner), np.arange(len(docnos))) or (np.diff(owner) < 0).any():
        raise ValueError(f"the owners that encode returns must ascend and name each of the {len(docnos)} documents")
    if (lengths < 1).any():
        raise ValueError(f"encode returned an entry without tokens for document {docnos[owner[lengths.argmin()]]!r}")
    return Batch(docnos, states, lengths.astype(np.int64), owner.astype(np.int64))
