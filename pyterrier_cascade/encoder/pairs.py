"""Tokenised inputs: query and document as one input (CT-5), or a text that stands alone."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from pyterrier_cascade.checks import warn_user
from pyterrier_cascade.encoder.pair_template import PairTemplate, bare, end_to_end, pair_template
from pyterrier_cascade.encoder.prefixes import has_prefixes, prefix
from pyterrier_cascade.encoder.token_pairs import TokenPairs, runs, together

MIN_DOCUMENT = 16
"""The number of tokens that remain for the document beside a long query; a query that leaves fewer is cut."""

CHARACTERS = 10
"""The characters for each token of the limit that are tokenised first of a long text; words of English have five."""

TOGETHER = 2_000_000
"""The characters of texts that are tokenised together, about: tokens take some 40 bytes for each until they are ids."""


def tokenize(
    tokenizer, queries: list[str], texts: list[str], *, max_length: int = 512, passages: bool = False
) -> TokenPairs:
    """Returns pairs as token ids, with the tokenizer's own special tokens, cut to ``max_length`` tokens (CT-5).

    Only the document is shortened, except beside a query that leaves it almost no room. Equal texts are tokenised once.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        queries: One query for each pair.
        texts: One document for each pair.
        max_length: The most tokens of an input, special tokens included.
        passages: Whether the rest of a long document becomes further inputs of the same pair, which overlap by a
            quarter of the limit. Otherwise the rest is dropped.
    """
    asked, query, query_of, rooms = _fitted(tokenizer, queries, max_length)
    left = max_length - tokenizer.num_special_tokens_to_add(pair=True) - query.lengths[query_of]
    # Beside a long query the overlap is smaller. The tokenizer panics where nothing but the overlap has room.
    strides = np.minimum(np.minimum(max_length // 4, rooms // 2), np.maximum(left - 1, 0)) * passages
    template = pair_template(tokenizer)
    if template is not None and left.min() > 0:
        return _joined(tokenizer, template, query, query_of, texts, left, max_length, strides, passages)
    return _as_pairs(tokenizer, [asked[n] for n in query_of.tolist()], texts, max_length, strides, passages)


def _joined(
    tokenizer,
    template: PairTemplate,
    query: TokenPairs,
    query_of: np.ndarray,
    texts: list[str],
    rooms: np.ndarray,
    max_length: int,
    strides: np.ndarray,
    passages: bool,
) -> TokenPairs:
    """Returns pairs whose ids are joined from those of their texts; documents have ``rooms`` tokens, ``(n,)``."""
    read, text_of = _distinct(texts)
    steps = rooms - strides
    text = _tokenized(tokenizer, read, max_length=max_length, stride=0, passages=passages, special=False)
    # As in the tokenizer, no further passage begins where one reaches the end of the text.
    rest = np.maximum(text.lengths[text_of] - rooms, 0) * passages
    n_inputs = 1 + -(-rest // steps)
    owner = np.repeat(np.arange(len(texts)), n_inputs)
    skipped = runs(np.zeros(len(texts), np.int64), n_inputs) * steps[owner]
    starts, left = text.starts[text_of[owner]] + skipped, text.lengths[text_of[owner]] - skipped
    values, lengths = template.joined(query, query_of[owner], text, starts, np.minimum(rooms[owner], left))
    columns = {name: values[name] for name in tokenizer.model_input_names if name in values}
    return TokenPairs(columns, lengths, owner, _pad(tokenizer, columns))


def _as_pairs(
    tokenizer, queries: list[str], texts: list[str], max_length: int, strides: np.ndarray, passages: bool
) -> TokenPairs:
    """Returns pairs as the tokenizer itself encodes them."""
    parts = []
    # The tokenizer takes one overlap for all pairs of a call.
    for stride in np.unique(strides).tolist():
        rows = np.flatnonzero(strides == stride)
        columns = ([column[row] for row in rows] for column in (queries, texts))
        part = _tokenized(tokenizer, *columns, max_length=max_length, stride=stride, passages=passages)
        parts.append(dataclasses.replace(part, owner=rows[part.owner]))
    return parts[0] if len(parts) == 1 else together(parts)


def _distinct(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Returns the different texts, and the number of each text among them, ``(n,)``."""
    numbers: dict[str, int] = {}
    found = np.fromiter((numbers.setdefault(text, len(numbers)) for text in texts), np.int64, len(texts))
    return list(numbers), found


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


