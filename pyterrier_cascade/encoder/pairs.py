"""Query and document as one input, with the tokenizer's own special tokens (CT-5)."""

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch

MIN_DOCUMENT = 16
"""The tokens that a query must leave to the document; only a query longer than that allows is cut itself."""


@dataclass(frozen=True)
class TokenPairs:
    """Tokenised pairs, end to end and unpadded; a document longer than the limit may be several passages.

    Attributes:
        columns: The tokens of all inputs by the model's argument name (``input_ids``, ``token_type_ids`` where it
            takes them), each ``(n_tokens,)``.
        lengths: The number of tokens of each input, ``(n_inputs,)``.
        owner: The pair that each input belongs to, ``(n_inputs,)``, ascending.
        pad: The value that fills each column up where inputs are padded.
    """

    columns: dict[str, np.ndarray]
    lengths: np.ndarray
    owner: np.ndarray
    pad: dict[str, int]

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each input's tokens begin, ``(n_inputs,)``."""
        return np.cumsum(self.lengths) - self.lengths

    def select(self, rows: np.ndarray) -> "TokenPairs":
        """Returns some of the inputs."""
        tokens = runs(self.starts[rows], self.lengths[rows])
        columns = {name: values[tokens] for name, values in self.columns.items()}
        return TokenPairs(columns, self.lengths[rows], self.owner[rows], self.pad)

    def batch(self, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns the padded inputs of some rows and their attention mask, each ``(len(rows), longest)``."""
        lengths = self.lengths[rows]
        real = np.arange(lengths.max()) < lengths[:, None]
        tokens = runs(self.starts[rows], lengths)
        tensors = {"attention_mask": torch.from_numpy(real.astype(np.int64))}
        for name, values in self.columns.items():
            filled = np.full(real.shape, self.pad[name], dtype=np.int64)
            filled[real] = values[tokens]
            tensors[name] = torch.from_numpy(filled)
        return tensors


def runs(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the numbers ``start, start + 1, ...`` of each run, end to end, ``(lengths.sum(),)``."""
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())


def tokenize(
    tokenizer, queries: list[str], texts: list[str], *, max_length: int = 512, passages: bool = False
) -> TokenPairs:
    """Returns pairs as token ids, cut to ``max_length`` by shortening the document only.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        queries: One query for each pair.
        texts: One document for each pair.
        max_length: The most tokens of an input, special tokens included.
        passages: Whether what is cut off becomes further inputs of the same pair, overlapping by a quarter of the
            limit, instead of being dropped.
    """
    queries, rooms = fitting(tokenizer, queries, max_length)
    # A long query leaves less than that; those of one overlap are tokenised together.
    strides, parts = np.minimum(max_length // 4, rooms // 2) * passages, []
    for stride in np.unique(strides).tolist():
        rows = np.flatnonzero(strides == stride)
        encoded = tokenizer(
            [queries[row] for row in rows],
            [_encodable(texts[row]) for row in rows],
            truncation="only_second",
            max_length=max_length,
            stride=stride,
            return_overflowing_tokens=passages,
            return_attention_mask=False,
        )
        part = _end_to_end(tokenizer, encoded, len(rows))
        parts.append(dataclasses.replace(part, owner=rows[part.owner]))
    return parts[0] if len(parts) == 1 else _together(parts)


def _together(parts: list[TokenPairs]) -> TokenPairs:
    """Returns the inputs of several parts in the order of their pairs."""
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    lengths, owner = (np.concatenate([getattr(part, name) for part in parts]) for name in ("lengths", "owner"))
    return TokenPairs(columns, lengths, owner, parts[0].pad).select(np.argsort(owner, kind="stable"))


def tokenize_texts(tokenizer, texts: list[str], *, max_length: int = 512, passages: bool = False) -> TokenPairs:
    """Returns texts that stand alone as token ids, cut to ``max_length``.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        texts: The texts.
        max_length: The most tokens of an input, special tokens included.
        passages: Whether what is cut off becomes further inputs of the same text, overlapping by a quarter of the
            limit, instead of being dropped.
    """
    encoded = tokenizer(
        [_encodable(text) for text in texts],
        truncation=True,
        max_length=max_length,
        stride=max_length // 4 if passages else 0,
        return_overflowing_tokens=passages,
        return_attention_mask=False,
    )
    return _end_to_end(tokenizer, encoded, len(texts))


def _end_to_end(tokenizer, encoded, n_texts: int) -> TokenPairs:
    lists = {name: encoded[name] for name in tokenizer.model_input_names if name in encoded}
    lengths = np.fromiter(map(len, lists["input_ids"]), dtype=np.int64, count=len(lists["input_ids"]))
    columns = {
        name: np.fromiter(chain.from_iterable(values), dtype=np.int32, count=lengths.sum())
        for name, values in lists.items()
    }
    owner = encoded.get("overflow_to_sample_mapping", range(n_texts))
    pad = dict.fromkeys(columns, 0) | {"input_ids": tokenizer.pad_token_id or 0}
    return TokenPairs(columns, lengths, np.asarray(owner, dtype=np.int64), pad)


def fitting(tokenizer, queries: list[str], max_length: int) -> tuple[list[str], np.ndarray]:
    """Returns the queries, the longest ones cut, with a warning, and the room that each leaves, ``(n,)``."""
    unique = list(dict.fromkeys(queries))
    encodable = [_encodable(query) for query in unique]
    limit = max(1, max_length - tokenizer.num_special_tokens_to_add(pair=True) - min(MIN_DOCUMENT, max_length // 2))
    encoded = tokenizer(encodable, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    lengths = [len(ids) for ids in encoded["input_ids"]]
    longest = max(lengths, default=0)
    if longest > limit:
        cut = sum(length > limit for length in lengths)
        warnings.warn(
            f"{cut} of {len(unique)} queries have more than {limit} tokens (the longest {longest}) and are cut, "
            f"so that a document fits beside them in max_length={max_length}",
            stacklevel=2,
        )
        ends = [offsets[limit - 1][1] if len(offsets) > limit else None for offsets in encoded["offset_mapping"]]
        encodable = [query[:end] for query, end in zip(encodable, ends, strict=True)]
    left = np.maximum(max_length - np.minimum(lengths, limit), MIN_DOCUMENT)
    fitted = dict(zip(unique, zip(encodable, left, strict=True), strict=True))
    return [fitted[query][0] for query in queries], np.array([fitted[query][1] for query in queries])


def _encodable(text: str) -> str:
    """Returns the text with lone surrogates, which no tokenizer takes, replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
