"""Distant supervision (DC-8) and negatives: by hand, against plain substring search, and on real data."""

import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ir_measures import AP, Success

from pyterrier_cascade import BM25, answer_qrels, sampled_negatives

CORPUS = pd.DataFrame(
    [
        ("d1", "Ada Lovelace wrote the notes in 1843 (see Note G)."),
        ("d2", "The party was in Zürich; it cost $1,000."),
        ("d3", "ADA  LOVELACE, 1815\u20131852"),
        ("d4", "Ships sail. The ship's art. Caf\u00e9"),
    ],
    columns=["docno", "text"],
)


def frame(columns: str, *rows: tuple) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=columns.split())


def answers(*rows: tuple) -> pd.DataFrame:
    return frame("qid answer", *rows)


def candidates(**lists: str) -> pd.DataFrame:
    """Candidates by the numbers of their documents: ``candidates(a="13")``."""
    rows = [(qid, f"query {qid}", f"d{number}") for qid, numbers in lists.items() for number in numbers]
    return frame("qid query docno", *rows).merge(CORPUS, how="left")


def positive(qrels: pd.DataFrame) -> dict[str, str]:
    """The documents with label 1 for each question, as digits."""
    assert set(qrels["label"]) <= {0, 1} and not qrels.duplicated(["qid", "docno"]).any()
    right = qrels[qrels["label"] == 1]
    return {qid: "".join(sorted(right.loc[right["qid"] == qid, "docno"].str[1:])) for qid in qrels["qid"].unique()}


@pytest.mark.parametrize(
    "answer, exact, normalised",
    [
        ("Ada Lovelace", "1", "13"),
        ("ada lovelace", "", "13"),
        ("Lovelace wrote", "1", "1"),
        ("Ada wrote", "", ""),
        ("art", "24", "4"),  # the exact span is a plain substring, as the paper says: part of "party" too
        ("Ship", "4", "4"),
        ("ship's", "4", "4"),
        ("ship\u2019s", "", "4"),
        ("Zu\u0308rich", "", "2"),
        ("Zurich", "", ""),
        ("Cafe", "", ""),
        ("Z\u00fcrich", "2", "2"),
        ("$1,000", "2", "2"),
        ("1,000.", "2", "2"),
        ("1 000", "", "2"),
        ("000", "2", "2"),
        ("18", "13", ""),
        ("1815-1852", "", "3"),
        ("(see Note G).", "1", "1"),
        (".*", "", None),
        ("[A-Z]+", "", ""),
        ("ADA  LOVELACE", "3", "13"),
        ("1843 (see Note G).\u00ffThe party", "", ""),
        ("G). The party", "", ""),
    ],
)
def test_one_answer(answer, exact, normalised):
    for match, expected in (("exact", exact), ("normalised", normalised)):
        if expected is not None:
            # A question that all documents are candidates for gives the same as the corpus.
            for documents in (CORPUS, candidates(a="1234"), candidates(a="4321").sample(frac=1, random_state=1)):
                assert positive(answer_qrels(documents, answers(("a", answer)), match)) == {"a": expected}


def test_candidates_are_judged_for_their_own_question():
    found = answer_qrels(candidates(b="41", a="12"), answers(("a", "wrote"), ("a", "cost"), ("b", "cost"), ("c", "no")))
    # "c" was asked and nothing was retrieved: the first document is judged, so that c counts in an average.
    expected = frame("qid docno label", ("a", "d1", 1), ("a", "d2", 1), ("b", "d4", 0), ("b", "d1", 0), ("c", "d4", 0))
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert found["label"].dtype == np.int64


def test_a_corpus_gives_the_positive_rows_and_one_row_for_any_other_question():
    found = answer_qrels(CORPUS, answers(("a", "yes"), ("b", "Ships"), ("b", "Ada"), ("b", "wrote")))
    assert found.to_numpy().tolist() == [["a", "d1", 0], ["b", "d1", 1], ["b", "d4", 1]]


