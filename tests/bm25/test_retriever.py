import gzip
import json

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import RR, P, R
from pandas.testing import assert_frame_equal

from pyterrier_cascade import BM25
from tests.few_docs import COLUMNS, DOCS, docnos, topics


def in_memory():
    return BM25.from_docs(DOCS)


TestRetriever = pt.testing.transformer_test_class(in_memory)


def test_results_have_all_columns_in_order_with_ranks_from_zero(bm25):
    expected = pd.DataFrame(
        {
            "qid": "q0",
            "query": "sat CAT?",
            "lang": "en",
            "docno": ["d1", "d4", "d2"],
            "text": ["the cat sat", "sat cat", "a cat and a dog dog"],
            "rank": [0, 1, 2],
        }
    )
    results = bm25(topics("sat CAT?", lang="en"))
    assert results.columns.tolist() == ["qid", "query", "lang", "docno", "text", "score", "rank"]
    assert_frame_equal(results.drop(columns="score"), expected)
    assert results["score"].dtype == np.float64
    assert results["score"][0] == results["score"][1] > results["score"][2] > 0


@pytest.mark.parametrize("query", ["", "   ", "?!", "the", "unicorn", None, float("nan"), pd.NA, "x" * 100_000])
def test_queries_without_known_words_have_no_results(bm25, saved, query):
    for index in (bm25, saved):
        assert docnos(index(topics(query, "dog"))) == {"q1": ["d2"]}


def test_no_results_at_all_and_no_topics_give_the_same_columns_and_types(bm25, saved):
    full = bm25(topics("cat")).dtypes.to_dict()
    for index in (bm25, saved):
        assert index(topics("unicorn")).dtypes.to_dict() == full
        assert index(topics("cat").iloc[:0]).dtypes.to_dict() == full
        assert index(topics(None, None)).columns.tolist() == COLUMNS


def test_nothing_is_opened_for_an_empty_frame(saved):
    for transformer in (saved, saved.scorer(), saved.text_loader()):
        transformer(pd.DataFrame(columns=COLUMNS if transformer is not saved else ["qid", "query"]))
    assert set(saved._index.__dict__) == {"path", "folder"}
    saved.search("cat")
    assert isinstance(saved._index.postings.scores["data"], np.memmap)


def test_own_columns_in_the_topics_are_replaced_and_doubled_ones_refused(bm25):
    stale = topics("cat", text="old", score=9.0, rank=5)
    assert_frame_equal(bm25(stale), bm25(topics("cat")))
    twice = topics("cat")[["qid", "query", "query"]]
    with pytest.raises(ValueError, match=r"more than one column of each of these names: \['query'\]"):
        bm25(twice)
    with pytest.raises(pt.validate.InputValidationError):
        bm25(topics("cat", docno="d1"))


def test_bad_topics(bm25):
    with pytest.raises(ValueError, match=r"qid 'q1' given to more than one topic; give each row its own"):
        bm25(topics("cat", "cat").assign(qid="q1"))
    with pytest.raises(ValueError, match="1 of 1 qids have more than one query, the first is 'q1': 'cat' in row 0"):
        bm25(topics("cat", "dog").assign(qid="q1"))
    with pytest.raises(ValueError, match=r"query 7 is of type int"):
        bm25(topics("cat", 7))


@pytest.mark.parametrize("k", [1, 2, 3, 50])
def test_a_cutoff_fuses_and_changes_nothing(k):
    index = BM25.from_docs([{"docno": f"d{i}", "text": "cat " * (1 + i % 3)} for i in range(40)], num_results=20)
    unfused = index >> pt.RankCutoff(k)
    fused = index % k
    assert fused == unfused.compile() == index % np.int64(k) and isinstance(fused, BM25)
    assert fused.num_results == min(k, 20) and index.num_results == 20
    assert fused._index is index._index
    assert_frame_equal(fused(topics("cat", "no")), unfused(topics("cat", "no")))


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)])
def test_num_results_is_a_positive_integer(saved, value, error):
    with pytest.raises(error):
        BM25(saved.path, num_results=value)
    with pytest.raises(error):
        BM25.from_docs(DOCS, num_results=value)


QUERIES = st.one_of(st.none(), st.just(float("nan")), st.text(max_size=20), st.sampled_from(["cat dog", "sat", "東京"]))


