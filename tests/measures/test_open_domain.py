"""Measures of open-domain question answering (DC-20 to DC-24), by hand and beside ir-measures' own."""

import copy
import pickle
import re

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, Success

from pyterrier_cascade import EM, PBT, PTB, answer_qrels, em_drop


def results(lists: dict[str, str]) -> pd.DataFrame:
    """Results whose documents are single letters: ``{"q1": "abc"}``."""
    rows = [(q, f"query {q}", d, -float(i), i) for q, docs in lists.items() for i, d in enumerate(docs)]
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "score", "rank"])


QRELS = pd.DataFrame(
    [("q1", "a", 1), ("q1", "b", 1), ("q2", "c", 1), ("q2", "a", 0), ("q3", "a", 0), ("q4", "b", 1)],
    columns=["qid", "docno", "label"],
)
TOPICS = pd.DataFrame([(f"q{n}", f"query q{n}") for n in (1, 2, 3, 4)], columns=["qid", "query"])
# q1: both answering documents among our first 2, none among the first 2 of the others; q2: the other way round;
# q3: no document answers; q4: neither side found anything.
OURS = results({"q1": "abcd", "q2": "abcd", "q3": "abcd"})
OTHERS = results({"q1": "cdab", "q2": "cdab", "q3": "abcd"})


def per_query(measure, run=OURS, qrels=QRELS) -> dict[str, float]:
    found = ir_measures.iter_calc([measure], pt.model.to_ir_measures(qrels), pt.model.to_ir_measures(run))
    found = list(found)
    assert {metric.measure for metric in found} == {measure} and len({m.query_id for m in found}) == len(found)
    return {metric.query_id: metric.value for metric in found}


def mean(measure, run=OURS, qrels=QRELS) -> float:
    return ir_measures.calc_aggregate([measure], pt.model.to_ir_measures(qrels), pt.model.to_ir_measures(run))[measure]


@pytest.mark.parametrize(
    "cutoff, gained, lost",
    # Of four questions, those that neither side answers included.
    [(1, {"q1"}, {"q2"}), (2, {"q1"}, {"q2"}), (3, {"q1"}, set()), (4, set(), set()), (100, set(), set())],
)
def test_gained_and_lost(cutoff, gained, lost):
    """At 1 and 2 one question each way; at 3 the others have a but not b for q1, and our list has c for q2."""
    questions = ["q1", "q2", "q3", "q4"]
    assert per_query(PBT(bm25=OTHERS) @ cutoff) == {qid: float(qid in gained) for qid in questions}
    assert per_query(PTB(bm25=OTHERS) @ cutoff) == {qid: float(qid in lost) for qid in questions}
    assert mean(PBT(bm25=OTHERS) @ cutoff) == len(gained) / 4
    assert mean(PTB(bm25=OTHERS) @ cutoff) == len(lost) / 4


def test_a_question_counts_once_however_many_documents_it_gains():
    assert per_query(PBT(x=results({"q1": "cd"})) @ 2)["q1"] == 1
    assert per_query(PBT(x=results({"q1": "ca"})) @ 2)["q1"] == 1


def test_a_question_may_be_gained_and_lost_at_once():
    ours, others = results({"q1": "ac"}), results({"q1": "bc"})
    assert per_query(PBT(x=others) @ 2, ours)["q1"] == per_query(PTB(x=others) @ 2, ours)["q1"] == 1


def test_a_question_without_results_is_lost_and_not_forgotten():
    others = results({"q4": "b"})
    assert per_query(PTB(x=others) @ 1) == {"q1": 0, "q2": 0, "q3": 0, "q4": 1}
    assert per_query(PBT(x=others) @ 1, results({"q2": "c"})) == {"q1": 0, "q2": 1, "q3": 0, "q4": 0}


RUNS = st.dictionaries(
    st.sampled_from(["1", "2", "3"]),
    st.dictionaries(st.sampled_from("abcdé"), st.sampled_from([0.0, 0.5, 1.0, 1 + 1e-9]), min_size=1),
    min_size=1,
)


def frame(run) -> pd.DataFrame:
    rows = [(qid, docno, score) for qid, docs in run.items() for docno, score in docs.items()]
    return pd.DataFrame(rows, columns=["qid", "docno", "score"])


