import gzip
import json
import math
import unicodedata

import bm25s
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
from pyterrier_cascade.bm25.settings import METHODS
from tests.few_docs import COLUMNS, DOCS, docnos, topics


def in_memory():
    return BM25.from_docs(DOCS)


TestRetriever = pt.testing.transformer_test_class(in_memory)
TestScorer = pt.testing.transformer_test_class(lambda: in_memory().scorer())
TestTextLoader = pt.testing.transformer_test_class(lambda: in_memory().text_loader())


def test_scores_are_those_of_the_lucene_formula():
    index = BM25.from_docs(DOCS[:2], k1=1.2, b=0.75)
    idf = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    norm = 1.2 * (0.25 + 0.75 * 3 / 2.5)  # d2 keeps cat, dog, dog of its words; d1 cat, sat
    assert index.search("dog")["score"].tolist() == pytest.approx([idf * 2 / (2 + norm)])


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


def test_any_script_is_found(bm25):
    found = docnos(bm25(topics("ångström", "ΔΕΛΦΟΊ", "मौसम", "東京")))
    assert found == {f"q{i}": ["d5"] for i in range(4)}


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


def test_half_a_surrogate_pair_is_retrieved():
    index = BM25.from_docs([*DOCS, {"docno": "odd\ud83d", "text": "a unicorn \ud83d"}])
    found = index(topics("unicorn", "cat"))
    assert found["docno"].tolist()[0] == "odd\ud83d" and found["text"].tolist()[0] == "a unicorn \ud83d"
    assert index.text_loader()(found[["docno"]])["text"].tolist() == found["text"].tolist()
    assert_frame_equal(
        index(topics("cat")), BM25.from_docs([*DOCS, {"docno": "odd", "text": "a unicorn ?"}])(topics("cat"))
    )


@pytest.mark.parametrize("method", METHODS)
def test_all_methods_score_as_bm25s_does_and_return_only_matches(method):
    texts = [doc["text"] for doc in DOCS]
    plain = bm25s.BM25(method=method, k1=1.2, b=0.75, delta=0.5)
    plain.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    index = BM25.from_docs(DOCS, method=method)
    scores = dict(zip("12345", plain.get_scores(["dog", "sat"]).tolist(), strict=True))
    results = index.search("dog unicorn sat")
    assert set(results["docno"]) == {"d1", "d2", "d4"}
    assert results["score"].tolist() == [scores[docno[1]] for docno in results["docno"]]


def test_own_columns_in_the_topics_are_replaced_and_doubled_ones_refused(bm25):
    stale = topics("cat", text="old", score=9.0, rank=5)
    assert_frame_equal(bm25(stale), bm25(topics("cat")))
    twice = topics("cat")[["qid", "query", "query"]]
    with pytest.raises(ValueError, match=r"more than one column of each of these names: \['query'\]"):
        bm25(twice)
    with pytest.raises(pt.validate.InputValidationError):
        bm25(topics("cat", docno="d1"))


def test_bad_topics(bm25):
    with pytest.raises(ValueError, match=r"1 of the topics' qids occur more than once \('q1'\)"):
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


def test_ties_stay_in_index_order_also_where_the_cutoff_falls():
    index = BM25.from_docs([{"docno": f"d{i}", "text": "cat" if i % 2 else "cat cat"} for i in range(100)])
    ranked = [f"d{i}" for i in (*range(0, 100, 2), *range(1, 100, 2))]
    for k in (1, 7, 50, 51, 99, 100):
        assert index.fuse_rank_cutoff(k).search("cat")["docno"].tolist() == ranked[:k]


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)])
def test_num_results_is_a_positive_integer(saved, value, error):
    with pytest.raises(error):
        BM25(saved.path, num_results=value)
    with pytest.raises(error):
        BM25.from_docs(DOCS, num_results=value)


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
    inp = pd.DataFrame({"qid": "q", "query": ["cat", "dog", "cat"], "docno": ["d2", "d2", "d1"]})
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
