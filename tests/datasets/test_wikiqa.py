import csv
import gzip
import io

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP, RR, iter_calc

from tests.datasets.as2_files import wikiqa_text

SPLITS = ("train", "dev", "test")
COUNTS = {  # TA-13; clean dev is printed as 121 questions, which cannot be
    ("raw", "train"): (2118, 20360, 1040),
    ("raw", "dev"): (296, 2733, 140),
    ("raw", "test"): (633, 6165, 293),
    ("no_all_minus", "train"): (873, 8672, 1040),
    ("no_all_minus", "dev"): (126, 1130, 140),
    ("no_all_minus", "test"): (243, 2351, 293),
    ("clean", "train"): (857, 8651, 1019),
    ("clean", "dev"): (122, 1126, 136),
    ("clean", "test"): (237, 2341, 283),
}


def load(folder, mode, split):
    return pt.get_dataset(f"as2:wikiqa/{mode}/{split}", folder=folder)


@pytest.mark.parametrize("mode, split", COUNTS)
def test_counts(shared_data, mode, split):
    dataset = load(shared_data, mode, split)
    info = dataset.get_info()
    assert (info["n_questions"], info["n_pairs"], info["n_positive"]) == COUNTS[mode, split]
    assert (info["mode"], info["split"]) == (mode, split)
    topics, qrels, candidates = dataset.get_topics(), dataset.get_qrels(), dataset.get_candidates()
    assert list(topics.columns) == ["qid", "query"]
    assert list(qrels.columns) == ["qid", "docno", "label"]
    assert list(candidates.columns) == ["qid", "query", "docno", "text", "label"]
    assert topics["qid"].tolist() == candidates["qid"].unique().tolist()
    assert not qrels.duplicated(["qid", "docno"]).any()
    assert qrels["label"].dtype == np.int64 and set(qrels["label"]) == {0, 1}


@pytest.mark.parametrize("name, mode", [("train", "raw"), ("dev-filtered", "clean"), ("test-filtered", "clean")])
def test_equals_the_distributed_references(shared_data, name, mode):
    split = name.split("-")[0]
    candidates = load(shared_data, "raw", split).get_candidates()
    candidates["question"] = pd.factorize(candidates["qid"])[0] + 1
    candidates["sentence"] = candidates.groupby("qid", sort=False).cumcount()
    kept = candidates.merge(load(shared_data, mode, split).get_qrels(), on=["qid", "docno", "label"])
    with gzip.open(shared_data / "wikiqa" / f"WikiQA-{name}.ref.gz", "rt") as lines:
        reference = [tuple(map(int, line.split())) for line in lines]
    ours = kept[["question", "sentence", "label"]].itertuples(index=False, name=None)
    assert [(q, 0, s, label) for q, s, label in ours] == reference


def test_corpus_is_the_same_for_every_split_and_holds_every_candidate(shared_data):
    corpora = {split: list(load(shared_data, "clean", split).get_corpus_iter(verbose=False)) for split in SPLITS}
    assert corpora["train"] == corpora["dev"] == corpora["test"]
    texts = {document["docno"]: document["text"] for document in corpora["test"]}
    assert len(texts) == len(corpora["test"]) == 26270
    for split in SPLITS:
        candidates = load(shared_data, "raw", split).get_candidates()
        assert candidates["docno"].map(texts).tolist() == candidates["text"].tolist()


@pytest.mark.parametrize("split, n", [("train", 2), ("dev", 1), ("test", 5)])
def test_repeated_sentences_stay_and_are_wrong_answers(shared_data, split, n):
    candidates = load(shared_data, "raw", split).get_candidates()
    repeated = candidates[candidates.duplicated(["qid", "text"])]
    assert len(repeated) == n
    assert repeated["label"].tolist() == [0] * n