def test_all_questions_count_in_an_average():
    run = candidates(a="12", b="34").assign(score=[2.0, 1.0, 2.0, 1.0])
    topics = frame("qid query", *((qid, f"query {qid}") for qid in "abcd"))
    right = answers(("a", "cost"), ("b", "nothing"), ("c", "Ships"), ("d", "nowhere"))
    for documents in (run, CORPUS):
        qrels = answer_qrels(documents, right)
        table = pt.Experiment([pt.Transformer.from_df(run)], topics, qrels, [Success @ 2, Success @ 1, AP])
        assert table[["Success@2", "Success@1", "AP"]].to_numpy().tolist() == [[1 / 4, 0, 1 / 8]]


def test_a_document_in_passages_is_positive_if_one_of_them_is():
    passages = candidates(a="111").assign(text=["nothing", "Ada", "nothing"])
    assert answer_qrels(passages, answers(("a", "Ada"))).to_numpy().tolist() == [["a", "d1", 1]]


def test_empty_answers_are_passed_over():
    right = answers(("a", ""), ("a", "Ada"), ("a", "  "), ("a", "%"))
    assert positive(answer_qrels(CORPUS, right)) == {"a": "1"}
    assert positive(answer_qrels(CORPUS, right, "normalised")) == {"a": "13"}


# pandas 2 takes the last text for another one, when it factorizes them.
@example(texts=["\U0001f600", "", "bb\ud800bb", "b\ud800\ud800"], spans=["bb\ud800"])
@settings(max_examples=50)
@given(
    st.lists(st.text("ab \u00e9\u00ff\U0001f600\ud800", max_size=8), min_size=1, max_size=5),
    st.lists(st.text("ab \u00e9\u00ff\U0001f600\ud800", max_size=3).filter(str.strip), min_size=1, max_size=3),
)
def test_exact_is_substring_search(texts, spans):
    # As objects, because the strings of pandas 3 cannot hold half of a surrogate pair.
    corpus = pd.DataFrame({"docno": [f"d{number}" for number in range(len(texts))], "text": texts}, dtype=object)
    right = pd.DataFrame({"qid": ["a"] * len(spans), "answer": spans}, dtype=object)
    expected = "".join(str(number) for number, text in enumerate(texts) if any(span in text for span in spans))
    for documents in (corpus, corpus.assign(qid="a")):
        assert positive(answer_qrels(documents, right)) == {"a": expected}


