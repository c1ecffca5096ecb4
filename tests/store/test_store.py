"""The document cache: what goes in comes out, by name, or is refused."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_cascade.store import build as building
from pyterrier_cascade.store import index, publish, shards
from pyterrier_cascade.store.store import DocumentStore
from tests.store.made_up import META, WIDTH, build, close, content, corpus, encode, in_memory, right, states_of

tmp_path = pytest.fixture(in_memory)


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    """Nobody pulls the plug here, and a disk takes its time."""
    monkeypatch.setattr(publish, "sync", lambda path: None)


@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_what_goes_in_comes_out(tmp_path, dtype):
    cache = build(tmp_path / "cache", dtype=dtype)
    assert right(cache, corpus()) == len(cache) == 23
    assert (cache.dtype, cache.width, cache.complete, cache.missing) == (dtype, WIDTH, True, [])
    assert cache.meta["model"] == "made-up" and cache.meta["document_length"] == 12
    lengths = [states_of(document["text"])[1] for document in corpus()]
    assert cache.n_entries == sum(len(one) for one in lengths) > len(cache)
    assert cache.n_tokens == sum(int(one.sum()) for one in lengths)
    assert cache.docnos(cache.documents).tolist() == [document["docno"] for document in corpus()]
    cache.verify()


def test_a_larger_corpus_is_refused_before_it_is_encoded(tmp_path):
    """However the shards come out."""
    before = content(build(tmp_path / "cache", corpus(10)).path)
    with pytest.raises(
        ValueError, match="was made from another corpus: of 10 documents, where this one has more; give"
    ):
        build(tmp_path / "cache", corpus(23))
    assert content(tmp_path / "cache") == before
    assert build(tmp_path / "cache", corpus(10)).complete


def test_a_build_that_was_stopped_is_not_whole(tmp_path):
    def stopping():
        yield from corpus()[:12]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "cache", stopping())
    cache = DocumentStore(tmp_path / "cache")
    assert (len(cache), cache.complete) == (10, False)
    with pytest.raises(ValueError, match="its build did not come to the end of the corpus: run it again"):
        cache.verify()
    build(tmp_path / "cache").verify()


def test_many_documents_are_read_in_the_order_asked(tmp_path):
    cache, documents = build(tmp_path / "cache"), corpus()
    asked = [22, 3, 17, 3, 0, 9, 10, 4]
    entries, counts = cache.entries(cache.find([documents[i]["docno"] for i in asked]))
    wanted = [states_of(documents[i]["text"]) for i in asked]
    assert counts.tolist() == [len(lengths) for _, lengths in wanted] and max(counts) > 1
    read = cache.read(entries)
    assert read.lengths.tolist() == np.concatenate([lengths for _, lengths in wanted]).tolist()
    assert close(read.fp32(), np.concatenate([states for states, _ in wanted]), "fp16")
    assert (read.states.dtype, read.states.shape, read.scales) == (np.float16, (read.lengths.sum(), WIDTH), None)
    backwards = cache.read(entries[::-1])
    starts = np.cumsum(read.lengths) - read.lengths
    assert np.array_equal(backwards.states[: backwards.lengths[0]], read.states[starts[-1] :])


def test_int8_comes_with_scales(tmp_path):
    cache = build(tmp_path / "cache", dtype="int8")
    read = cache.read(cache.find(["d1"]))
    states, _ = states_of(corpus()[1]["text"])
    assert read.states.dtype == np.int8 and read.scales.dtype == np.float32
    assert read.scales == pytest.approx(np.abs(states).max(1) / 127)
    assert np.abs(read.states).max(1).tolist() == [127] * len(states)


def test_unknown_documents(tmp_path):
    cache = build(tmp_path / "cache")
    assert cache.find(["d1", "nobody", "D1", "", "d1 "]).tolist() == [1 << 16, -1, -1, -1, -1]
    assert cache.find([]).tolist() == [] and cache.find(pd.Series(["d2"])).tolist() == [2 << 16]
    empty = cache.read([])
    assert empty.states.shape == (0, WIDTH) and empty.fp32().dtype == np.float32 and len(empty.lengths) == 0
    assert [len(part) for part in cache.entries([])] == [0, 0] and len(cache.docnos([])) == 0
    for number in (-1, 5 << 16, 9 << 40, (1 << 16) + 1):
        message = f"there is no {number} in the cache; use the numbers that find returns, without its -1"
        with pytest.raises(IndexError, match=message):
            cache.read([1 << 16, number])
    with pytest.raises(ValueError, match=r"docno 7 is int, not str"):
        cache.find(["d1", 7])


def test_documents_whose_hashes_collide_are_told_apart(tmp_path, monkeypatch):
    def few(docnos):
        return np.array([len(docno) % 2 for docno in docnos], "<u8")

    for module in (index, building, shards):
        monkeypatch.setattr(module, "hashed", few)
    cache = build(tmp_path / "cache")
    assert right(cache, corpus()) == 23
    assert cache.find(["d99", "d9", "x"]).tolist() == [-1, (1 << 40) + (4 << 16), -1]


@pytest.mark.parametrize("n", [0, 1, 5, 10])
def test_few_documents(tmp_path, n):
    cache = build(tmp_path / "cache", corpus(n))
    assert right(cache, corpus(n)) == len(cache) == n
    assert cache.complete and cache.missing == [] and len(cache.documents) == n
    assert cache.find(["nobody"]).tolist() == [-1]
    with pytest.raises(IndexError, match="there is no 655360 in the cache"):
        cache.read([10 << 16])
    cache.verify()
    before = content(tmp_path / "cache")
    build(tmp_path / "cache", iter(corpus(n)))
    assert content(tmp_path / "cache") == before


def test_strange_names_and_texts(tmp_path):
    names = ["", " ", "\n", "0", "a" * 500, "日本語", "🙂", "e\u0301", "\u00e9", "\ud800", "d,1", "../x", "nul\0"]
    documents = [{"docno": f"x{name}", "text": name} for name in names]
    cache = build(tmp_path / "cache", documents)
    assert right(cache, documents) == len(names)
    assert cache.docnos(cache.documents).tolist() == [f"x{name}" for name in names]
    cache.verify()


def test_the_same_input_gives_the_same_bytes(tmp_path):
    build(tmp_path / "one")
    build(tmp_path / "two", (document for document in corpus()), shards=[3, 1])
    part = DocumentStore(tmp_path / "two")
    assert (len(part), part.complete, part.missing) == (10, False, [0, 2, 4])
    assert right(part, corpus()) == 10
    build(tmp_path / "two")
    assert content(tmp_path / "two") == content(tmp_path / "one")


def test_only_what_is_missing_is_encoded(tmp_path):
    build(tmp_path / "cache", shards=range(0, 2))
    seen = []

    def watched(texts):
        seen.extend(texts)
        return encode(texts)

    build(tmp_path / "cache", encode=watched)
    assert seen == [document["text"] for document in corpus()[10:]]
    build(tmp_path / "cache", encode=None)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (corpus()[::-1], "it holds document 'd0' where the corpus has 'd22'; give the same corpus in the same order"),
        (corpus()[:7] + corpus()[8:], "shard-00001 of .* it holds document 'd7' where the corpus has 'd8'"),
        ([{**corpus()[0], "text": "other"}, *corpus()[1:]], "shard-00000 .* the same docnos with other texts"),
        (corpus(26), "shard-00004 of .* it holds 3 documents where the corpus has 5"),
        (corpus(21), "shard-00004 of .* it holds 3 documents where the corpus has 1"),
        (corpus(20), r"another corpus: of 23 documents, where this one has 20 documents in 4 shards"),
    ],
)
def test_another_corpus_is_refused(tmp_path, documents, message):
    before = content(build(tmp_path / "cache").path)
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "cache", documents)
    assert content(tmp_path / "cache") == before


def test_a_shorter_corpus_is_refused_before_the_first_has_ended(tmp_path):
    def dies(documents):
        yield from documents
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "cache", dies(corpus(20)))
    assert not DocumentStore(tmp_path / "cache").complete
    with pytest.raises(ValueError, match="of 4 shards or more, where this one has 10 documents in 2 shards"):
        build(tmp_path / "cache", corpus(10))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dtype": "int8"}, "has dtype 'fp16', this build 'int8'; build with the same settings, or give another path"),
        ({"shard_size": 6}, "has shard_size 5, this build 6"),
        ({"meta": META | {"fingerprint": "f"}}, "has fingerprint '0123456789abcdef', this build 'f'"),
        ({"meta": META | {"document_length": 9}}, "has document_length 12, this build 9"),
        ({"meta": META | {"more": (1, 2)}}, r"has more None, this build \[1, 2\]"),
    ],
)
def test_other_settings_are_refused(tmp_path, changed, message):
    build(tmp_path / "cache")
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "cache", **changed)
    build(tmp_path / "cache", meta=META | {"model": "the same, elsewhere"})


@pytest.mark.parametrize(
    ("documents", "error", "message"),
    [
        (corpus(3) + corpus(2), ValueError, "docno 'd0' and 1 more docnos given to more than one document; drop or"),
        (corpus(12) + corpus(1), ValueError, "docno 'd0' given to more than one document; drop or rename"),
        ([{"docno": 1, "text": "x"}], ValueError, r"the docno of document 0 is 1 \(int\), not a str"),
        ([{"docno": "a", "text": None}], ValueError, r"the text of document 0 is None \(NoneType\), not a str"),
        ([{"docno": "a", "text": float("nan")}], ValueError, r"the text of document 0 is nan \(float\), not a str"),
        ([{"docno": "", "text": ""}], ValueError, "document 0 has an empty docno"),
        ([{"docno": "a", "body": "x"}], KeyError, "document 0 has no 'text', only 'docno', 'body'"),
        (["a sentence"], ValueError, "document 0 is 'a sentence', not a dictionary"),
    ],
)
def test_bad_documents(tmp_path, documents, error, message):
    with pytest.raises(error, match=message):
        build(tmp_path / "cache", documents)
    left = [path.name for path in (tmp_path / "cache").iterdir() if path.name.startswith((".tmp", ".writer"))]
    assert not left


def test_a_docno_in_shards_of_two_processes(tmp_path):
    documents = corpus(9) + corpus(1)
    build(tmp_path / "cache", [*corpus(9), {"docno": "d9", "text": ""}], shards=[0])
    shard = tmp_path / "other" / "shard-00001"
    build(tmp_path / "other", [{"docno": f"x{i}", "text": ""} for i in range(5)] + documents[5:])
    shard.rename(tmp_path / "cache" / "shard-00001")
    message = "docno 'd0' given to more than one document, in shard-00000 and shard-00001; drop or rename"
    with pytest.raises(ValueError, match=message):
        DocumentStore(tmp_path / "cache").find(["d0"])
    with pytest.raises(ValueError, match=message):
        DocumentStore(tmp_path / "cache").verify()


def returns(states=None, lengths=None, owner=None):
    def wrong(texts):
        good = encode(texts)
        return tuple(new if new is not None else old for new, old in zip((states, lengths, owner), good, strict=True))

    return wrong


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (returns(states=np.ones((4, 3))), r"encode returned states of shape \(4, 3\), not \(n_tokens, 8\)"),
        (returns(states=np.ones((4, 8, 1))), r"encode returned states of shape \(4, 8, 1\)"),
        (returns(lengths=np.array([2, 2])), "encode returned 2 lengths that sum to 4 for 6 tokens, and 2 owners; they"),
        (returns(lengths=np.array([6])), "encode returned 1 lengths that sum to 6 for 6 tokens, and 2 owners"),
        (returns(lengths=np.array([6, 0])), "encode returned an entry without tokens for document 'd1'"),
        (
            returns(owner=np.array([0, 0])),
            "the owners that encode returns must ascend and name each of the 2 documents",
        ),
        (
            returns(np.ones((65538, 8)), np.ones(65538, int), np.repeat([0, 1], [65537, 1])),
            "document 'd0' has 65537 entries; at most 65536",
        ),
        (returns(owner=np.array([1, 0])), "the owners that encode returns must ascend"),
    ],
)
def test_what_encode_returns_is_checked(tmp_path, wrong, message):
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "cache", encode=wrong)
    assert not list((tmp_path / "cache").glob("*shard*"))


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (65504, "fp16", None),
        (65505, "fp16", "the states of document 'd11' hold 65505, which fp16 cannot store; use dtype='int8'"),
        (-1e9, "fp16", "the states of document 'd11' hold -1e\\+09, which fp16 cannot store"),
        (-1e9, "int8", None),
        (np.nan, "fp16", "the states of document 'd11' hold nan, which fp16 cannot store"),
        (
            np.nan,
            "int8",
            "the states of document 'd11' hold nan, which int8 cannot store; the model's weights are broken",
        ),
        (np.inf, "int8", "the states of document 'd11' hold inf, which int8 cannot store"),
    ],
)
def test_numbers_that_cannot_be_stored(tmp_path, value, dtype, message):
    def extreme(texts):
        states, lengths, owner = encode(texts)
        if texts[-1] == corpus()[11]["text"]:
            states[np.flatnonzero(np.repeat(owner, lengths) == len(texts) - 1)[1], 3] = value
        return states, lengths, owner

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if message:
            with pytest.raises(ValueError, match=message):
                build(tmp_path / "cache", encode=extreme, dtype=dtype)
            assert len(DocumentStore(tmp_path / "cache")) == 10
        else:
            read = build(tmp_path / "cache", encode=extreme, dtype=dtype)
            number = read.find(["d11"])
            assert read.read(number).fp32()[1, 3] == value


@settings(max_examples=8)
@given(st.data(), st.sampled_from(["fp16", "int8"]))
def test_any_documents_come_back(data, dtype):
    texts = st.text(max_size=30)
    names = data.draw(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=12))
    documents = [{"docno": name, "text": data.draw(texts)} for name in names]
    size, batch = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    for folder in in_memory():
        cache = build(folder / "any", documents, dtype=dtype, shard_size=size, batch_size=batch)
        assert right(cache, documents) == len(documents)
        cache.verify()


def test_settings_are_checked(tmp_path):
    for options, message in (
        ({"dtype": "fp32"}, "dtype must be one of fp16, int8, not 'fp32'"),
        ({"shard_size": 0}, "shard_size is 0; give a whole number of 1 or more"),
        ({"batch_size": 2.5}, r"batch_size is 2\.5; give a whole number"),
        ({"shard_size": 1 << 25}, "shard_size is 33554432; at most 16777216"),
        ({"meta": {"model": "m", "fingerprint": "f"}}, "width is None; give a whole number"),
        ({"meta": {"width": 8}}, "meta has no model, fingerprint; a reader must know them"),
    ):
        with pytest.raises(ValueError, match=message):
            build(tmp_path / "cache", **options)
    assert not (tmp_path / "cache").exists()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="notes' exists and is no document cache; give another path"):
        build(tmp_path / "notes")
    assert list(content(tmp_path / "notes")) == ["thesis.txt"]


def test_it_is_a_value_and_pickles_small(tmp_path, monkeypatch):
    cache = build(tmp_path / "cache")
    right(cache, corpus())
    assert len(pickle.dumps(cache)) < 300
    monkeypatch.chdir(tmp_path)
    near = DocumentStore("cache")
    assert repr(near) == "DocumentStore('cache')" and eval(repr(near)) == near == cache and hash(near) == hash(cache)
    bold = DocumentStore("cache", trust=True)
    assert repr(bold) == "DocumentStore('cache', trust=True)" and eval(repr(bold)) == bold != cache
    packed = pickle.dumps(bold)
    monkeypatch.chdir("/")
    again = pickle.loads(packed)
    assert again.trust and right(again, corpus()) == 23
    assert near != build(tmp_path / "other") and near != "cache"


def test_no_cache(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no document cache at .*; make one with DocumentStore\.build"):
        DocumentStore(tmp_path)
    (tmp_path / "pt_meta.json").write_bytes(publish.sealed({"type": "sparse_index", "format": "x", "version": 3}))
    message = "holds type 'sparse_index', format 'x', version 3; this reads document_store, shards, version 1"
    with pytest.raises(ValueError, match=message):
        DocumentStore(tmp_path)


def test_it_says_the_size_and_shows_progress_if_asked(tmp_path, capfd):
    build(tmp_path / "quiet")
    assert capfd.readouterr() == ("", "")
    build(tmp_path / "loud", shards=[0, 4], verbose=True)
    said = "".join(capfd.readouterr())
    # Of the eight documents to do; those of the first batch have three tokens.
    assert re.search(r"loud: about 1.18 KB for 8 documents of 3 tokens in fp16; the disk has .* free", said)
    assert said.count("about") == 1
    assert "encoding documents: 100%" in said and "8/8" in said and "documents/s" in said


def test_a_corpus_that_does_not_fit_is_not_begun(tmp_path, monkeypatch):
    free = building.shutil.disk_usage(tmp_path)._replace(free=2000)
    monkeypatch.setattr(building.shutil, "disk_usage", lambda path: free)
    encoded = []

    def watched(texts):
        encoded.extend(texts)
        return encode(texts)

    message = (
        r"cache' needs about 3.4 KB for 23 documents of 3 tokens in fp16; the disk has 2 KB free: make room, or "
        r"choose another path, dtype='int8' or shorter documents"
    )
    with pytest.raises(OSError, match=message) as caught:
        build(tmp_path / "cache", encode=watched)
    assert caught.value.errno == 28 and len(encoded) == 2
    assert not list((tmp_path / "cache").glob("*shard*"))
    # Of a corpus whose size is unknown the first shard must fit.
    assert len(build(tmp_path / "cache", iter(corpus()))) == 23


def test_what_cannot_be_published_leaves_nothing(tmp_path, monkeypatch):
    def fails(old, new):
        raise OSError("no luck")

    monkeypatch.setattr(publish.os, "replace", fails)
    with pytest.raises(OSError, match="no luck"):
        build(tmp_path / "cache")
    assert list(content(tmp_path / "cache")) == [".lock"]


def test_everything_is_on_the_disk_before_it_counts(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(publish, "sync", lambda path: calls.append(path.name))
    replace = publish.os.replace
    monkeypatch.setattr(publish.os, "replace", lambda old, new: (calls.append(f"-> {new.name}"), replace(old, new)))
    build(tmp_path / "cache", corpus(5), dtype="int8")
    start, end = calls.index("-> pt_meta.json"), calls.index("-> shard-00000")
    assert calls[start + 1] == "cache" and calls[end + 1] == "cache"
    written = {path.name for path in (tmp_path / "cache" / "shard-00000").iterdir()}
    assert len(written) == 9 and set(calls[start + 2 : end - 1]) == written
    assert calls[end - 1].startswith(".tmp-") and calls[-2].startswith("-> index-") and calls[-1] == "cache"
