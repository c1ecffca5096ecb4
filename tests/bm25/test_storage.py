import json
import logging
import pickle
import sys
from types import SimpleNamespace

import pandas as pd
import pyterrier as pt
import pytest
from pandas.testing import assert_frame_equal

from pyterrier_cascade import BM25
from pyterrier_cascade.store.strings import Strings
from tests.few_docs import DOCS, docnos, topics


@pytest.mark.parametrize(
    ("docs", "error", "message"),
    [
        ([], ValueError, "no documents"),
        ([{"docno": "1", "body": "x"}], KeyError, "document 0 has no 'text', only 'docno', 'body'"),
        ([{"text": "x"}], KeyError, "document 0 has no 'docno', only 'text'"),
        ([{"docno": "1", "text": None}], ValueError, r"the text of document 0 is None \(NoneType\)"),
        ([{"docno": 1, "text": "x"}], ValueError, r"the docno of document 0 is 1 \(int\)"),
        ([{"docno": "", "text": "x"}], ValueError, "document 0 has an empty docno"),
        (["a sentence"], ValueError, "document 0 is 'a sentence', not a dictionary"),
        ([{"docno": "1", "text": "a ... the"}], ValueError, "no word in the 1 texts"),
        (DOCS + DOCS[:1], ValueError, "docno 'd1' given to more than one document"),
        (
            [{"docno": c, "text": "word"} for c in "aabbccddeeffg"],
            ValueError,
            r"6 docnos \('a', 'b', 'c', 'd', 'e', ...\) given to more",
        ),
    ],
)
def test_bad_documents(docs, error, message):
    with pytest.raises(error, match=message):
        BM25.from_docs(iter(docs))


def test_a_frame_gives_the_same_index(bm25):
    frame = pd.DataFrame(DOCS).sample(frac=1, random_state=0).sort_values("docno")
    assert BM25.from_frame(frame) == bm25
    with pytest.raises(pt.validate.InputValidationError, match="does not match"):
        BM25.from_frame(frame[["docno"]])
    with pytest.raises(ValueError, match=r"BM25\.from_frame takes a frame"):
        BM25.from_docs(frame)


@pytest.mark.parametrize(
    "wrong",
    [{"k1": -1}, {"k1": float("nan")}, {"b": 1.1}, {"delta": -1}, {"method": "tfidf"}, {"stopwords": "klingon"}],
)
def test_bad_settings(wrong):
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        BM25.from_docs(DOCS, **wrong)


def test_stopwords_and_stemmer_are_applied_to_documents_and_queries(monkeypatch, tmp_path):
    fake = SimpleNamespace(Stemmer=lambda language: lambda words: [word.rstrip("s") for word in words])
    monkeypatch.setitem(sys.modules, "Stemmer", fake)
    BM25.from_docs(DOCS, stopwords=["CAT"], stemmer="english").save(tmp_path / "index")
    index = BM25(tmp_path / "index")
    assert docnos(index(topics("dogs", "cat", "the"))) == {"q0": ["d2"], "q2": ["d1"]}
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(ImportError, match="pip install PyStemmer"):
        BM25.from_docs(DOCS, stemmer="english")


def test_it_is_quiet_unless_asked(capfd, caplog, bm25):
    logging.getLogger().setLevel(logging.DEBUG)
    index = BM25.from_docs(DOCS)
    index(topics("cat"))
    assert capfd.readouterr() == ("", "") and not caplog.records
    BM25.from_docs(DOCS, verbose=True)(topics("cat"))
    assert "BM25" in capfd.readouterr().err


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


def test_equality_and_hash_are_by_content_and_settings(bm25, saved):
    assert hash(saved) == hash(bm25) and hash(saved.scorer()) == hash(bm25.scorer())
    assert saved.scorer() == bm25.scorer() and saved.text_loader() == bm25.text_loader()
    others = [
        BM25.from_docs(DOCS[::-1]),
        BM25.from_docs(DOCS[:4]),
        BM25.from_docs(DOCS, k1=1),
        BM25.from_docs(DOCS, num_results=10),
        BM25.from_docs([{**doc, "docno": doc["docno"] + "0"} for doc in DOCS]),
    ]
    assert len({bm25, saved, *others}) == 6
    assert bm25 != BM25.from_docs(DOCS, num_results=10) and bm25 != "BM25" and bm25.scorer() != bm25


def test_repr_can_be_typed_back_in(bm25, saved, monkeypatch):
    assert repr(bm25) == f"<BM25 of 5 documents {bm25.fingerprint[:6]}, in memory>"
    assert bm25.path is pt.Artifact.NO_PATH
    monkeypatch.chdir(saved.path.parent)
    for text in ("BM25('index')", "BM25('index', num_results=10)", "BM25('index').scorer()"):
        assert repr(eval(text)) == text
    assert eval("BM25('index').scorer()") == saved.scorer()


def test_pickles_carry_the_path_or_the_arrays(bm25, tmp_path, monkeypatch):
    big = BM25.from_docs({"docno": f"d{i}", "text": f"word{i}"} for i in range(2000))
    assert pickle.loads(pickle.dumps(big)) == big
    assert_frame_equal(pickle.loads(pickle.dumps(big))(topics("word7")), big(topics("word7")))
    monkeypatch.chdir(tmp_path)
    big.save("index")
    big.scorer()(pd.DataFrame({"qid": ["1"], "query": "word7", "docno": "d7"}))
    small = pickle.dumps(BM25("index", num_results=7))
    assert len(small) < 500 and len(pickle.dumps(big.scorer())) < 1000
    monkeypatch.chdir("/")
    copy = pickle.loads(small)
    assert repr(copy) == "BM25('index', num_results=7)" and copy.search("word7")["docno"].tolist() == ["d7"]


def test_strings_survive_packing_whatever_they_hold(tmp_path):
    strings = ["", "a\ud800", "東京\x00", "", "é\r\n", ""]
    Strings.pack(strings).save(tmp_path, "texts")
    for packed in (Strings.pack(strings), Strings.open(tmp_path, "texts")):
        assert len(packed) == 6
        assert packed.take([4, 1, 1, 0, 5, 2, 3]).tolist() == [strings[i] for i in (4, 1, 1, 0, 5, 2, 3)]


def test_an_existing_path_is_kept_unless_told(bm25, saved, tmp_path):
    other = BM25.from_docs(DOCS[:2])
    (tmp_path / ".index.old" / "left by a crash").mkdir(parents=True)
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


def test_half_an_index_is_refused_by_name(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no BM25 index at '.*nowhere'"):
        BM25(tmp_path / "nowhere")
    texts = saved.path / "texts.bytes.npy"
    texts.write_bytes(texts.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"texts\.bytes\.npy' is missing or not of its \d+ bytes"):
        BM25(saved.path).search("cat")
    (saved.path / "pt_meta.json").write_text('{"type": "dense_index", "format": "flex"}')
    with pytest.raises(ValueError, match="'dense_index', format 'flex'"):
        BM25(saved.path).search("cat")
    (saved.path / "pt_meta.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"index' is not a finished BM25 index: pt_meta\.json"):
        BM25(saved.path)


def test_drawing_looks_nothing_up(bm25, saved, monkeypatch):
    def online(*_):
        raise OSError("offline")

    monkeypatch.setattr(pt.documentation, "url_for_class", online)
    pipeline = bm25 % 10 >> bm25.scorer() >> bm25.text_loader()
    for part in (saved, saved.scorer(), saved.text_loader(), pipeline):
        assert "BM25" in pt.schematic.draw(part)
    assert bm25._repr_html_() is None and pt.inspect.subtransformers(bm25) == {}