@pytest.mark.parametrize(
    "documents, right, message",
    [
        (
            candidates(a="12", b="1", c="1"),
            answers(("b", "Ada")),
            "2 of 3 questions have no answer, or only empty ones: the first is 'a' (the answers begin with 'b'); "
            "leave such questions out",
        ),
        (
            CORPUS,
            answers(("a", "Ada"), ("b", " "), ("b", "")),
            "1 of 2 questions have no answer, or only empty ones: the first is 'b' (the answers begin with 'a'); "
            "leave such questions out",
        ),
        (
            candidates(a="12").assign(qid=1),
            answers(("1", "Ada")),
            "1 of 2 questions have no answer, or only empty ones: the first is 1 (the answers begin with '1'); "
            "leave such questions out",
        ),
        (
            CORPUS.assign(text=["x", None, np.nan, "y"]),
            answers(("a", "Ada")),
            "2 of 4 documents have no text, the first in row 1; nobody can tell whether they contain an answer, so "
            "leave them out",
        ),
        (
            CORPUS.assign(docno=["x", "y", "z", None]),
            answers(("a", "Ada")),
            "1 of 4 documents have no docno, the first in row 3; nobody can tell whether they contain an answer, so "
            "leave them out",
        ),
        (CORPUS, answers(("a", None)), "answers must be strings, but qid 'a' has None (NoneType)"),
        (CORPUS.head(0), answers(("a", "Ada")), "there are no documents to judge by"),
        (CORPUS, answers(), "there are no answers to judge by"),
    ],
)
def test_what_is_refused(documents, right, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        answer_qrels(documents, right)


@pytest.mark.parametrize(
    "documents, right, missing",
    [(CORPUS[["docno"]], answers(("a", "b")), "text"), (CORPUS, frame("qid", "a"), "answer")],
)
def test_missing_columns(documents, right, missing):
    with pytest.raises(pt.validate.InputValidationError, match=missing):
        answer_qrels(documents, right)


def test_unknown_match():
    with pytest.raises(ValueError, match="match must be one of exact, normalised, not 'fuzzy'"):
        answer_qrels(CORPUS, answers(("a", "Ada")), "fuzzy")


# Lists of 20 of 60 documents; of question q<n> those numbered n, n+1 and n+2 are positive, and one outside of the list.
MANY = frame("docno text", *((f"d{number}", f"text {number}") for number in range(60)))
LISTS = frame("qid query docno", *((f"q{q}", f"query {q}", f"d{d}") for q in range(8) for d in range(q, q + 20)))
RIGHT = frame("qid docno label", *((f"q{q}", f"d{d}", 1) for q in range(8) for d in (q, q + 1, q + 2, q + 40)))


@pytest.mark.parametrize("kind, hard", [("hard", 6), ("random", 0), (0.5, 3), (1, 6), (0.0, 0)])
@pytest.mark.parametrize("positives", [None, 2])
def test_negatives(kind, hard, positives):
    found = sampled_negatives(LISTS, MANY, RIGHT, kind=kind, negatives=6, positives=positives, seed=3)
    assert list(found.columns) == ["qid", "query", "docno", "text", "label"] and found.index.is_unique
    assert not found.duplicated(["qid", "docno"]).any()
    assert (found["text"] == "text " + found["docno"].str[1:]).all()
    assert (found["query"] == "query " + found["qid"].str[1:]).all()
    assert found.groupby("qid")["label"].sum().tolist() == [3 if positives is None else positives] * 8
    right = found.merge(RIGHT[["qid", "docno"]])
    assert (right["label"] == 1).all() and (right["label"].sum() == found["label"].sum())
    wrong = found[found["label"] == 0]
    assert wrong.groupby("qid").size().tolist() == [6] * 8
    listed = wrong.merge(LISTS).groupby("qid").size().reindex(wrong["qid"].unique(), fill_value=0)
    assert (listed >= hard).all()
    if hard < 6:
        assert listed.sum() < len(wrong)
    else:
        assert (listed == 6).all()


def test_a_share_that_is_no_number_of_negatives_holds_on_average():
    """A quarter of two negatives, over 2,000 questions: 1,000 hard ones (one standard deviation is 22)."""
    lists = frame("qid query docno", *((f"q{q}", "query", f"d{d}") for q in range(2000) for d in (0, 1, 2)))
    qrels = lists[lists["docno"] == "d0"].assign(label=1)
    corpus = frame("docno text", *((f"d{number}", "text") for number in range(10_000)))
    found = sampled_negatives(lists, corpus, qrels, kind=0.25, negatives=2)
    assert 900 < found["docno"].isin(["d1", "d2"]).sum() < 1100


def test_everything_is_drawn_equally_often():
    """Of 60 documents 4 are positive: each of 56 is drawn 3,000/56 = 54 times (one standard deviation is 7)."""
    lists = pd.concat([LISTS.head(20).assign(qid=f"{n}") for n in range(300)])
    qrels = pd.concat([RIGHT.head(4).assign(qid=f"{n}") for n in range(300)])
    drawn = sampled_negatives(lists, MANY, qrels, kind="random").query("label == 0")["docno"].value_counts()
    assert len(drawn) == 56 and drawn.sum() == 3000 and drawn.min() > 25 and drawn.max() < 85


def test_the_seed_decides():
    def draw(seed):
        return sampled_negatives(LISTS, MANY, RIGHT, kind=0.5, seed=seed)

    pd.testing.assert_frame_equal(draw(1), draw(1))
    assert not draw(1).equals(draw(2))


def test_what_there_is_not_enough_of():
    """Question q0 has 3 positives and 2 other documents in its list; the corpus has 6 that are not positive."""
    lists, corpus = LISTS.head(5), MANY.head(9)
    hard = sampled_negatives(lists, corpus, RIGHT, kind="hard", negatives=4)
    assert sorted(hard.loc[hard["label"] == 0, "docno"]) == ["d3", "d4"]
    random = sampled_negatives(lists, corpus, RIGHT, kind="random", negatives=50)
    assert sorted(random.loc[random["label"] == 0, "docno"]) == ["d3", "d4", "d5", "d6", "d7", "d8"]


def test_questions_without_a_positive_in_their_list_are_left_out():
    lists = LISTS[~LISTS["docno"].isin(["d0", "d1", "d2"])]
    assert set(sampled_negatives(lists, MANY, RIGHT)["qid"]) == {f"q{q}" for q in range(1, 8)}


def test_nothing_is_changed_and_repeated_rows_count_once():
    lists = pd.concat([LISTS, LISTS.head(3)])
    before = [frame.copy() for frame in (lists, MANY, RIGHT)]
    found = sampled_negatives(lists, MANY, RIGHT)
    assert found["label"].sum() == 24
    for now, old in zip((lists, MANY, RIGHT), before, strict=True):
        pd.testing.assert_frame_equal(now, old)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"kind": "soft"}, "kind='soft'; use 'hard', 'random', or the share of hard negatives from 0 to 1"),
        ({"kind": 1.5}, "kind=1.5; use 'hard', 'random', or the share of hard negatives from 0 to 1"),
        ({"kind": None}, "kind=None; use 'hard', 'random', or the share of hard negatives from 0 to 1"),
        ({"negatives": 0}, "negatives=0; use 1 or more"),
        ({"positives": 0}, "positives=0; use 1 or more"),
        ({"qrels": RIGHT.assign(label=0)}, "no positive among the 160 results; are these the right qrels?"),
        (
            {"corpus": MANY.head(20)},
            "7 documents of the results are not in the corpus, such as 'd20'; are both of the same collection?",
        ),
        ({"corpus": pd.concat([MANY, MANY.head(1)])}, "docno 'd0' occurs more than once in the corpus"),
    ],
)
def test_what_sampling_refuses(change, message):
    arguments = {"results": LISTS, "corpus": MANY, "qrels": RIGHT} | change
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        sampled_negatives(**arguments)


