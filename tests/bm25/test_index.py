import logging
import math
import pickle

import bm25s
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from pyterrier_cascade import BM25
from pyterrier_cascade.bm25.settings import METHODS
from tests.few_docs import DOCS, topics


def test_it_is_quiet_unless_asked(capfd, caplog, bm25):
    logging.getLogger().setLevel(logging.DEBUG)
    index = BM25.from_docs(DOCS)
    index(topics("cat"))
    assert capfd.readouterr() == ("", "") and not caplog.records
    BM25.from_docs(DOCS, verbose=True)(topics("cat"))
    assert "BM25" in capfd.readouterr().err


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


def test_scores_are_those_of_the_lucene_formula():
    index = BM25.from_docs(DOCS[:2], k1=1.2, b=0.75)
    idf = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    norm = 1.2 * (0.25 + 0.75 * 3 / 2.5)  # d2 keeps cat, dog, dog of its words; d1 cat, sat
    assert index.search("dog")["score"].tolist() == pytest.approx([idf * 2 / (2 + norm)])


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


def test_ties_stay_in_index_order_also_where_the_cutoff_falls():
    index = BM25.from_docs([{"docno": f"d{i}", "text": "cat" if i % 2 else "cat cat"} for i in range(100)])
    ranked = [f"d{i}" for i in (*range(0, 100, 2), *range(1, 100, 2))]
    for k in (1, 7, 50, 51, 99, 100):
        assert index.fuse_rank_cutoff(k).search("cat")["docno"].tolist() == ranked[:k]


def test_half_a_surrogate_pair_is_retrieved():
    index = BM25.from_docs([*DOCS, {"docno": "odd\ud83d", "text": "a unicorn \ud83d"}])
    found = index(topics("unicorn", "cat"))
    assert found["docno"].tolist()[0] == "odd\ud83d" and found["text"].tolist()[0] == "a unicorn \ud83d"
    assert index.text_loader()(found[["docno"]])["text"].tolist() == found["text"].tolist()
    assert_frame_equal(
        index(topics("cat")), BM25.from_docs([*DOCS, {"docno": "odd", "text": "a unicorn ?"}])(topics("cat"))
    )
