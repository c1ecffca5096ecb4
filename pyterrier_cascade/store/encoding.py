"""Encoding documents into a shard."""

from collections.abc import Callable, Sequence

import numpy as np

from pyterrier_cascade.store.documents import Document
from pyterrier_cascade.store.shards import ShardWriter

Encode = Callable[[list[str]], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Gives for texts their token states ``(n_tokens, width)`` end to end in float32, the tokens of each entry
``(n_entries,)`` and the text of each entry as an ascending number ``(n_entries,)``. An entry is a text, or a passage of
a long one."""


def encode_into(
    shard: ShardWriter,
    documents: Sequence[Document],
    encode: Encode,
    batch_size: int,
    progress: Callable[[int], object] = lambda n_done: None,
    first: Callable[[float], object] = lambda n_tokens: None,
) -> None:
    """Encodes documents and adds them to a shard.

    Args:
        shard: The shard.
        documents: Docnos and texts.
        encode: The model.
        batch_size: The texts that are encoded together.
        progress: Called with the number of documents of each batch when it is written.
        first: Called with the mean number of tokens of the first batch before it is written.
    """
    for start in range(0, len(documents), batch_size):
        docnos, texts = (list(part) for part in zip(*documents[start : start + batch_size], strict=True))
        states, lengths, owner = _checked(docnos, shard.settings["width"], *encode(texts))
        if not start:
            first(len(states) / len(docnos))
        shard.add(docnos, states, lengths, owner)
        progress(len(docnos))


def _checked(docnos: Sequence[str], width: int, states, lengths, owner) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
    return states, lengths.astype(np.int64), owner.astype(np.int64)
