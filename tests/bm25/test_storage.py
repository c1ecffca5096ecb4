import errno
import json

import pyterrier as pt
import pytest
from pandas.testing import assert_frame_equal

from pyterrier_cascade import BM25
from pyterrier_cascade.store.publish import DiskFull
from tests.few_docs import DOCS, topics


def test_a_saved_index_is_the_same_index(bm25, saved, tmp_path):
    assert pt.Artifact.load(str(saved.path)) == saved == bm25 == BM25.load(saved.path)
    assert_frame_equal(saved(topics("cat", "ångström")), bm25(topics("cat", "ångström")))
    again = BM25(saved.path).save(tmp_path / "deep" / "copy")
    assert again == saved and again.path == tmp_path / "deep" / "copy"
    again.save(again.path, overwrite=True)
    assert_frame_equal(BM25(again.path)(topics("cat")), bm25(topics("cat")))
    meta = json.loads((saved.path / "pt_meta.json").read_text())
    assert meta["settings"] == {"k1": 1.2, "b": 0.75, "method": "lucene", "delta": 0.5, "stopwords": "english"} | {
        "stemmer": None
    }
    assert (meta["type"], meta["format"], meta["n_docs"]) == ("sparse_index", "bm25s", 5)


def test_an_existing_path_is_kept_unless_told(bm25, saved, tmp_path):
    other = BM25.from_docs(DOCS[:2])
    (tmp_path / ".tmp-0123456789ab-index" / "left by a crash").mkdir(parents=True)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        other.save(saved.path)
    assert BM25(saved.path) == bm25
    assert other.save(saved.path, overwrite=True) == BM25(saved.path) == other != bm25
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="no finished BM25 index"):
        other.save(tmp_path / "precious", overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index", "precious"]


def test_a_failed_save_leaves_nothing_or_the_old(bm25, saved, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("pyterrier_cascade.bm25.index.write_meta", full)
    for path in (tmp_path / "new", saved.path):
        with pytest.raises(OSError, match="No space left"):
            BM25.from_docs(DOCS[:2]).save(path, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["index"]
    assert BM25(saved.path) == bm25


def test_a_full_disk_is_explained(bm25, saved, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pyterrier_cascade.bm25.index.write_meta", full)
    message = "index' is full; the path is as it was: make room, then save the index again"
    with pytest.raises(DiskFull, match=message):
        BM25.from_docs(DOCS[:2]).save(saved.path, overwrite=True)
    assert BM25(saved.path) == bm25 and names(saved.path.parent) == ["index"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_half_an_index_is_refused_by_name(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no BM25 index at '.*nowhere'"):
        BM25(tmp_path / "nowhere")
    texts = saved.path / "texts.bytes.npy"
    texts.write_bytes(texts.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"texts\.bytes\.npy' is missing or not of its \d+ bytes; copy or save"):
        BM25(saved.path).search("cat")
    (saved.path / "pt_meta.json").write_text('{"type": "dense_index", "format": "flex"}')
    with pytest.raises(ValueError, match="'dense_index', format 'flex'"):
        BM25(saved.path).search("cat")
    (saved.path / "pt_meta.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"index' is not a finished BM25 index: pt_meta\.json"):
        BM25(saved.path)
