"""The documents that a user gives."""

from types import SimpleNamespace

import pandas as pd
import pytest

from pyterrier_cascade.store.documents import checked, chunks, documents_of, some
from pyterrier_cascade.store.store import DocumentStore
from tests.store.made_up import build, corpus, encode, in_memory, right

tmp_path = pytest.fixture(in_memory)


def dataset(documents):
    """A data set as PyTerrier has them, with a corpus."""
    return SimpleNamespace(get_corpus_iter=lambda verbose=True: iter(documents))


WAYS = {
    "list": lambda documents: documents,
    "iterator": iter,
    "frame": lambda documents: pd.DataFrame(documents).set_index([[7] * len(documents)]),
    "data set": dataset,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_corpus_in_any_form_gives_the_same_documents(tmp_path, way):
    whole = [{"other": 1, **document} for document in corpus()]
    assert list(documents_of(WAYS[way](whole))) == whole
    store = build(tmp_path / "store", WAYS[way](whole[:11]))
    store.add(WAYS[way](whole[11:]), encode)
    assert right(store, corpus()) == len(store) == 23
    store.replace(WAYS[way](whole[:2]), encode)
    assert right(store, corpus()) == len(store) == 23


def test_a_frame_has_a_known_size():
    assert len(documents_of(pd.DataFrame(corpus()))) == 23


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("corpus.tsv", "'corpus.tsv' is a single text; give a list of dictionaries with docno and text, a data frame"),
        (b"x", "b'x' is a single text; give a list of dictionaries"),
        ({"docno": "d1", "text": "x"}, r"is a single document; give a list of documents: \[\{'docno'"),
        (3, "3 is no corpus; give a list of dictionaries, a data frame, or a data set"),
    ],
)
def test_anything_else_is_refused_by_name(tmp_path, given, message):
    with pytest.raises(TypeError, match=message):
        documents_of(given)
    with pytest.raises(TypeError, match=message):
        build(tmp_path / "store", given)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("given", ["a.dc", b"a.dc", "path", "store"])
def test_merge_wants_a_list(tmp_path, given):
    store = build(tmp_path / "a.dc", corpus(3))
    given = {"path": store.path, "store": store}.get(given, given)
    with pytest.raises(TypeError, match=r"a\.dc.* alone; give a list of caches or of their folders"):
        DocumentStore.merge(given, tmp_path / "out")
    assert right(DocumentStore.merge([store], tmp_path / "out"), corpus(3)) == 3


def test_chunks_and_names():
    documents = list(checked([{"docno": f"d{i}", "body": "x"} for i in range(5)], "body"))
    assert [len(chunk) for chunk in chunks(iter(documents), 2)] == [2, 2, 1] and documents[0] == ("d0", "x")
    assert some(["a", "b", "a"]) == "'a', 'b'" and some("abcdef") == "'a', 'b', 'c' and 3 more"
