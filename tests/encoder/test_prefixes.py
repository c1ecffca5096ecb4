"""Prefixes of long texts: the same ids as those of the whole text, at a small part of the memory."""

import string
import subprocess
import sys

import numpy as np
import pytest
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from pyterrier_cascade.encoder import pairs, prefixes
from tests import tiny


def unigram(*forms: normalizers.Normalizer, **more) -> transformers.PreTrainedTokenizerFast:
    """SentencePiece's way: words begin with a mark in place of the space, and pieces are chosen by probability."""
    rng = np.random.default_rng(0)
    pieces = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "<mask>",
        "▁",
        *string.ascii_letters,
        *string.digits,
        *string.punctuation,
    ]
    pieces += ["▁the", "▁ship", "sh", "ip", "th", "he", "▁t", "▁a", "ab", "abc", "bc", "▁1", "19", "é", "▁é"]
    model = models.Unigram([(piece, -float(rng.uniform(1, 9))) for piece in pieces], unk_id=3)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([*forms, normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(**more)
    return _special(tokenizer)


def merging() -> transformers.PreTrainedTokenizerFast:
    """ModernBERT's way: bytes that are merged to pieces, over a normal form of Unicode, with a greedy mask token."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("s", "h"), ("i", "p"), ("sh", "ip"), ("Ġ", "ship"), ("Ġ", "Ġ")]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters, *("".join(merge) for merge in merges)]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=True)
    return _special(tokenizer)


def _special(tokenizer: Tokenizer) -> transformers.PreTrainedTokenizerFast:
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token=AddedToken("<mask>", lstrip=True, rstrip=True),
        model_input_names=["input_ids", "attention_mask"],
    )


def cased() -> transformers.PreTrainedTokenizerFast:
    tokenizer = tiny.wordpiece(types=True)
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=True)
    return tokenizer


TOKENIZERS = {
    "wordpiece": tiny.wordpiece(types=True),
    "cased wordpiece": cased(),
    "byte level": tiny.byte_level(),
    "merging bytes": merging(),
    "unigram": unigram(normalizers.NFKC()),
    "unigram without a first mark": unigram(normalizers.NFKC(), prepend_scheme="never"),
    "unigram without accents": unigram(normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()),
}

PARTS = [
    "the",
    "ship",
    "abc",
    "1999",
    "é",
    "e\u0301",
    "Å",
    "İ",
    "ß",
    "ﷺ",
    "\ufc5e",
    "½",
    "漢字",
    "한국",
    "हिन्दी",
    "\u1100\u1161",
]
PARTS += [
    "[SEP]",
    "[MASK]",
    "<mask>",
    "</s>",
    "'s",
    "don't",
    "_",
    "-",
    "...",
    "\u0301",
    "\u200b",
    "\xa0",
    "\U0001f600",
    "\0",
]
SPACES = [" ", " ", " ", " ", "  ", "   ", "\n", "\t", "", "\u3000"]
texts = st.lists(st.one_of(st.sampled_from(PARTS), st.sampled_from(SPACES), st.text(max_size=3)), max_size=60)


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer(pairs._encodable(text), add_special_tokens=False, verbose=False)["input_ids"]


def check_first_tokens(tokenizer, text: str) -> None:
    """Checks every prefix of a text."""
    assert prefixes.has_prefixes(tokenizer)
    whole = ids(tokenizer, text)
    for beginning in {prefixes.prefix(text, least) for least in range(len(text) + 1)}:
        found = ids(tokenizer, beginning)
        assert text.startswith(beginning) and found == whole[: len(found)], beginning


def check_inputs(tokenizer, documents: list[str], max_length: int) -> None:
    """Checks pairs and single texts where short texts are cut as long ones are."""
    found = {}
    for characters in (100_000, 1, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pairs, "CHARACTERS", characters)
            both = pairs.tokenize(tokenizer, ["who"] * len(documents), documents, max_length=max_length)
            alone = pairs.tokenize_texts(tokenizer, documents, max_length=max_length)
        inputs = [[*one.columns.values(), one.lengths, one.owner] for one in (both, alone)]
        found[characters] = [values.tolist() for one in inputs for values in one]
    assert found[1] == found[3] == found[100_000]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=40)
@given(text=texts.map("".join))
@example(text="the \u0301ship a <mask> b </s> c e\u0301 d \ufc5e a 19 the")
def test_first_tokens_of_a_prefix_are_those_of_the_text(name, text):
    check_first_tokens(TOKENIZERS[name], text)


@pytest.mark.filterwarnings("ignore:1 of 1 queries have more than")
@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=15)
@given(documents=st.lists(texts.map("".join), min_size=1, max_size=3), max_length=st.integers(8, 24))
@example(documents=["the " * 20 + "[SEP]" + " the" * 20, "x" * 200 + " a" * 20, ""], max_length=8)
def test_inputs_are_those_of_whole_texts(name, documents, max_length):
    check_inputs(TOKENIZERS[name], documents, max_length)


@pytest.mark.filterwarnings("ignore:1 of 1 queries have more than")
@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=2_000)
@given(documents=st.lists(texts.map("".join), min_size=1, max_size=3), max_length=st.integers(8, 24))
def test_many_texts(name, documents, max_length):
    check_inputs(TOKENIZERS[name], documents, max_length)
    for text in documents:
        check_first_tokens(TOKENIZERS[name], text)


@pytest.mark.parametrize(
    ("text", "least", "expected"),
    [
        ("the ship was here", 0, "the"),
        ("the ship was here", 2, "the"),
        ("the ship was here", 3, "the ship"),
        ("the ship was here", 12, "the ship was here"),
        ("the  ship, was\there", 0, "the  ship, was\there"),
        ("caf\xe9 ship was", 0, "caf\xe9 ship"),
        ("x" * 1_000_000, 10, "x" * 1_000_000),
    ],
    ids=["first space", "from here on", "next space", "none is left", "no single space", "an accent", "one word"],
)
def test_where_a_text_is_cut(text, least, expected):
    assert prefixes.prefix(text, least) == expected


def changed(**parts) -> transformers.PreTrainedTokenizerFast:
    tokenizer = tiny.wordpiece(types=True)
    for name, value in parts.items():
        setattr(tokenizer if name == "truncation_side" else tokenizer.backend_tokenizer, name, value)
    return tokenizer


def with_token(content: str) -> transformers.PreTrainedTokenizerFast:
    tokenizer = tiny.wordpiece(types=True)
    tokenizer.add_tokens([content])
    return tokenizer


@pytest.mark.parametrize(
    "tokenizer",
    [
        changed(truncation_side="left"),
        changed(pre_tokenizer=pre_tokenizers.Metaspace(split=False)),
        changed(pre_tokenizer=pre_tokenizers.ByteLevel(use_regex=False)),
        changed(pre_tokenizer=pre_tokenizers.Split(Regex("a(?=.*z)"), "isolated")),
        changed(pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Whitespace()])),
        changed(normalizer=normalizers.Replace(" ", "▁")),
        changed(normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex("a.*z"), "")])),
        with_token("new york"),
    ],
)
def test_texts_of_other_tokenizers_are_not_cut(tokenizer, monkeypatch):
    assert not prefixes.has_prefixes(tokenizer)
    monkeypatch.setattr(pairs, "prefix", None)
    assert len(pairs.tokenize(tokenizer, ["a"], ["new york " * 50], max_length=8).lengths) == 1


@pytest.mark.parametrize("name", ["wordpiece", "unigram"])
def test_many_long_texts_are_tokenised_a_few_at_a_time(name, monkeypatch):
    documents = ["the ship 19 " * n for n in (3, 200, 0, 40, 1, 90)]
    wanted = [
        pairs.tokenize(TOKENIZERS[name], ["who"] * 6, documents, max_length=16, passages=p) for p in (True, False)
    ]
    calls, encoded = [], pairs._encoded
    monkeypatch.setattr(pairs, "_encoded", lambda *given, **how: calls.append(given) or encoded(*given, **how))
    monkeypatch.setattr(pairs, "TOGETHER", 500)
    monkeypatch.setattr(pairs, "CHARACTERS", 1_000)
    found = [pairs.tokenize(TOKENIZERS[name], ["who"] * 6, documents, max_length=16, passages=p) for p in (True, False)]
    assert [len(texts) for *_, texts in calls] == [1, 2, 2, 1] * 2
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours.columns["input_ids"], theirs.columns["input_ids"])
        np.testing.assert_array_equal(ours.owner, theirs.owner)


PEAK = """
import resource, sys
sys.path[:0] = {path!r}
from tests import tiny
from pyterrier_cascade.encoder.pairs import tokenize
tokenizer, text = tiny.wordpiece(types=True), "the ship was founded in the town " * 150_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tokenize(tokenizer, ["what ship"] * 3, [text, text + "a", text + "b"], max_length=512)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory otherwise")
def test_long_texts_take_no_memory():
    """Three texts of 5 MB, whose tokens would take 700 MB each."""
    program = PEAK.format(path=sys.path)
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert float(out.stdout) < 50, out.stderr