def test_on_squad(shared_data):
    """Every gold paragraph contains its answer exactly; by words all but one answer, which is part of a word."""
    dataset = pt.get_dataset("as2:squad-open/dev-v1.1", folder=shared_data)
    corpus = pd.DataFrame(dataset.get_corpus_iter(verbose=False))
    gold, right = dataset.get_qrels(), dataset.get_answers()
    pairs = gold.drop(columns="label").merge(corpus)
    assert answer_qrels(pairs, right)["label"].mean() == 1
    assert answer_qrels(pairs, right, "normalised")["label"].sum() == 10569

    topics = dataset.get_topics().sample(100, random_state=0)
    results = (BM25.from_frame(corpus) % 80)(topics)
    asked = right[right["qid"].isin(topics["qid"])]
    qrels = answer_qrels(corpus, asked)
    assert qrels["qid"].nunique() == 100
    for kind in ("hard", "random"):
        found = sampled_negatives(results, corpus, qrels, kind=kind, negatives=8)
        judged = found.merge(asked)
        contains = [answer in text for answer, text in zip(judged["answer"], judged["text"], strict=True)]
        contains = judged.assign(contains=contains).groupby(["qid", "docno"], sort=False)["contains"].max()
        assert contains.tolist() == (found["label"] == 1).tolist()
