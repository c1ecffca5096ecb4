import pandas as pd
import pyterrier as pt
import pytest
from pandas.testing import assert_frame_equal

from pyterrier_cascade import BM25
from tests.few_docs import DOCS, docnos


def in_memory():
    return BM25.from_docs(DOCS)


TestScorer = pt.testing.transformer_test_class(lambda: in_memory().scorer())
TestTextLoader = pt.testing.transformer_test_class(lambda: in_memory().text_loader())


def candidates():
    rows = [("q1", "cat dog", "d3"), ("q2", "sat", "d2"), ("q1", "cat dog", "d1"), ("q2", "sat", "d4")]
    rows += [("q1", "cat dog", "d2"), ("q2", "sat", "d1"), ("q3", None, "d1")]
    return pd.DataFrame(rows, columns=["qid", "query", "docno"], index=[0] * 7).assign(label=range(7))


def test_the_scorer_keeps_every_candidate_and_scores_as_the_retriever(bm25, saved):
    for index in (bm25, saved):
        inp = candidates()
        before = inp.copy()
        results = index.scorer()(inp)
        assert_frame_equal(inp, before)
        assert docnos(results) == {"q1": ["d2", "d1", "d3"], "q2": ["d1", "d4", "d2"], "q3": ["d1"]}
        assert results["rank"].tolist() == [0, 1, 2, 0, 1, 2, 0]
        assert sorted(results["label"]) == list(range(7))
        retrieved = index(inp.drop_duplicates("qid")[["qid", "query"]]).set_index(["qid", "docno"])["score"]
        scores = results.set_index(["qid", "docno"])["score"]
        assert (scores == retrieved.reindex(scores.index).fillna(0)).all()


def test_the_scorer_depends_on_each_rows_own_query(bm25):
    inp = pd.DataFrame({"qid": ["1", "2", "1"], "query": ["cat", "dog", "cat"], "docno": ["d2", "d2", "d1"]})
    score = bm25.scorer()(inp).set_index(["query", "docno"])["score"]
    assert score["dog", "d2"] == bm25.search("dog")["score"][0]
    assert score["cat", "d1"] == bm25.search("cat").set_index("docno")["score"]["d1"]


def test_unknown_candidates_are_named(bm25):
    inp = pd.DataFrame({"qid": "1", "query": "cat", "docno": ["d1", *"abcdefg", "a"]})
    for transformer in (bm25.scorer(), bm25.text_loader()):
        with pytest.raises(KeyError, match=r"7 docnos \('a', 'b', 'c', 'd', 'e', ...\) not in this index of 5"):
            transformer(inp)


def test_texts_are_loaded_for_pipelines_without_them(bm25, saved):
    inp = candidates()
    for loader in (pt.text.get_text(bm25), pt.text.get_text(saved, "text"), saved.text_loader(["docno", "text"])):
        expected = [DOCS[int(docno[1]) - 1]["text"] for docno in inp["docno"]]
        assert loader(inp)["text"].tolist() == expected
        assert loader(inp).index.tolist() == inp.index.tolist()
    with pytest.raises(ValueError, match=r"keeps the field 'text', not \['title'\]"):
        bm25.text_loader(["text", "title"])
