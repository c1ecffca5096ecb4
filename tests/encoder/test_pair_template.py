"""Ids of pairs that are joined from those of their texts: equal to the tokenizer's own encoding of each pair."""

import shutil
import warnings

import numpy as np
import pytest
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import processors

from pyterrier_cascade.encoder import pairs
from pyterrier_cascade.encoder.pair_template import pair_template
from tests import tiny
from tests.encoder import test_prefixes as texts_of


def with_processor(processor, make=texts_of.merging) -> transformers.PreTrainedTokenizerFast:
    tokenizer = make()
    tokenizer.backend_tokenizer.post_processor = processor
    return tokenizer


def template(pair: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(single="<s> $A </s>", pair=pair, special_tokens=[("<s>", 0), ("</s>", 2)])


TOKENIZERS = texts_of.TOKENIZERS | {
    "wordpiece without types": tiny.wordpiece(types=False),
    "merging bytes as RoBERTa": with_processor(processors.RobertaProcessing(("</s>", 2), ("<s>", 0))),
    "merging bytes as ModernBERT": with_processor(template("<s> $A </s> $B </s>")),
    "merging bytes in a sequence": with_processor(
        processors.Sequence([processors.ByteLevel(trim_offsets=True), template("<s>:0 $A:0 </s>:0 $B:1 </s>:1")])
    ),
    "unigram as XLM-R": with_processor(template("<s> $A </s> </s> $B </s>"), texts_of.unigram),
}
OTHERS = {
    "the second text first": with_processor(template("<s> $B </s> $A </s>")),
    "a text twice": with_processor(template("<s> $A </s> $B </s> $A </s>")),
}


def columns(found: pairs.TokenPairs) -> dict:
    return {name: values.tolist() for name, values in found.columns.items()} | {
        "lengths": found.lengths.tolist(),
        "owner": found.owner.tolist(),
        "pad": found.pad,
    }


def check_equal(tokenizer, queries: list[str], documents: list[str], max_length: int) -> None:
    """Compares joined pairs with those that the tokenizer encodes, whole and as passages."""
    for passages in (False, True):
        how = {"max_length": max_length, "passages": passages}
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            warnings.filterwarnings("ignore", ".*queries have more than")
            found = columns(pairs.tokenize(tokenizer, queries, documents, **how))
            patch.setattr(pairs, "pair_template", lambda tokenizer: None)
            assert found == columns(pairs.tokenize(tokenizer, queries, documents, **how))


TEXTS = texts_of.texts.map("".join)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4)
SHIPS = [("the ship", "ship the <mask> </s> [SEP] 1999 " * 9), ("", ""), ("the ship", ""), ("who " * 30, "é ship" * 40)]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=20)
@given(some=PAIRS, max_length=st.integers(16, 40))
@example(some=SHIPS, max_length=8)
@example(some=SHIPS, max_length=32)
def test_joined_ids_are_the_tokenizers_own(name, some, max_length):
    tokenizer = TOKENIZERS[name]
    assert pair_template(tokenizer) is not None
    check_equal(tokenizer, *map(list, zip(*some, strict=True)), max_length)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=2_000)
@given(some=PAIRS, max_length=st.integers(16, 80))
def test_many_pairs(name, some, max_length):
    check_equal(TOKENIZERS[name], *map(list, zip(*some, strict=True)), max_length)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_tokenizers_of_all_families(family, tmp_path):
    """Each pair beside a call of the tokenizer for that pair alone."""
    folder = tiny.save(tmp_path, family, layers=1, outputs=None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    queries, documents = ["who", "the ship, é", "who", "what"], ["the town " * 30, "", "[MASK] a", "x\u0301 19"]
    found = pairs.tokenize(tokenizer, queries, documents, max_length=48)
    assert pair_template(tokenizer) is not None and next(iter(found.columns)) == "input_ids"
    for number, (query, document) in enumerate(zip(queries, documents, strict=True)):
        one = found.select(np.array([number]))
        own = tokenizer([query], [document], truncation="only_second", max_length=48)
        assert {name: values.tolist() for name, values in one.columns.items()} == {
            name: own[name][0] for name in tokenizer.model_input_names if name != "attention_mask"
        }


@pytest.mark.parametrize("name", ["bert-mini-reranker", "bert-tiny", "e5-small"])
def test_real_tokenizers(shared_models, tmp_path, name):
    tokenizer = transformers.AutoTokenizer.from_pretrained(shutil.copytree(shared_models / name, tmp_path / name))
    queries = ["What is the capital of France?", "who founded Zürich", "what " * 90]
    documents = ["Paris is the capital of France. " * 40, "Straße, naïve café, 漢字 [SEP] \u2028 \ud800", ""]
    assert pair_template(tokenizer) is not None
    for max_length in (16, 64, 128):
        check_equal(tokenizer, [one for one in queries for _ in documents], documents * len(queries), max_length)


@pytest.mark.parametrize("name", OTHERS)
def test_pairs_of_another_form_are_encoded_by_the_tokenizer(name):
    tokenizer = OTHERS[name]
    assert pair_template(tokenizer) is None
    (found,) = [pairs.tokenize(tokenizer, ["the ship"], ["ship"])]
    assert found.columns["input_ids"].tolist() == tokenizer("the ship", "ship")["input_ids"]


def test_a_tokenizer_that_cuts_on_the_left_encodes_pairs_itself():
    tokenizer = tiny.wordpiece(types=True)
    assert pair_template(tokenizer) is not None
    tokenizer.truncation_side = "left"
    assert pair_template(tokenizer) is None
    found = pairs.tokenize(tokenizer, ["who"], ["the " * 20 + "ship"], max_length=8)
    assert found.columns["input_ids"].tolist()[-2:] == [tokenizer.convert_tokens_to_ids("ship"), 3]


def test_a_template_by_hand():
    found = pair_template(tiny.wordpiece(types=True))
    assert [ids.tolist() for ids in found.special] == [[2], [3], [3]]
    assert [types.tolist() for types in found.special_types] == [[0], [0], [1]] and found.types == (0, 1)
    plain = pair_template(tiny.byte_level())
    assert [ids.tolist() for ids in plain.special] == [[0], [2, 2], [2]] and plain.types == (0, 0)


def test_the_limits_of_other_calls_make_no_difference():
    """A tokenizer keeps those of its last call, and some are saved with limits."""
    tokenizer = tiny.wordpiece(types=True)
    expected = columns(pairs.tokenize(tokenizer, ["who"], ["the ship " * 20]))
    tokenizer(["a"], ["b c d"], padding="max_length", truncation=True, max_length=6)
    assert columns(pairs.tokenize(tokenizer, ["who"], ["the ship " * 20])) == expected