@settings(max_examples=60)
@given(st.lists(QUERIES, max_size=6), st.randoms(use_true_random=False))
def test_topics_in_any_order_with_any_index_and_columns(queries, random):
    index = in_memory()
    inp = topics(*queries, qtype=[1] * len(queries))
    order = random.sample(range(len(inp)), len(inp))
    shuffled = inp.iloc[order].set_axis([random.randint(0, 2) for _ in order])
    before = shuffled.copy()
    results = index(shuffled)
    assert_frame_equal(shuffled, before)
    assert results.index.tolist() == list(range(len(results)))
    by_qid = results.sort_values(["qid", "rank"], ignore_index=True)
    assert_frame_equal(by_qid, index(inp).sort_values(["qid", "rank"], ignore_index=True))
    assert results["qid"].drop_duplicates().tolist() == [q for q in shuffled["qid"] if q in set(results["qid"])]
    for _, block in results.groupby("qid"):
        assert block["rank"].tolist() == list(range(len(block)))
        assert (block["score"].diff().dropna() <= 0).all() and (block["score"] > 0).all()


@settings(max_examples=60)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=8), st.lists(QUERIES, min_size=1, max_size=4))
def test_any_text_is_kept_and_scored_alike_both_ways(texts, queries):
    index = BM25.from_docs({"docno": f"d{i}", "text": text} for i, text in enumerate([*texts, "cat dog"]))
    inp = topics(*queries, *texts)
    retrieved = index(inp)
    assert retrieved["text"].tolist() == [[*texts, "cat dog"][int(d[1:])] for d in retrieved["docno"]]
    scored = index.scorer()(retrieved.sample(frac=1, random_state=0))
    columns = ["qid", "docno", "score"]
    assert_frame_equal(*(f[columns].sort_values(["qid", "docno"], ignore_index=True) for f in (scored, retrieved)))


def test_squad_questions_find_their_paragraph(shared_data):
    with gzip.open(shared_data / "squad" / "dev-v1.1.rebuilt.json.gz", "rt", encoding="utf-8") as file:
        paragraphs = [paragraph for article in json.load(file)["data"] for paragraph in article["paragraphs"]]
    index = BM25.from_docs({"docno": f"p{i}", "text": p["context"]} for i, p in enumerate(paragraphs))
    asked = [(qa["id"], qa["question"], f"p{i}", 1) for i, p in enumerate(paragraphs) for qa in p["qas"]]
    inp = pd.DataFrame(asked, columns=["qid", "query", "docno", "label"])
    results = (index % 100).compile()(inp[["qid", "query"]])
    measured = ir_measures.calc_aggregate(
        [P @ 1, RR, R @ 100], *(pt.model.to_ir_measures(frame) for frame in (inp, results[["qid", "docno", "score"]]))
    )
    print(measured)
    assert measured[P @ 1] >= 0.745 and measured[RR] >= 0.815 and measured[R @ 100] >= 0.98


def test_a_frame_gives_the_same_index(bm25):
    frame = pd.DataFrame(DOCS).sample(frac=1, random_state=0).sort_values("docno")
    assert BM25.from_frame(frame) == bm25
    with pytest.raises(pt.validate.InputValidationError, match="does not match"):
        BM25.from_frame(frame[["docno"]])
    with pytest.raises(ValueError, match=r"BM25\.from_frame takes a frame"):
        BM25.from_docs(frame)


def test_repr_can_be_typed_back_in(bm25, saved, monkeypatch):
    assert repr(bm25) == f"<BM25 of 5 documents {bm25.fingerprint[:6]}, in memory>"
    assert bm25.path is pt.Artifact.NO_PATH
    monkeypatch.chdir(saved.path.parent)
    for text in ("BM25('index')", "BM25('index', num_results=10)", "BM25('index').scorer()"):
        assert repr(eval(text)) == text
    assert eval("BM25('index').scorer()") == saved.scorer()


def test_drawing_looks_nothing_up(bm25, saved, monkeypatch):
    def online(*_):
        raise OSError("offline")

    monkeypatch.setattr(pt.documentation, "url_for_class", online)
    pipeline = bm25 % 10 >> bm25.scorer() >> bm25.text_loader()
    for part in (saved, saved.scorer(), saved.text_loader(), pipeline):
        assert "BM25" in pt.schematic.draw(part)
    assert bm25._repr_html_() is None and pt.inspect.subtransformers(bm25) == {}
