"""The document cache: a store that knows the model that made it."""

import json
import re
import tarfile

import pyterrier as pt
import pytest
from lz4.frame import LZ4FrameFile

from pyterrier_cascade import DocumentCache
from tests.store.made_up import build, corpus, in_memory, right

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
    assert fetched != cache and right(fetched, corpus()) == 23
    fetched.verify()