def _tokenized(
    tokenizer, *texts: list[str], max_length: int, stride: int, passages: bool, special: bool = True
) -> TokenPairs:
    """Returns texts, or pairs of texts, as token ids; the last text of each input is shortened.

    Of a long text only a prefix is tokenised, which gives the same ids. With passages there is no such prefix, because
    the inputs of a text are all of its tokens. Without special tokens all of these are one input.
    """
    *before, last = texts
    how = {"max_length": max_length, "stride": stride, "passages": passages, "special": special}
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


def _encoded(tokenizer, *texts: list[str], max_length: int, stride: int, passages: bool, special: bool) -> TokenPairs:
    """Returns whole texts, or pairs of texts, as token ids."""
    columns = [[_encodable(text) for text in column] for column in texts]
    if not special:
        return bare(tokenizer, *columns, limit=None if passages else max_length)
    encoded = tokenizer(
        *columns,
        truncation="only_second" if len(texts) == 2 else "only_first",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=passages,
        return_attention_mask=False,
    )
    lists = {name: encoded[name] for name in tokenizer.model_input_names if name in encoded}
    return end_to_end(lists, encoded.get("overflow_to_sample_mapping"), _pad(tokenizer, lists))


def _pad(tokenizer, columns: dict[str, object]) -> dict[str, int]:
    """Returns the value of pads in each column."""
    return dict.fromkeys(columns, 0) | {"input_ids": tokenizer.pad_token_id or 0}


def fitting(tokenizer, queries: list[str], max_length: int) -> tuple[list[str], np.ndarray]:
    """Returns the queries, cut where they leave too little room, and the tokens that remain beside each, ``(n,)``.

    Warns about cut queries.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        queries: The queries.
        max_length: The most tokens of a pair, special tokens included.
    """
    asked, _, query_of, rooms = _fitted(tokenizer, queries, max_length)
    return [asked[number] for number in query_of.tolist()], rooms


def _fitted(tokenizer, queries: list[str], max_length: int) -> tuple[list[str], TokenPairs, np.ndarray, np.ndarray]:
    """Returns the different queries, cut, and their ids; each query's number among them, and the room beside it."""
    unique, numbers = _distinct(queries)
    encodable = [_encodable(query) for query in unique]
    limit = max(1, max_length - tokenizer.num_special_tokens_to_add(pair=True) - min(MIN_DOCUMENT, max_length // 2))
    ids = bare(tokenizer, encodable)
    lengths, too_long = ids.lengths, np.flatnonzero(ids.lengths > limit).tolist()
    if too_long:
        warn_user(
            f"{len(too_long)} of {len(unique)} queries have more than {limit} tokens (the longest {lengths.max()}) and "
            f"are cut, so that a document fits beside them in max_length={max_length}"
        )
        cut = [encodable[number] for number in too_long]
        encoded = tokenizer(cut, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        for number, offsets in zip(too_long, encoded["offset_mapping"], strict=True):
            encodable[number] = encodable[number][: offsets[limit - 1][1]]
        ids = bare(tokenizer, encodable)
    left = np.maximum(max_length - np.minimum(lengths, limit), MIN_DOCUMENT)
    return encodable, ids, numbers, left[numbers]


def _encodable(text: str) -> str:
    """Returns the text with question marks in place of lone surrogates, which tokenizers refuse."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
