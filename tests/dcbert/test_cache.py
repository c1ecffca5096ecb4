"""The document cache: a store that knows the model that made it."""

import json
import re
import tarfile

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from lz4.frame import LZ4FrameFile

from pyterrier_cascade import DCBERT, DocumentCache
from tests import tiny
from tests.dcbert.results import assert_same_scores
from tests.store import made_up
from tests.store.made_up import build, in_memory, right

tmp_path = pytest.fixture(in_memory)


def test_another_model_is_refused(tmp_path):
    cache = build(tmp_path / "cache", cls=DocumentCache)
    cache.check("0123456789abcdef", "anything")
    message = re.escape(
        f"the cache at {str(cache.path)!r} was made by made-up (fingerprint 0123456789ab), not by e5 (ffff), whose "
        "states would mean something else; encode the corpus with this model, or load the other one"
    )
    with pytest.raises(ValueError, match=message):
        cache.check("ffff", "e5")


def test_it_is_an_artifact(tmp_path):
    cache = build(tmp_path / "cache", cls=DocumentCache)
    assert DocumentCache.load(tmp_path / "cache") == cache == pt.Artifact.load(str(tmp_path / "cache"))
    meta = json.loads((tmp_path / "cache" / "pt_meta.json").read_text())
    assert (meta["type"], meta["format"], meta["package_hint"]) == ("dcbert_cache", "shards", "pyterrier_cascade")
    package = cache.build_package(str(tmp_path / "cache.tar.lz4"), verbose=False)
    with LZ4FrameFile(package) as packed, tarfile.open(fileobj=packed, mode="r|") as members:
        for member in members:
            members.extract(member, tmp_path / "fetched", set_attrs=False)
    fetched = pt.Artifact.load(str(tmp_path / "fetched"))
    assert fetched != cache and right(fetched, made_up.corpus()) == 23
    fetched.verify()


@pytest.mark.parametrize("dtype", ["fp16", "int8"])
@pytest.mark.parametrize("settings", [{}, {"passages": "max", "document_length": 12}])
def test_a_changed_collection_scores_like_a_new_cache(dcbert, corpus, candidates, tmp_path, dtype, settings):
    """The documents that come later are encoded with the settings of the first ones."""
    dcbert = dcbert(**settings)
    old = [{**corpus[0], "text": "an older text"}, *corpus[1:3], {"docno": "gone", "text": "the town"}]
    cache = dcbert.encode(old, tmp_path / "cache", dtype=dtype)
    reranker = cache.reranker()
    cache.add(pd.DataFrame(corpus[3:])).replace(corpus[:1]).delete(["gone"])
    expected = dcbert.encode(corpus, tmp_path / "new", dtype=dtype).reranker()(candidates)
    for ranker in (reranker, DocumentCache(cache.path).reranker(), cache.compact().reranker(dcbert)):
        assert_same_scores(ranker(candidates.drop(columns="text")), expected, 1e-6)
    assert len(cache) == len(corpus)
    with pytest.raises(KeyError, match=r"1 of 1 candidates are not in .*gone.*; add them with cache\.add"):
        reranker(candidates.head(1).assign(docno="gone"))


def test_only_the_encoder_of_the_cache_may_add(dcbert, corpus, bare, tmp_path):
    cache = dcbert.encode(corpus[:2], tmp_path / "cache")
    strange = DCBERT.from_pretrained(tiny.save(tmp_path / "strange", layers=3, outputs=None, seed=1))
    for change in (cache.add, cache.replace):
        with pytest.raises(ValueError, match="whose states would mean something else; encode the corpus with this"):
            change(corpus[2:3], strange)
    # Other joint layers on the same document encoder, and the name of another text field.
    other = DCBERT.from_pretrained(bare, head="paper", text_field="body")
    assert len(cache.add([{"docno": "new", "body": "the ship"}], other)) == 3
    texts = dcbert.encode([{"docno": "new", "text": "the ship"}], tmp_path / "texts")
    found = [one.read(one.find(["new"])).states for one in (cache, texts)]
    assert np.array_equal(*found)


def test_the_maker_of_the_cache_is_loaded_once(dcbert, corpus, candidates, tmp_path):
    cache = dcbert.encode(corpus[:3], tmp_path / "cache")
    cache.reranker(missing="encode")(candidates)
    weights = cache.maker.model
    cache.add(corpus[3:])
    assert cache.maker.model is weights is cache.reranker().dcbert().model
    assert "maker" not in cache.__getstate__()


@pytest.mark.parametrize("way", ["frame", "iterator", "data set"])
def test_a_corpus_is_encoded_in_any_form(dcbert, corpus, tmp_path, way):
    class Dataset:
        def get_corpus_iter(self, verbose=True):
            return iter(corpus)

    given = {"frame": pd.DataFrame(corpus), "iterator": iter(corpus), "data set": Dataset()}[way]
    cache = dcbert.encode(given, tmp_path / "cache")
    assert cache.docnos(cache.documents).tolist() == [document["docno"] for document in corpus]
    with pytest.raises(TypeError, match="'corpus' is a single text; give a list of dictionaries"):
        dcbert.encode("corpus", tmp_path / "other")
