"""Tokenised inputs: query and document as one input (CT-5), or a text that stands alone."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from pyterrier_cascade.checks import warn_user
from pyterrier_cascade.encoder.prefixes import has_prefixes, prefix
from pyterrier_cascade.forks import cached_property

MIN_DOCUMENT = 16
"""The number of tokens that remain for the document beside a long query; a query that leaves fewer is cut."""

CHARACTERS = 10
"""The characters for each token of the limit that are tokenised first of a long text; words of English have five."""

TOGETHER = 2_000_000
"""The characters of texts that are tokenised together, about: tokens take some 40 bytes for each until they are ids."""


@dataclass(frozen=True)
class TokenPairs:
    """Tokenised pairs, end to end and without pads. A long document may be several inputs, one for each passage.

    Attributes:
        columns: The tokens of all inputs by the name of the model's argument: ``input_ids``, and ``token_type_ids`` if
            the model takes them, each ``(n_tokens,)``.
        lengths: The number of tokens of each input, ``(n_inputs,)``.
        owner: The number of the pair that each input belongs to, ``(n_inputs,)``, ascending.
        pad: The value of pads in each column.
    """

    columns: dict[str, np.ndarray]
    lengths: np.ndarray
    owner: np.ndarray
    pad: dict[str, int]

    @cached_property
    def starts(self) -> np.ndarray:
        """The number of each input's first token, ``(n_inputs,)``."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def first_inputs(self) -> np.ndarray:
        """The number of each pair's first input, ``(n_pairs,)``."""
        return np.flatnonzero(np.diff(self.owner, prepend=-1))

    @cached_property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of inputs of each pair, and of their tokens, each ``(n_pairs,)``."""
        return np.diff(self.first_inputs, append=len(self.owner)), np.add.reduceat(self.lengths, self.first_inputs)

    def select(self, rows: np.ndarray) -> "TokenPairs":
        """Returns the inputs of some numbers, ``(n,)``, in their order."""
        tokens = runs(self.starts[rows], self.lengths[rows])
        columns = {name: values[tokens] for name, values in self.columns.items()}
        return TokenPairs(columns, self.lengths[rows], self.owner[rows], self.pad)

    def batch(self, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns some inputs padded, with their ``attention_mask``, each ``(len(rows), longest)``."""
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
    """Returns the whole numbers of each run, ``start, start + 1, ...``, end to end, ``(lengths.sum(),)``.

    Args:
        starts: The first number of each run, ``(n,)``.
        lengths: The length of each run, ``(n,)``.
    """
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())


def tokenize(
    tokenizer, queries: list[str], texts: list[str], *, max_length: int = 512, passages: bool = False
) -> TokenPairs:
    """Returns pairs as token ids, with the tokenizer's own special tokens, cut to ``max_length`` tokens (CT-5).

    Only the document is shortened, except beside a query that leaves it almost no room.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        queries: One query for each pair.
        texts: One document for each pair.
        max_length: The most tokens of an input, special tokens included.
        passages: Whether the rest of a long document becomes further inputs of the same pair, which overlap by a
            quarter of the limit. Otherwise the rest is dropped.
    """
    queries, rooms = fitting(tokenizer, queries, max_length)
    # Beside a long query the overlap is smaller. The tokenizer takes one overlap for all pairs of a call.
    strides, parts = np.minimum(max_length // 4, rooms // 2) * passages, []
    for stride in np.unique(strides).tolist():
        rows = np.flatnonzero(strides == stride)
        columns = ([column[row] for row in rows] for column in (queries, texts))
        part = _tokenized(tokenizer, *columns, max_length=max_length, stride=stride, passages=passages)
        parts.append(dataclasses.replace(part, owner=rows[part.owner]))
    return parts[0] if len(parts) == 1 else together(parts)


def together(parts: Sequence[TokenPairs]) -> TokenPairs:
    """Returns the inputs of several parts in the order of their pairs.

    Args:
        parts: The parts; the inputs of a pair are all in one of them.
    """
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    lengths, owner = (np.concatenate([getattr(part, name) for part in parts]) for name in ("lengths", "owner"))
    return TokenPairs(columns, lengths, owner, parts[0].pad).select(np.argsort(owner, kind="stable"))


def tokenize_texts(tokenizer, texts: list[str], *, max_length: int = 512, passages: bool = False) -> TokenPairs:
    """Returns texts that stand alone as token ids, cut to ``max_length`` tokens.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        texts: The texts.
        max_length: The most tokens of an input, special tokens included.
        passages: Whether the rest of a long text becomes further inputs of the same text, which overlap by a quarter of
            the limit. Otherwise the rest is dropped.
    """
    stride = max_length // 4 if passages else 0
    return _tokenized(tokenizer, texts, max_length=max_length, stride=stride, passages=passages)


def _tokenized(tokenizer, *texts: list[str], max_length: int, stride: int, passages: bool) -> TokenPairs:
    """Returns texts, or pairs of texts, as token ids; the last text of each input is shortened.

    Of a long text only a prefix is tokenised, which gives the same ids. With passages there is no such prefix, because
    the inputs of a text are all of its tokens.
    """
    *before, last = texts
    how = {"max_length": max_length, "stride": stride, "passages": passages}
    least = max_length * CHARACTERS
    if passages or max(map(len, last), default=0) <= least or not has_prefixes(tokenizer):
        return _in_slabs(tokenizer, *texts, **how)
    rows, parts = np.arange(len(last)), []
    while len(rows):
        prefixes = [prefix(last[row], least) for row in rows]
        found = _in_slabs(tokenizer, *([column[row] for row in rows] for column in before), prefixes, **how)
        # An input as long as the limit holds first tokens of its text only, so more text would not change it.
        cut = np.array([len(some) < len(last[row]) for some, row in zip(prefixes, rows, strict=True)])
        again = cut & (found.lengths < max_length)
        parts.append(dataclasses.replace(found.select(np.flatnonzero(~again)), owner=rows[~again]))
        rows, least = rows[again], 8 * least
    return together(parts)


def _in_slabs(tokenizer, *texts: list[str], **how) -> TokenPairs:
    """Returns whole texts as :func:`_encoded` does, some of them at a time, so that memory stays bounded."""
    numbers = np.cumsum(np.fromiter(map(len, texts[-1]), np.int64, len(texts[-1]))) // TOGETHER
    slabs = np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(numbers)) + 1)
    if len(slabs) == 1:
        return _encoded(tokenizer, *texts, **how)
    parts = []
    for rows in slabs:
        found = _encoded(tokenizer, *(column[rows[0] : rows[-1] + 1] for column in texts), **how)
        parts.append(dataclasses.replace(found, owner=rows[found.owner]))
    return together(parts)