RIGHT = st.sets(st.tuples(st.sampled_from(["1", "2", "3"]), st.sampled_from("abcdé")), min_size=1)


@settings(max_examples=40)
@given(RUNS, RUNS, RIGHT, st.sampled_from([1, 2, 5]))
def test_properties(ours, theirs, right, cutoff):
    """The test vectors of DC-21 and DC-22; against results without any answer PBT is P@N (DC-20), ties included."""
    ours, theirs = frame(ours), frame(theirs)
    qrels = pd.DataFrame([(*pair, 1) for pair in right], columns=["qid", "docno", "label"])
    nothing = pd.DataFrame([(qid, "nothing", 1.0) for qid in "123"], columns=["qid", "docno", "score"])
    assert per_query(PBT(x=nothing) @ cutoff, ours, qrels) == per_query(Success @ cutoff, ours, qrels)
    assert not any(per_query(PBT(x=nothing) @ cutoff, nothing, qrels).values())
    if {*ours["qid"]} & {*qrels["qid"]} and {*theirs["qid"]} & {*qrels["qid"]}:
        assert per_query(PBT(x=theirs) @ cutoff, ours, qrels) == per_query(PTB(x=ours) @ cutoff, theirs, qrels)


def test_success_is_p_at_n_of_the_paper():
    """DC-20: of three questions, two have the answer in the first two documents; precision would be 3/6."""
    corpus = pd.DataFrame(
        [("d1", "in 1802 it was"), ("d2", "since 1802"), ("d3", "no year"), ("d4", "a ship")], columns=["docno", "text"]
    )
    run = pd.DataFrame(
        [("1", "d1", 3.0), ("1", "d2", 2.0), ("1", "d3", 1.0), ("2", "d3", 2.0), ("2", "d4", 1.0)],
        columns=["qid", "docno", "score"],
    )
    answers = pd.DataFrame([("1", "1802"), ("2", "ship"), ("2", "boat"), ("3", "1802")], columns=["qid", "answer"])
    for documents in (corpus, run.merge(corpus)):
        qrels = answer_qrels(documents, answers)
        assert per_query(Success @ 2, run, qrels) == {"1": 1, "2": 1, "3": 0}
        assert mean(Success @ 2, run, qrels) == pytest.approx(2 / 3)
        assert mean(Success @ 1, run, qrels) == pytest.approx(1 / 3)


MEASURES = [AP, Success @ 2, PBT(bm25=OTHERS) @ 2, PTB(bm25=OTHERS) @ 2, PBT(ours=OURS) @ 2]
NAMES = ["AP", "Success@2", "PBT(bm25)@2", "PTB(bm25)@2", "PBT(ours)@2"]


@pytest.mark.parametrize("batch_size", [None, 2])
def test_in_an_experiment_beside_others(batch_size):
    found = {name: pt.Transformer.from_df(frame) for name, frame in (("bm25", OTHERS), ("ours", OURS))}
    table = pt.Experiment(found, TOPICS, QRELS, MEASURES, baseline="bm25", batch_size=batch_size).set_index("name")
    assert set(table.columns[:5]) == set(NAMES)
    expected = {"bm25": [0.25, 0, 0, 0.25], "ours": [0.25, 0.25, 0.25, 0]}
    assert {name: table.loc[name, NAMES[1:]].tolist() for name in table.index} == expected
    assert table.loc["ours", ["PBT(bm25)@2 +", "PBT(bm25)@2 -", "PTB(bm25)@2 +"]].tolist() == [1, 0, 1]
    rows = pt.Experiment(found, TOPICS, QRELS, MEASURES, perquery=True, batch_size=batch_size)
    assert len(rows) == 2 * 4 * 5
    rows = rows.set_index(["name", "measure", "qid"])["value"].sort_index()
    assert rows["ours", "PBT(bm25)@2"].to_dict() == {"q1": 1, "q2": 0, "q3": 0, "q4": 0}
    assert rows["ours", "PTB(bm25)@2"].to_dict() == {"q1": 0, "q2": 1, "q3": 0, "q4": 0}