def test_quotes_are_text(shared_data):
    losses = {}
    for split in SPLITS:
        with gzip.open(shared_data / "wikiqa" / f"WikiQA-{split}.tsv.gz") as file:
            data = file.read()
        losses[split] = COUNTS["raw", split][1] - len(pd.read_csv(io.BytesIO(data), sep="\t"))
        plain = pd.read_csv(io.BytesIO(data), sep="\t", quoting=csv.QUOTE_NONE, dtype=str, keep_default_na=False)
        assert load(shared_data, "raw", split).get_candidates()["text"].tolist() == plain["Sentence"].tolist()
    assert losses == {"train": 13, "dev": 0, "test": 49}


def test_questions_with_only_correct_candidates_score_one_for_any_ranking(shared_data):
    wide, clean = (load(shared_data, mode, "test") for mode in ("no_all_minus", "clean"))
    run = wide.get_candidates().assign(score=np.random.default_rng(0).random(2351))
    names = {"qid": "query_id", "docno": "doc_id", "label": "relevance"}
    scores = pd.DataFrame(
        iter_calc([AP, RR], wide.get_qrels().rename(columns=names), run.rename(columns=names)),
        columns=["qid", "measure", "value"],
    )
    is_clean = scores["qid"].isin(clean.get_topics()["qid"])
    assert scores["value"][~is_clean].tolist() == [1.0] * 12
    means = {m: (scores["value"][rows].mean(), scores["value"][rows & is_clean].mean()) for m, rows in by(scores)}
    assert len(means) == 2
    assert all(all_questions > clean_questions for all_questions, clean_questions in means.values())


def by(scores):
    return [(measure, scores["measure"] == measure) for measure in scores["measure"].unique()]


def test_small_file(wikiqa_folder):
    candidates = load(wikiqa_folder, "raw", "dev").get_candidates()
    assert candidates["text"].tolist() == ['the "first', "second", "third", 'fourth" one\u2028here', "fifth"]
    assert candidates["qid"].tolist() == ["Q-a", "Q-a", "Q-p", "Q-n", "Q-n"]
    assert candidates["docno"].tolist() == ["D1-0", "D1-1", "D1-2", "D1-3", "D1-4"]
    assert candidates["label"].tolist() == [1, 0, 1, 0, 0]
    assert load(wikiqa_folder, "no_all_minus", "dev").get_topics()["qid"].tolist() == ["Q-a", "Q-p"]
    assert load(wikiqa_folder, "clean", "dev").get_topics().values.tolist() == [["Q-a", "who is a ?"]]


def test_columns_may_come_in_another_order(tmp_path):
    text = "Label\tSentence\tSentenceID\tQuestion\tQuestionID\n1\tyes\ts\tq ?\tQ1\n"
    (tmp_path / "WikiQA-test.tsv").write_text(text)
    candidates = load(tmp_path, "raw", "test").get_candidates()
    assert candidates.values.tolist() == [["Q1", "q ?", "s", "yes", 1]]


GOOD = wikiqa_text(("a", "one", 1), ("a", "two", 0))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", ": the header names no column QuestionID, Question, SentenceID, Sentence, Label; give "),
        ("Question\tLabel\n", ", line 1: the header names no column QuestionID, SentenceID, Sentence; give "),
        (GOOD + "Q-b\twho", ", line 4: 2 fields with tabs between, but the header has 7"),
        (GOOD[:-3], ", line 3: label '' is neither 0 nor 1"),
        (wikiqa_text(("a", "one", 2)), ", line 2: label '2' is neither 0 nor 1"),
        (GOOD + GOOD.split("\r\n")[1], ", line 4: question Q-a has sentence D1-0 for the second time"),
    ],
)
def test_damaged_file(tmp_path, text, message):
    path = tmp_path / "WikiQA-test.tsv"
    path.write_bytes(text.encode())
    with pytest.raises(ValueError) as err:
        load(tmp_path, "raw", "test").get_candidates()
    assert str(err.value).startswith(f"{path}{message}")
