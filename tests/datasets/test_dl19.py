import gzip
import json
import pickle

import pyterrier as pt
import pytest
from ir_measures import nDCG
from pandas.testing import assert_frame_equal

FILES = {
    "queries.tsv": "q1\twho wrote?\nq2\twhat\u2028else?\nq9\tnot judged\n",
    "qrels": "q2 0 d3 3\nq1 Q0 d1 2\nq1 Q0 d2 0\n",
    "passages.jsonl": "".join(json.dumps({"docno": f"d{n}", "text": f"text {n}"}) + "\n" for n in (1, 2, 3, 4)),
    "run-p_bert": "q1 Q0 d7 1 -0.5 t\nq1 Q0 d1 2 -0.7 t\nq9 Q0 d1 1 -0.1 t\nq2 Q0 d3 1 -3 t\n",
}


@pytest.fixture
def folder(tmp_path):
    """The files of three topics, of which two are judged."""
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def load(folder):
    return pt.get_dataset("as2:dl19", folder=folder)


def test_counts(shared_data):
    dataset = load(shared_data)
    info = dataset.get_info()
    assert (info["n_questions"], info["n_pairs"], info["split"]) == (43, 9260, None)
    assert sorted(dataset.get_qrels()["label"].unique()) == [0, 1, 2, 3]
    candidates = dataset.get_candidates()
    assert list(candidates.columns) == ["qid", "query", "docno", "text", "label"]
    sizes = candidates.groupby("qid").size()
    assert (len(sizes), sizes.min(), sizes.max(), round(sizes.mean())) == (43, 132, 582, 215)
    assert candidates["text"].str.len().min() > 0
    documents = list(dataset.get_corpus_iter(verbose=False))
    assert set(candidates["docno"]) < {document["docno"] for document in documents}


def test_the_official_run_scores_as_published(shared_data):
    dataset = load(shared_data)
    run = dataset.get_results("bm25base_p")
    assert run.groupby("qid").size().tolist() == [1000] * 43
    assert pt.Evaluate(run, dataset.get_qrels(), [nDCG @ 10])["nDCG@10"] == pytest.approx(0.5058, abs=5e-5)
    texts = {document["docno"] for document in dataset.get_corpus_iter(verbose=False)}
    for k, share in ((100, 0.65), (1000, 0.14)):
        assert run[run["rank"] < k]["docno"].isin(texts).mean() == pytest.approx(share, abs=0.005)


def test_small_files(folder):
    dataset = load(folder)
    assert dataset.get_topics().values.tolist() == [["q1", "who wrote?"], ["q2", "what\u2028else?"]]
    assert dataset.get_qrels().values.tolist() == [["q2", "d3", 3], ["q1", "d1", 2], ["q1", "d2", 0]]
    assert dataset.get_candidates().values.tolist() == [
        ["q2", "what\u2028else?", "d3", "text 3", 3],
        ["q1", "who wrote?", "d1", "text 1", 2],
        ["q1", "who wrote?", "d2", "text 2", 0],
    ]
    assert [document["docno"] for document in dataset.get_corpus_iter(verbose=False)] == ["d1", "d2", "d3", "d4"]


def test_runs_have_the_judged_topics_and_ranks_from_zero(folder):
    run = load(folder).get_results("p_bert")
    assert list(run.columns) == ["qid", "query", "docno", "score", "rank"]
    assert run[["qid", "docno", "score", "rank"]].values.tolist() == [
        ["q1", "d7", -0.5, 0],
        ["q1", "d1", -0.7, 1],
        ["q2", "d3", -3.0, 0],
    ]


def test_the_names_that_trec_gives_the_files(folder):
    expected = load(folder).get_candidates()
    for old, new in (("queries.tsv", "msmarco-test2019-queries.tsv"), ("qrels", "2019qrels-pass.txt")):
        (folder / old).rename(folder / new)
    (folder / "input.p_bert.gz").write_bytes(gzip.compress((folder / "run-p_bert").read_bytes()))
    (folder / "run-p_bert").unlink()
    assert_frame_equal(load(folder).get_candidates(), expected)
    assert len(load(folder).get_results("p_bert")) == 3


@pytest.mark.parametrize("variant", [None, "bm25", "p_bert.gz"])
def test_unknown_runs(folder, variant):
    with pytest.raises(ValueError, match=f"variant must be one of bm25base_p, p_bert, not {variant!r}"):
        load(folder).get_results(variant)


def test_a_run_that_is_not_there(folder):
    with pytest.raises(FileNotFoundError, match=r"run-bm25base_p \(or run-bm25base_p\.gz\) is neither in"):
        load(folder).get_results("bm25base_p")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("queries.tsv", "q1\twho\n", "qid 'q2' is judged in .*qrels but is not in .*queries.tsv; get the files again"),
        ("queries.tsv", "q1 who\n", "queries.tsv, line 1: 1 fields with tabs between, not the 2 of 'qid query'"),
        ("passages.jsonl", '{"docno": "d1", "text": "t"}', "docno 'd3' is judged in .*qrels but is not in .*passages"),
        ("passages.jsonl", '{"docno": "d1"}', "passages.jsonl, line 1: no string 'text'; give objects with docno and"),
        ("qrels", "q1 0 d1 x", "qrels, line 1: label 'x' is not a whole number"),
    ],
)
def test_damaged_files(folder, name, content, message):
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        load(folder).get_candidates()


def test_without_a_folder_nothing_is_downloaded():
    with pytest.raises(FileNotFoundError, match=r"queries\.tsv .* is nowhere, as no folder is named; get the files of"):
        pt.get_dataset("as2:dl19").get_topics()


def test_it_is_a_value(folder):
    dataset = load(str(folder))
    assert repr(dataset) == f"pt.get_dataset('as2:dl19', folder={str(folder)!r})"
    assert eval(repr(dataset)) == pickle.loads(pickle.dumps(dataset)) == dataset != pt.get_dataset("as2:dl19")
    assert pickle.loads(pickle.dumps(dataset)).get_candidates().equals(dataset.get_candidates())
