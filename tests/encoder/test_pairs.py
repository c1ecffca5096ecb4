"""Tokenised pairs: cut at the right end, in passages, and equal texts once."""

import re

import numpy as np
import pytest

from pyterrier_cascade.encoder import pairs as pairs_module
from pyterrier_cascade.encoder.pairs import MIN_DOCUMENT, TokenPairs, fitting, tokenize, tokenize_texts
from tests import tiny

WORDPIECE = tiny.wordpiece(types=True)
CLS, SEP = 2, 3


def ids(pairs: TokenPairs) -> list[list[int]]:
    return [part.tolist() for part in np.split(pairs.columns["input_ids"], pairs.starts[1:])]


def word(text: str) -> int:
    return WORDPIECE.convert_tokens_to_ids(text)


def test_a_pair_has_the_tokenizers_special_tokens():
    """CT-5: [CLS] query [SEP] document [SEP] with types, or <s> query </s></s> document </s> without."""
    pairs = tokenize(WORDPIECE, ["who"], ["the ship"])
    assert ids(pairs) == [[CLS, word("who"), SEP, word("the"), word("ship"), SEP]]
    assert pairs.columns["token_type_ids"].tolist() == [0, 0, 0, 1, 1, 1]
    plain = tokenize(tiny.byte_level(), ["a"], ["b"])
    (found,) = ids(plain)
    assert list(plain.columns) == ["input_ids"] and (found[0], found[2:4], found[-1]) == (0, [2, 2], 2)


def test_only_the_document_is_cut():
    pairs = tokenize(WORDPIECE, ["who", "who was"], ["the " * 40, "ship " * 40], max_length=16)
    assert pairs.lengths.tolist() == [16, 16]
    assert ids(pairs)[0] == [CLS, word("who"), SEP, *[word("the")] * 12, SEP]
    assert ids(pairs)[1] == [CLS, word("who"), word("was"), SEP, *[word("ship")] * 11, SEP]


def test_a_query_that_leaves_no_room_is_cut_with_a_warning():
    message = (
        "1 of 2 queries have more than 13 tokens (the longest 40) and are cut, so that a document fits beside them"
    )
    with pytest.warns(UserWarning, match=re.escape(message)) as seen:
        queries, rooms = fitting(WORDPIECE, ["who " * 40, "the ship", "the ship"], 32)
    assert [one.filename for one in seen] == [__file__]
    assert queries == [("who " * 13).strip(), "the ship", "the ship"]
    assert rooms.tolist() == [32 - 13, 32 - 2, 32 - 2] and rooms.min() >= MIN_DOCUMENT


def test_passages_of_a_pair_overlap_by_a_quarter():
    whole = "the ship was founded in the town of what " * 3
    pairs = tokenize(WORDPIECE, ["who", "what"], ["the", whole], max_length=16, passages=True)
    assert pairs.owner.tolist() == [0, *[1] * (len(pairs.lengths) - 1)]
    documents = [tokens[3:-1] for tokens in ids(pairs)[1:]]
    assert all(tokens[:3] == [CLS, word("what"), SEP] for tokens in ids(pairs)[1:])
    words = [word(one) for one in whole.split()]
    assert documents == [words[start : start + 12] for start in range(0, len(words) - 4, 8)]


def test_pairs_beside_queries_of_different_lengths_keep_their_order():
    """A long query leaves less overlap, for which the tokenizer is called apart."""
    queries = ["who " * 8, "what", "who " * 8, "what"]
    pairs = tokenize(WORDPIECE, queries, ["the " * 30, "ship", "town", "of " * 30], max_length=24, passages=True)
    assert (np.diff(pairs.owner) >= 0).all() and set(pairs.owner) == {0, 1, 2, 3}
    for owner, tokens in zip(pairs.owner, ids(pairs), strict=True):
        assert tokens[1] == word(queries[owner].split()[0])


def test_passages_of_a_text_overlap_by_a_quarter():
    whole = tokenize_texts(WORDPIECE, ["the town " * 10], max_length=64)
    parts = tokenize_texts(WORDPIECE, ["x", "the town " * 10], max_length=8, passages=True)
    words, found = whole.columns["input_ids"][1:-1].tolist(), ids(parts)
    assert parts.owner.tolist() == [0, *[1] * (len(found) - 1)]
    # Six words between the special tokens, two of them those of the passage before.
    assert [one[1:-1] for one in found[1:]] == [words[start : start + 6] for start in range(0, len(words) - 2, 4)]


@pytest.mark.parametrize("text", ["\ud800", "the \udfff ship", ""])
def test_texts_that_no_tokenizer_takes(text):
    (found,) = ids(tokenize_texts(WORDPIECE, [text]))
    assert (found[0], found[-1]) == (CLS, SEP)
    assert ids(tokenize(WORDPIECE, [text], [text]))


def test_equal_texts_are_tokenised_once(monkeypatch):
    seen, bare = [], pairs_module.bare
    monkeypatch.setattr(
        pairs_module, "bare", lambda tokenizer, texts, **how: seen.append(texts) or bare(tokenizer, texts, **how)
    )
    found = tokenize(WORDPIECE, ["who", "what", "who"], ["the ship", "the ship", "town"])
    assert seen == [["who", "what"], ["the ship", "town"]]
    who, what, ship, town = ([word(one) for one in text.split()] for text in ("who", "what", "the ship", "town"))
    expected = [[CLS, *query, SEP, *text, SEP] for query, text in ((who, ship), (what, ship), (who, town))]
    assert ids(found) == expected and found.owner.tolist() == [0, 1, 2]
