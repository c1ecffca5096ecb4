import gzip
import json

import pandas as pd
import pyterrier as pt
import pytest
from pandas.testing import assert_frame_equal

from tests.datasets.as2_files import trecqa_text

SPLITS = ("train", "dev", "test")
COUNTS = {  # TA-14: 1,229/53,417 for training, clean 65/1,117 and 68/1,442; the raw sets are the literature's
    ("raw", "train"): (1229, 53417, 6410),
    ("raw", "dev"): (82, 1148, 222),
    ("raw", "test"): (100, 1517, 284),
    ("no_all_minus", "train"): (1229, 53417, 6410),
    ("no_all_minus", "dev"): (78, 1134, 222),
    ("no_all_minus", "test"): (89, 1478, 284),
    ("clean", "train"): (1161, 53310, 6303),
    ("clean", "dev"): (65, 1117, 205),
    ("clean", "test"): (68, 1442, 248),
}


def load(folder, mode, split):
    return pt.get_dataset(f"as2:trecqa/{mode}/{split}", folder=folder)


@pytest.mark.parametrize("mode, split", COUNTS)
def test_counts(shared_data, mode, split):
    dataset = load(shared_data, mode, split)
    info = dataset.get_info()
    assert (info["n_questions"], info["n_pairs"], info["n_positive"]) == COUNTS[mode, split]
    assert (info["mode"], info["split"]) == (mode, split)
    qrels = dataset.get_qrels()
    assert not qrels.duplicated(["qid", "docno"]).any()
    assert qrels["label"].dtype == "int64"


def test_questions_without_candidates_are_topics_of_raw_only(shared_data):
    lonely = {}
    for split in SPLITS:
        dataset = load(shared_data, "raw", split)
        lonely[split] = len(set(dataset.get_topics()["qid"]) - set(dataset.get_candidates()["qid"]))
        kept = load(shared_data, "no_all_minus", split)
        assert set(kept.get_topics()["qid"]) == set(kept.get_candidates()["qid"])
    assert lonely == {"train": 0, "dev": 1, "test": 5}


def test_clean_test_equals_the_distributed_filtered_file(shared_data):
    with gzip.open(shared_data / "trecqa" / "test-filtered.jsonl.gz", "rt") as lines:
        records = [json.loads(line) for line in lines]
    reference = [(r["question"], c["sentence"], c["label"]) for r in records for c in r["candidates"]]
    candidates = load(shared_data, "clean", "test").get_candidates()
    assert candidates[["query", "text", "label"]].apply(tuple, axis=1).tolist() == reference


def test_dev_without_the_length_limit_would_be_another_set(shared_data):
    """dev-filtered has 69 questions and 1,343 pairs; the papers' 65 and 1,117 need the limit, applied first."""
    with gzip.open(shared_data / "trecqa" / "dev-filtered.jsonl.gz", "rt") as lines:
        assert sum(len(json.loads(line)["candidates"]) for line in lines) == 1343
    assert load(shared_data, "raw", "dev").get_candidates()["text"].str.split().str.len().max() == 40
    assert load(shared_data, "raw", "train").get_candidates()["text"].str.split().str.len().max() > 40


def test_questions_asked_twice_stay_two(shared_data):
    topics = load(shared_data, "raw", "train").get_topics()
    assert topics["qid"].tolist() == [f"train-{n:04d}" for n in range(1, 1230)]
    twice = topics[topics["query"].duplicated(keep=False)].sort_values(["query", "qid"])
    assert twice["qid"].tolist() == ["train-0825", "train-1189", "train-0778", "train-1125", "train-0037", "train-0795"]


def test_repeated_sentences_of_a_question_have_their_own_docno_and_label(shared_data):
    candidates = load(shared_data, "raw", "train").get_candidates()
    repeated = candidates[candidates["docno"].str.contains("-")]
    assert len(repeated) == candidates.duplicated(["qid", "text"]).sum() == 84
    labels = candidates.groupby(["qid", "text"])["label"].nunique()
    assert labels[labels > 1].index.get_level_values("qid").nunique() == 2


