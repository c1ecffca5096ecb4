"""The special tokens that a tokenizer puts around the two texts of a pair.

A tokenizer tokenises the texts of a pair apart, each as if it stood alone. Its post-processor then puts the same
special tokens around them, whatever the texts are. So the ids of a pair follow from those of its texts, which are
tokenised once for all their pairs. The template is learnt from a pair that the tokenizer encodes itself. Where that
pair is not its two texts between special tokens, there is no template.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pyterrier_cascade.encoder.token_pairs import TokenPairs, runs

TEXTS = "The ship 1", "Was it?"
"""The pair from which a template is learnt."""

_learnt: "WeakKeyDictionary[Any, PairTemplate | None]" = WeakKeyDictionary()


@dataclass(frozen=True)
class PairTemplate:
    """The special tokens of a pair, and the types of all its tokens.

    Attributes:
        special: The ids of the special tokens before, between and behind the texts, each ``(n,)``.
        special_types: Their types, each ``(n,)``.
        types: The type of the first text's tokens and that of the second one's.
    """

    special: tuple[np.ndarray, ...]
    special_types: tuple[np.ndarray, ...]
    types: tuple[int, int]

    def joined(
        self, first: TokenPairs, first_of: np.ndarray, second: TokenPairs, starts: np.ndarray, sizes: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Returns ids and types of pairs end to end, each ``(n_tokens,)``, and the length of each pair, ``(n,)``.

        Args:
            first: The ids of the first texts.
            first_of: The number of each pair's first text, ``(n,)``.
            second: The ids of the second texts.
            starts: The number of the first token of ``second`` that each pair has, ``(n,)``.
            sizes: The number of tokens of ``second`` that each pair has, ``(n,)``.
        """
        texts = [first.columns["input_ids"], second.columns["input_ids"]]
        text_types = [np.full(len(ids), kind, np.int32) for ids, kind in zip(texts, self.types, strict=True)]
        # A pair is five runs of these.
        values = {"input_ids": [*self.special, *texts], "token_type_ids": [*self.special_types, *text_types]}
        lengths = np.array([len(ids) for ids in values["input_ids"]])
        begin = np.cumsum(lengths) - lengths
        before, between, behind = zip(begin[:3], lengths[:3], strict=True)
        query = begin[3] + first.starts[first_of], first.lengths[first_of]
        document = begin[4] + starts, sizes
        runs_of_each = zip(before, query, between, document, behind, strict=True)
        pieces = [np.stack(np.broadcast_arrays(*of), 1) for of in runs_of_each]
        tokens = runs(*(piece.ravel() for piece in pieces))
        return {name: np.concatenate(parts)[tokens] for name, parts in values.items()}, pieces[1].sum(1)


def pair_template(tokenizer: Any) -> PairTemplate | None:
    """Returns the template of a tokenizer's pairs; None where its pairs are not known to follow one.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
    """
    if tokenizer.truncation_side != "right":
        return None
    if tokenizer not in _learnt:
        _learnt[tokenizer] = _template(tokenizer)
    return _learnt[tokenizer]


def _template(tokenizer: Any) -> PairTemplate | None:
    encoded = tokenizer(*([text] for text in TEXTS), return_token_type_ids=True, verbose=False)
    ids, types = (np.array(encoded[name][0], dtype=np.int32) for name in ("input_ids", "token_type_ids"))
    owners = np.array([-1 if owner is None else owner for owner in encoded.sequence_ids(0)])
    if not {0, 1} <= set(owners.tolist()):
        return None
    ends = [end for number in (0, 1) for end in _ends(owners == number)]
    before, first, between, second, behind = np.split(ids, ends)
    alone = bare(tokenizer, list(TEXTS))
    if ends != sorted(ends) or not np.array_equal(np.concatenate([first, second]), alone.columns["input_ids"]):
        return None
    of_first, of_second = types[owners == 0], types[owners == 1]
    if len(first) != alone.lengths[0] or len({*of_first.tolist()}) != 1 or len({*of_second.tolist()}) != 1:
        return None
    before_types, _, between_types, _, behind_types = np.split(types, ends)
    special_types = before_types, between_types, behind_types
    return PairTemplate((before, between, behind), special_types, (int(of_first[0]), int(of_second[0])))


def _ends(mine: np.ndarray) -> tuple[int, int]:
    """Returns the place of the first true value, and the place behind the last one."""
    places = np.flatnonzero(mine)
    return int(places[0]), int(places[-1]) + 1


def bare(tokenizer: Any, texts: list[str], limit: int | None = None) -> TokenPairs:
    """Returns texts as ids without special tokens, as parts of inputs.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        texts: The texts, which can be encoded as UTF-8.
        limit: The most ids of a text; all unless given.
    """
    backend = tokenizer.backend_tokenizer
    # Each call of the tokenizer sets its own limits and leaves them behind.
    backend.no_padding()
    if limit is None:
        backend.no_truncation()
    else:
        backend.enable_truncation(limit)
    backend.encode_special_tokens = tokenizer.split_special_tokens
    # The tokenizer's own call finds the place of each token in its text too, which takes longer.
    ids = [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
    return end_to_end({"input_ids": ids})


def end_to_end(lists: dict[str, list[list[int]]], owner: Any = None, pad: dict[str, int] | None = None) -> TokenPairs:
    """Returns lists of ids as inputs.

    Args:
        lists: The ids of each input, and their types.
        owner: The number of the pair that each input belongs to; its own unless given.
        pad: The value of pads in each column; inputs without it are never padded.
    """
    lengths = np.fromiter(map(len, lists["input_ids"]), dtype=np.int64, count=len(lists["input_ids"]))
    columns = {
        name: np.fromiter(chain.from_iterable(values), dtype=np.int32, count=lengths.sum())
        for name, values in lists.items()
    }
    owner = np.arange(len(lengths)) if owner is None else np.asarray(owner, dtype=np.int64)
    return TokenPairs(columns, lengths, owner, pad or {})
