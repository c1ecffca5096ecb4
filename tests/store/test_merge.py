"""Joining document caches."""

import errno
import os
import shutil

import pytest

from pyterrier_cascade.store import merge as merging
from pyterrier_cascade.store import publish
from pyterrier_cascade.store.store import DocumentStore
from tests.store.made_up import META, build, content, corpus, in_memory, right

tmp_path = pytest.fixture(in_memory)


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    monkeypatch.setattr(publish, "sync", lambda path: None)


def renamed(documents, start):
    return [{**document, "docno": f"{start}{document['docno']}"} for document in documents]


@pytest.mark.parametrize("links", [True, False])
def test_caches_follow_one_another(tmp_path, monkeypatch, links):
    if not links:

        def other_disk(*paths):
            raise OSError(errno.EXDEV, "another disk")

        monkeypatch.setattr(merging.os, "link", other_disk)
    first, second = corpus(8), renamed(corpus(11), "x")
    one, two = build(tmp_path / "one", first), build(tmp_path / "two", second, shard_size=4)
    before = content(one.path) | content(two.path)
    merged = DocumentStore.merge([one.path, str(two.path)], tmp_path / "deep" / "both")
    assert merged.path == tmp_path / "deep" / "both"
    assert right(merged, first + second) == len(merged) == 19 and merged.complete
    assert merged.docnos(merged.documents).tolist() == [document["docno"] for document in first + second]
    assert merged.meta["fingerprint"] == META["fingerprint"]
    merged.verify()
    assert content(one.path) | content(two.path) == before
    shard, source = merged.path / "shard-00002" / "tokens.bin", two.path / "shard-00000" / "tokens.bin"
    assert os.path.samefile(shard, source) == links
    shutil.rmtree(one.path)
    shutil.rmtree(two.path)
    assert right(DocumentStore(merged.path), first + second) == 19
    assert [path.name for path in merged.path.parent.iterdir()] == ["both"]


def test_parts_of_one_corpus_become_the_whole(tmp_path):
    whole = content(build(tmp_path / "whole").path)
    for name, shards in (("a", [1, 4]), ("b", [0]), ("c", [0, 2])):
        build(tmp_path / name, shards=shards)
    part = DocumentStore.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "ab")
    assert part.missing == [2, 3] and right(part, corpus()) == 13
    merged = DocumentStore.merge([tmp_path / name for name in ("ab", "c")], tmp_path / "abc")
    assert merged.missing == [3] and right(merged, corpus()) == 18
    assert build(tmp_path / "abc").complete and content(tmp_path / "abc") == whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"meta": META | {"fingerprint": "ffff"}},
            "two' has fingerprint 'ffff' and '.*one' has '0123456789abcdef'; only",
        ),
        ({"dtype": "int8"}, "two' has dtype 'int8' and '.*one' has 'fp16'; only caches of one model with the same"),
        ({"meta": META | {"document_length": 9}}, "two' has document_length 9 and '.*one' has 12"),
        ({}, "docno 'd0' and 22 more docnos given to more than one document, in shard-00000 and shard-00005"),
        (
            {"shards": [1]},
            "two' is not complete and others are; build it to its end, or merge parts of one corpus only",
        ),
    ],
)
def test_what_does_not_belong_together_is_refused(tmp_path, options, message):
    build(tmp_path / "one")
    build(tmp_path / "two", **options)
    with pytest.raises(ValueError, match=message):
        DocumentStore.merge([tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_another_width_is_refused(tmp_path):
    build(tmp_path / "one", [])
    build(tmp_path / "two", [], meta=META | {"width": 9})
    with pytest.raises(ValueError, match=r"two' has width 9 and '.*one' has 8"):
        DocumentStore.merge([tmp_path / "one", tmp_path / "two"], tmp_path / "both")


def test_parts_of_different_corpora_are_refused(tmp_path):
    build(tmp_path / "one", shards=[0])
    build(tmp_path / "two", renamed(corpus(), "x"), shards=[0])
    with pytest.raises(
        ValueError, match=r"one/shard-00000' and '.*two/shard-00000' are different shards with one number"
    ):
        DocumentStore.merge([tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    build(tmp_path / "three", corpus(16), shards=[1])
    message = "the caches are no parts of one corpus: they say that it has 16 and 23 documents"
    with pytest.raises(ValueError, match=message):
        DocumentStore.merge([tmp_path / "one", tmp_path / "three"], tmp_path / "both")
    build(tmp_path / "four", shards=[1], shard_size=4)
    with pytest.raises(ValueError, match="no parts of one corpus: their shards have 4 and 5 documents"):
        DocumentStore.merge([tmp_path / "one", tmp_path / "four"], tmp_path / "both")


def test_nothing_or_a_damaged_cache_is_not_merged(tmp_path):
    one = build(tmp_path / "one").path
    with pytest.raises(ValueError, match="there are no caches to merge"):
        DocumentStore.merge([], tmp_path / "both")
    with pytest.raises(FileExistsError, match="one' exists; give another path"):
        DocumentStore.merge([one], one)
    (one / "shard-00001" / "checks.npy").write_bytes(b"")
    with pytest.raises(ValueError, match=r"shard-00001/checks\.npy' is missing or not of its"):
        DocumentStore.merge([one], tmp_path / "both")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_merge_that_was_killed_is_done_again(tmp_path):
    build(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / ".tmp-0123456789ab-both")
    assert right(DocumentStore.merge([tmp_path / "one"], tmp_path / "both"), corpus()) == 23
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both", "one"]
