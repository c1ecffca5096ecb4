import json
import pickle
from statistics import median

import pyterrier as pt
import pytest
from ir_measures import R, nDCG

from pyterrier_cascade import BM25
from pyterrier_cascade.datasets import SciFactFolder

CLAIMS = [{"_id": str(n), "text": f"claim {n}", "metadata": {}} for n in range(4)]


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def folder(tmp_path):
    """Three abstracts and four claims: one for training, two for testing, and one without a judgement."""
    (tmp_path / "corpus.jsonl").write_text(lines({"docno": d, "text": f"Title. Text {d}"} for d in "abc"))
    (tmp_path / "queries.jsonl").write_text(lines(CLAIMS))
    (tmp_path / "qrels-train.tsv").write_text("query-id\tcorpus-id\tscore\n0\ta\t1\n0\tb\t1\n")
    (tmp_path / "qrels-test.tsv").write_text("3\t 0 c\t1\n1\t 0 a\t1")
    return tmp_path


def load(folder, split="test"):
    return pt.get_dataset(f"as2:scifact/{split}", folder=folder)


@pytest.mark.parametrize(("split", "n_claims", "n_judgements"), [("test", 300, 339), ("train", 809, 919)])
def test_counts(shared_data, split, n_claims, n_judgements):
    dataset = load(shared_data, split)
    info = dataset.get_info()
    assert (info["n_questions"], info["n_pairs"], info["n_positive"]) == (n_claims, n_judgements, n_judgements)
    assert (info["mode"], info["split"]) == ("raw", split)
    corpus = {document["docno"]: document["text"] for document in dataset.get_corpus_iter(verbose=False)}
    assert len(corpus) == 5183
    assert median(len(text.split()) for text in corpus.values()) == 198
    qrels = dataset.get_qrels()
    assert set(qrels["docno"]) <= set(corpus) and set(qrels["qid"]) == set(dataset.get_topics()["qid"])


def test_no_claim_is_in_both_splits(shared_data):
    train, test = (set(load(shared_data, split).get_topics()["qid"]) for split in ("train", "test"))
    assert not train & test


def test_bm25_finds_the_abstracts(shared_data):
    """Without a stemmer: nDCG@10 .663 and R@100 .876."""
    dataset = load(shared_data)
    bm25 = BM25.from_docs(dataset.get_corpus_iter(verbose=False)) % 100
    found = pt.Evaluate(bm25(dataset.get_topics()), dataset.get_qrels(), [nDCG @ 10, R @ 100])
    assert found["nDCG@10"] == pytest.approx(0.663, abs=0.01) and found["R@100"] == pytest.approx(0.876, abs=0.01)


def test_small_files(folder):
    test, train = load(folder), load(folder, "train")
    assert test.get_topics().values.tolist() == [["1", "claim 1"], ["3", "claim 3"]]
    assert test.get_qrels().values.tolist() == [["3", "c", 1], ["1", "a", 1]]
    assert train.get_topics()["qid"].tolist() == ["0"]
    assert train.get_qrels().values.tolist() == [["0", "a", 1], ["0", "b", 1]]
    corpora = [list(dataset.get_corpus_iter(verbose=False)) for dataset in (test, train)]
    assert corpora[0] == corpora[1] == [{"docno": d, "text": f"Title. Text {d}"} for d in "abc"]


def test_the_files_as_beir_distributes_them(folder):
    expected = list(load(folder).get_corpus_iter(verbose=False))
    records = [{"_id": d, "title": "Title.", "text": f"Text {d}", "metadata": {}} for d in "abc"]
    (folder / "corpus.jsonl").write_text(lines(records))
    (folder / "qrels").mkdir()
    (folder / "qrels-test.tsv").unlink()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n3\tc\t1\n1\ta\t1\n")
    assert list(load(folder).get_corpus_iter(verbose=False)) == expected
    assert load(folder).get_qrels().values.tolist() == [["3", "c", 1], ["1", "a", 1]]


def test_there_are_no_candidates(folder):
    with pytest.raises(NotImplementedError, match="as2:scifact/test has no candidate lists: retrieve them"):
        load(folder).get_candidates()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.jsonl", '{"docno"\n', r"corpus\.jsonl, line 1: not JSON"),
        (
            "corpus.jsonl",
            '{"text": "t"}\n',
            r"corpus\.jsonl, line 1: not an object with an _id \(or docno\) and a text",
        ),
        ("queries.jsonl", "[]\n", r"queries\.jsonl, line 1: not an object with an _id"),
        ("qrels-test.tsv", "1\ta\n", r"qrels-test\.tsv, line 1: 2 fields, not the 3 of 'query-id corpus-id score'"),
        ("qrels-test.tsv", "1\t0\ta\tyes\n", r"qrels-test\.tsv, line 1: label 'yes' is not a whole number"),
    ],
)
def test_damaged_files(folder, name, content, message):
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        load(folder).get_corpus_iter(verbose=False)


def test_without_a_folder_nothing_is_downloaded():
    with pytest.raises(FileNotFoundError, match=r"corpus\.jsonl .* is nowhere, as no folder is named; unpack https"):
        pt.get_dataset("as2:scifact/test").get_topics()


def test_the_split_is_part_of_the_name():
    with pytest.raises(ValueError, match="split must be one of train, test, not 'dev'"):
        SciFactFolder("dev")
    with pytest.raises(TypeError, match="as2:scifact/test has no setting 'split'"):
        pt.get_dataset("as2:scifact/test", split="train")


def test_it_is_a_value(folder):
    dataset = load(str(folder), "train")
    assert repr(dataset) == f"pt.get_dataset('as2:scifact/train', folder={str(folder)!r})"
    assert eval(repr(dataset)) == pickle.loads(pickle.dumps(dataset)) == dataset != load(str(folder))