def test_corpus_is_the_same_for_every_split_and_holds_every_candidate(shared_data):
    corpora = {split: list(load(shared_data, "clean", split).get_corpus_iter(verbose=False)) for split in SPLITS}
    assert corpora["train"] == corpora["dev"] == corpora["test"]
    texts = {document["docno"]: document["text"] for document in corpora["test"]}
    assert len(texts) == len(corpora["test"]) == 50497
    assert len(set(texts.values())) == 50427
    for split in SPLITS:
        candidates = load(shared_data, "raw", split).get_candidates()
        assert candidates["docno"].map(texts).tolist() == candidates["text"].tolist()
    assert any("<num>" in text for text in texts.values())


QUESTIONS = [
    ("who ?", [("same", 1), ("other", 0), ("same", 0)]),
    ("none ?", []),
    ("who ?", [("same", 1), ("a\u2028b", 0)]),
    ("long ?", [("w " * 41, 1), ("w " * 40, 0)]),
]


@pytest.fixture
def folder(tmp_path):
    for name in ("train-all", "dev", "test"):
        (tmp_path / f"{name}.jsonl").write_text(trecqa_text(*QUESTIONS))
    return tmp_path


def test_small_file(folder):
    candidates = load(folder, "raw", "test").get_candidates()
    assert candidates["qid"].tolist() == ["test-0001"] * 3 + ["test-0003"] * 2 + ["test-0004"] * 2
    first, _, again = candidates["docno"][:3]
    assert again == f"{first}-2" and candidates["docno"][3] == first
    assert candidates["text"][4] == "a\u2028b"
    assert load(folder, "raw", "test").get_topics()["query"].tolist() == ["who ?", "none ?", "who ?", "long ?"]
    assert load(folder, "raw", "dev").get_candidates()["qid"].tolist()[-1] == "dev-0004"
    assert len(load(folder, "raw", "dev").get_candidates()) == 6


def test_a_docno_depends_on_the_sentence_alone(folder):
    before = load(folder, "raw", "test").get_candidates()
    (folder / "test.jsonl").write_text(trecqa_text(*QUESTIONS[::-1]))
    after = load(folder, "raw", "test").get_candidates()
    key = ["text", "docno"]
    assert_frame_equal(*(frame[key].sort_values(key, ignore_index=True) for frame in (before, after)))


def test_no_question_has_a_candidate(tmp_path):
    (tmp_path / "test.jsonl").write_text(trecqa_text(("who ?", [])))
    for mode, n in (("raw", 1), ("clean", 0)):
        dataset = load(tmp_path, mode, "test")
        assert (len(dataset.get_topics()), len(dataset.get_qrels())) == (n, 0)
        assert isinstance(dataset.get_candidates(), pd.DataFrame)


GOOD = trecqa_text(("who ?", [("a", 1)]))


@pytest.mark.parametrize(
    "text, message",
    [
        (GOOD + GOOD[:17], "line 2: not JSON (Unterminated string starting at at column 14)"),
        (GOOD + "\n" + GOOD, "line 2: not JSON (Expecting value at column 1)"),
        (
            '{"question": "who ?"}',
            "line 1: not a question with candidates, each a sentence and a label (KeyError('candidates'))",
        ),
        (
            '["who ?"]',
            "line 1: not a question with candidates, each a sentence and a label "
            "(TypeError('list indices must be integers or slices, not str'))",
        ),
        (trecqa_text(("who ?", [("a", "1")])), "line 1: label '1' is neither 0 nor 1"),
        (trecqa_text(("who ?", [("a", 1), ("b", 3)])), "line 1: label 3 is neither 0 nor 1"),
        (trecqa_text(("who ?", [(None, 1)])), "line 1: question and sentences should be text"),
    ],
)
def test_damaged_file(tmp_path, text, message):
    path = tmp_path / "test.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError) as err:
        load(tmp_path, "raw", "test").get_candidates()
    assert str(err.value).startswith(f"{path}, {message}")
