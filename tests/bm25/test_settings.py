import sys
import unicodedata
from types import SimpleNamespace

import pytest

from pyterrier_cascade import BM25
from pyterrier_cascade.bm25.settings import BM25Settings
from tests.few_docs import DOCS, docnos, topics


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
    with pytest.raises(
        ImportError, match=r"stemmer='english' needs Stemmer: pip install .pyterrier_cascade\[stemmer\]"
    ):
        BM25.from_docs(DOCS, stemmer="english")


@pytest.mark.parametrize(
    "text",
    ["हिन्दी भाषा की किताब", "বাংলা ভাষার বই", "ภาษาไทย", "తెలుగు భాష పుస్తకం", "ភាសាខ្មែរ", "தமிழ் மொழி நூல்", "עִבְרִית"],
)
def test_marks_are_parts_of_words(text):
    """Vowels in many scripts; without them a word is torn into single letters, which count for nothing."""
    index = BM25.from_docs([{"docno": "here", "text": text}, {"docno": "other", "text": "another text"}])
    for word in text.split():
        assert docnos(index(topics(word))) == {"q0": ["here"]}
        assert docnos(index(topics(unicodedata.normalize("NFD", word)))) == {"q0": ["here"]}


def test_any_script_is_found(bm25):
    found = docnos(bm25(topics("ångström", "ΔΕΛΦΟΊ", "मौसम", "東京")))
    assert found == {f"q{i}": ["d5"] for i in range(4)}


def test_unknown_methods_are_told_the_known_ones():
    with pytest.raises(ValueError, match=r"method must be one of lucene, .*, bm25\+, not 'Lucene' \(did you mean"):
        BM25.from_docs(DOCS, method="Lucene")


def test_misspelt_settings_are_corrected():
    with pytest.raises(TypeError, match=r"BM25 has no setting 'stopword' \(did you mean 'stopwords'\?\)"):
        BM25.from_docs(DOCS, stopword="english")


@pytest.mark.parametrize("settings", [BM25Settings(), BM25Settings(k1=2, method="bm25+", stopwords=["B", "a", "b"])])
def test_settings_survive_json(settings):
    assert BM25Settings(**settings.as_dict()) == settings