def test_numbers_as_ids_are_those_of_pyterrier():
    others = OTHERS.assign(qid=OTHERS["qid"].str[1:].astype(int))
    numbers = {"qid": lambda rows: rows["qid"].str[1:]}
    assert per_query(PBT(x=others) @ 2, OURS.assign(**numbers), QRELS.assign(**numbers))["1"] == 1


def test_the_order_is_that_of_the_scores_and_not_of_rows_or_ranks():
    shuffled = OTHERS.sample(frac=1, random_state=0).assign(rank=0)
    assert PBT(x=shuffled) @ 2 == PBT(x=OTHERS) @ 2
    assert per_query(PBT(x=shuffled) @ 2) == per_query(PBT(x=OTHERS) @ 2)


@pytest.mark.parametrize("scores", [(1.0, 1.0), (1.0 + 1e-9, 1.0), (1.0, 1.0 + 1e-9)])
def test_ties_are_those_of_trec_eval(scores):
    """Equal in fp32: the later docno is first, for Success, for both sides of PBT and for EM."""
    run = OURS.query("qid == 'q1' and docno in ['a', 'c']").assign(score=scores, answer=["Denver", "no"])
    for rows in (run, run.iloc[::-1]):
        assert per_query(Success @ 1, rows)["q1"] == per_query(PBT(x=results({"q1": "d"})) @ 1, rows)["q1"] == 0
        assert per_query(PBT(x=rows) @ 1, results({"q1": "a"}))["q1"] == 1
        assert per_query(EM(ANSWERS), rows)["q1"] == 0


def test_measures_are_values():
    measure = PBT(bm25=OTHERS) @ 10
    assert str(measure) == repr(measure) == "PBT(bm25)@10"
    assert str(PBT) == "PBT" and str(PTB @ 3) == "PTB@3"
    for same in (PBT(bm25=OTHERS.copy()) @ np.int64(10), pickle.loads(pickle.dumps(measure)), copy.deepcopy(measure),
                 (PBT @ 10)(bm25=OTHERS), PBT(bm25=OTHERS, cutoff=10)):  # fmt: skip
        assert same == measure and hash(same) == hash(measure)
    others = [PBT(bm25=OTHERS) @ 9, PTB(bm25=OTHERS) @ 10, PBT(tfidf=OTHERS) @ 10, PBT(bm25=OURS) @ 10, PBT, AP]
    assert measure not in others
    assert PBT == PBT and PBT != PTB and EM == EM and measure != "PBT(bm25)@10"


def test_the_results_are_not_changed():
    before = OTHERS.copy()
    mean(PBT(x=OTHERS) @ 2)
    pd.testing.assert_frame_equal(OTHERS, before)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: PBT(OTHERS), "give one frame of results with a name for it, as in PBT(bm25=bm25(topics)) @ 10"),
        (
            lambda: PTB(a=OTHERS, b=OURS),
            "give one frame of results with a name for it, as in PTB(bm25=bm25(topics)) @ 10",
        ),
        (
            lambda: PBT(bm25=pt.Transformer.identity()),
            "bm25 is a IdentityTransformer, not a frame of results; as in PBT(bm25=bm25(topics)) @ 10",
        ),
        (
            lambda: mean(PBT @ 10),
            "PBT@10 needs other results and a cutoff of 1 or more, as in PBT(bm25=bm25(topics)) @ 10",
        ),
        (
            lambda: mean(PTB(x=OTHERS)),
            "PTB(x) needs other results and a cutoff of 1 or more, as in PTB(bm25=bm25(topics)) @ 10",
        ),
        (
            lambda: mean(PBT(x=OTHERS) @ 0),
            "PBT(x)@0 needs other results and a cutoff of 1 or more, as in PBT(bm25=bm25(topics)) @ 10",
        ),
        (
            lambda: PBT(x=pd.concat([OTHERS, OTHERS.tail(2)])),
            "docno 'c' occurs more than once for qid 'q3'; keep one row of each document",
        ),
        (lambda: PBT(x=OTHERS.assign(score=np.nan)), "12 of 12 scores are NaN; drop or score them"),
        (
            lambda: mean(PBT(x=OTHERS) @ 2, pd.concat([OURS, OURS.head(1)])),
            "docno 'a' occurs more than once for qid 'q1'; keep one row of each document",
        ),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()