def _encoded(tokenizer, *texts: list[str], max_length: int, stride: int, passages: bool) -> TokenPairs:
    """Returns whole texts, or pairs of texts, as token ids."""
    encoded = tokenizer(
        *([_encodable(text) for text in column] for column in texts),
        truncation="only_second" if len(texts) == 2 else "only_first",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=passages,
        return_attention_mask=False,
    )
    lists = {name: encoded[name] for name in tokenizer.model_input_names if name in encoded}
    lengths = np.fromiter(map(len, lists["input_ids"]), dtype=np.int64, count=len(lists["input_ids"]))
    columns = {
        name: np.fromiter(chain.from_iterable(values), dtype=np.int32, count=lengths.sum())
        for name, values in lists.items()
    }
    owner = encoded.get("overflow_to_sample_mapping", range(len(texts[0])))
    pad = dict.fromkeys(columns, 0) | {"input_ids": tokenizer.pad_token_id or 0}
    return TokenPairs(columns, lengths, np.asarray(owner, dtype=np.int64), pad)


def fitting(tokenizer, queries: list[str], max_length: int) -> tuple[list[str], np.ndarray]:
    """Returns the queries, cut where they leave too little room, and the tokens that remain beside each, ``(n,)``.

    Warns about cut queries.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        queries: The queries.
        max_length: The most tokens of a pair, special tokens included.
    """
    unique = list(dict.fromkeys(queries))
    encodable = [_encodable(query) for query in unique]
    limit = max(1, max_length - tokenizer.num_special_tokens_to_add(pair=True) - min(MIN_DOCUMENT, max_length // 2))
    encoded = tokenizer(encodable, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    lengths = [len(ids) for ids in encoded["input_ids"]]
    longest = max(lengths, default=0)
    if longest > limit:
        cut = sum(length > limit for length in lengths)
        warn_user(
            f"{cut} of {len(unique)} queries have more than {limit} tokens (the longest {longest}) and are cut, "
            f"so that a document fits beside them in max_length={max_length}"
        )
        ends = [offsets[limit - 1][1] if len(offsets) > limit else None for offsets in encoded["offset_mapping"]]
        encodable = [query[:end] for query, end in zip(encodable, ends, strict=True)]
    left = np.maximum(max_length - np.minimum(lengths, limit), MIN_DOCUMENT)
    fitted = dict(zip(unique, zip(encodable, left, strict=True), strict=True))
    return [fitted[query][0] for query in queries], np.array([fitted[query][1] for query in queries])


def _encodable(text: str) -> str:
    """Returns the text with question marks in place of lone surrogates, which tokenizers refuse."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