def test_results_without_scores_are_refused():
    with pytest.raises(pt.validate.InputValidationError, match="score"):
        PBT(x=OTHERS.drop(columns="score"))


def test_results_for_other_questions_are_said_aloud():
    message = (
        "PBT(x)@1: the results 'x' have no rows for any of the 4 questions of the qrels, the first of which is 'q1'; "
        "are they results for the same questions?"
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        mean(PBT(x=results({"other": "ab"})) @ 1)


ANSWERS = pd.DataFrame(
    [("q1", "The Denver  Broncos"), ("q1", "Denver"), ("q2", "1,802"), ("q3", "an ox"), ("q4", "me")],
    columns=["qid", "answer"],
)


@pytest.mark.parametrize(
    "said, right",
    [
        (["denver broncos!", "1802", "Ox", "me"], [1, 1, 1, 1]),
        (["Denver", "1.802", "oxen", None], [1, 1, 0, 0]),
        (["Denver Bronco", "1 802", "", np.nan], [0, 0, 0, 0]),
    ],
)
def test_exact_match(said, right):
    """The first result's answer counts, in SQuAD's normalisation, and a question without a result is a wrong one."""
    best = pd.DataFrame({"qid": ["q1", "q2", "q3", "q4"], "docno": "a", "score": 1.0, "answer": said})
    worse = best.assign(docno="b", score=0.5, answer="Denver")
    run = pd.concat([worse, best], ignore_index=True)
    measure = EM(ANSWERS)
    assert list(per_query(measure, run).values()) == right
    assert mean(measure, run) == sum(right) / 4
    assert mean(measure, run[run["qid"] != "q1"]) == sum(right[1:]) / 4
    assert str(measure) == "EM" and pickle.loads(pickle.dumps(measure)) == measure != EM(ANSWERS.head(4))


def test_exact_match_in_an_experiment():
    reader = pt.apply.generic(lambda found: found.assign(answer="Denver"))
    table = pt.Experiment([pt.Transformer.from_df(OURS) >> reader], TOPICS, QRELS, [EM(ANSWERS), Success @ 2])
    assert table[["EM", "Success@2"]].to_numpy().tolist() == [[0.25, 0.25]]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: mean(EM), "EM needs the right answers, as in EM(dataset.get_answers())"),
        (
            lambda: mean(EM(ANSWERS)),
            "EM is a measure of a reader's results, but these have no column 'answer'; add ",
        ),
        (
            lambda: mean(EM(ANSWERS.head(3)), OURS.assign(answer="x")),
            "EM has no answers for 2 of 4 questions: 'q3'; give their answers or leave them out of the qrels",
        ),
        (
            lambda: EM(pd.DataFrame([("q1", 1802)], columns=["qid", "answer"])),
            "answers must be strings, but qid 'q1' has 1802 (int)",
        ),
    ],
)
def test_what_exact_match_refuses(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        make()


def test_em_drop_by_the_papers_numbers():
    """DC-32: the printed drops 13.7, 1.5, 1.8 follow from the printed EM; 2.1, 2.0 and 9.7 do not."""
    squad = pd.Series({"BERT-base": 40.1, "Quantized": 39.5, "DistilBERT": 34.6, "DC-BERT": 39.2})
    nq = pd.Series({"BERT-base": 28.0, "Quantized": 27.5, "DistilBERT": 25.1, "DC-BERT": 27.4})
    assert em_drop(40.1, squad).round(2).tolist() == [0, 1.5, 13.72, 2.24]
    assert em_drop(28.0, nq).round(2).tolist() == [0, 1.79, 10.36, 2.14]
    assert em_drop(0.4, 0.5) == pytest.approx(-25)


@pytest.mark.parametrize("base", [0, -1.0, np.nan])
def test_em_drop_needs_a_base(base):
    with pytest.raises(ValueError, match=re.escape(f"em_base={base!r}: a drop is relative to an exact match above 0")):
        em_drop(base, 1.0)
