"""Measures of open-domain question answering, for ir-measures (DC-20 to DC-24).

A document is relevant when it contains an answer. :func:`~pyterrier_cascade.dcbert.supervision.answer_qrels` makes such
judgements, with a row for every question, so that every average here is over all questions, including those that no
document answers. The papers' P@N, the share of questions with an answer in one of the first N documents (DC-20), is
``ir_measures.Success @ N``. All values are shares from 0 to 1, where the papers print percents.
"""

import operator
import re
import string
from typing import ClassVar

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade.checks import shown, warn_user


class _Comparison(ir_measures.measures.Measure):
    """A measure that compares a run with other results.

    Those results are a parameter of the measure: ``{"cutoff": 10, "other": (name, frame)}``.
    """

    SUPPORTED_PARAMS: ClassVar = {
        "cutoff": ir_measures.ParamInfo(dtype=int, required=True, desc="ranking cutoff threshold"),
        "other": ir_measures.ParamInfo(dtype=tuple, required=True, desc="the other results: name and ranking"),
    }
    RUN_INPUTS: ClassVar = ["query_id", "doc_id", "score"]
    QREL_INPUTS: ClassVar = ["query_id", "doc_id", "relevance"]
    GAINED: ClassVar[bool]
    """Whether the measure counts what the run has over the other results, or what it lacks."""

    def __call__(self, *unnamed, cutoff=None, **named):
        """Returns the measure with other results, a cutoff or both: ``PBT(bm25=results) @ 10``.

        Args:
            *unnamed: No value is allowed here: the results need a name, which becomes a part of the column's name, so
                that comparisons with different results have different columns.
            cutoff: The number N of documents that are compared.
            **named: The other results (qid, docno, score), under the name that the column shows.
        """
        if unnamed or len(named) > 1:
            raise ValueError(f"give one frame of results with a name for it, {self._usage}")
        params = self.params if cutoff is None else {**self.params, "cutoff": operator.index(cutoff)}
        for name, results in named.items():
            if not isinstance(results, pd.DataFrame):
                raise ValueError(f"{name} is a {type(results).__name__}, not a frame of results; {self._usage}")
            pt.validate.columns(results, includes=["qid", "docno", "score"])
            run = pt.model.to_ir_measures(results[["qid", "docno", "score"]].astype({"qid": str, "docno": str}))
            params = {**params, "other": (name, _ranked(run))}
        return type(self)(**params)

    @property
    def _usage(self) -> str:
        return f"as in {self.NAME}(bm25=bm25(topics)) @ 10"

    def validate_params(self):
        """Raises ValueError unless there are other results and a cutoff."""
        if "other" not in self.params or self.params.get("cutoff", 0) < 1:
            raise ValueError(f"{self} needs other results and a cutoff of 1 or more, {self._usage}")

    def runtime_impl(self, qrels, run):
        """Yields 1 for a question if one side has an answering document among its first N that the other side lacks."""
        name, other = self.params["other"]
        questions = qrels["query_id"].unique()
        if len(questions) and set(questions).isdisjoint(other["query_id"].unique()):
            warn_user(
                f"{self}: the results {name!r} have no rows for any of the {len(questions)} questions of the qrels, "
                f"the first of which is {shown(questions[0])}; are they results for the same questions?"
            )
        answering = qrels.loc[qrels["relevance"] > 0, ["query_id", "doc_id"]]
        sides = [_top(ranked, self.params["cutoff"]) for ranked in (_ranked(run), other)]
        has, lacks = sides if self.GAINED else sides[::-1]
        compared = answering.merge(has).merge(lacks, how="left", indicator="side")
        found = set(compared.loc[compared["side"] == "left_only", "query_id"])
        for qid in questions:
            yield ir_measures.Metric(qid, self, float(qid in found))

    def __repr__(self):
        # This is the name of the column: PBT(bm25)@10.
        name = f"({self.params['other'][0]})" if "other" in self.params else ""
        return f"{self.NAME}{name}" + (f"@{self.params['cutoff']}" if "cutoff" in self.params else "")

    def __eq__(self, other):
        if not super().__eq__(other):
            return False
        return "other" not in self.params or self.params["other"][1].equals(other.params["other"][1])

    __hash__ = ir_measures.measures.Measure.__hash__


def _order(run: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of the rows in trec_eval's order, and their ranks from 0 in each query.

    Scores are compared in fp32, and ties are broken by descending docno, so the first N are those of Success @ N.
    """
    score = pd.to_numeric(run["score"]).to_numpy(dtype=np.float32)
    if np.isnan(score).any():
        raise ValueError(f"{int(np.isnan(score).sum())} of {len(score)} scores are NaN; drop or score them")
    qids, docnos = (pd.factorize(run[name], sort=True)[0] for name in ("query_id", "doc_id"))
    order = np.lexsort((-docnos, -score, qids))
    sizes = np.bincount(qids)
    return order, np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _ranked(run: pd.DataFrame) -> pd.DataFrame:
    """Returns ``query_id, doc_id, rank`` in trec_eval's order; raises ValueError for a document that occurs twice."""
    order, rank = _order(run)
    ranked = run[["query_id", "doc_id"]].iloc[order].assign(rank=rank).reset_index(drop=True)
    twice = ranked[ranked.duplicated(["query_id", "doc_id"])]
    if len(twice):
        qid, docno, _ = twice.iloc[0]
        raise ValueError(
            f"docno {shown(docno)} occurs more than once for qid {shown(qid)}; keep one row of each document"
        )
    return ranked


def _top(ranked: pd.DataFrame, n: int) -> pd.DataFrame:
    return ranked.loc[ranked["rank"] < n, ["query_id", "doc_id"]]


class _PBT(_Comparison):
    NAME = __name__ = "PBT"
    PRETTY_NAME = "Answers gained over other results"
    SHORT_DESC = "whether an answering document is among the first N but not among the first N of others (DC-21)"
    GAINED = True


class _PTB(_Comparison):
    NAME = __name__ = "PTB"
    PRETTY_NAME = "Answers lost against other results"
    SHORT_DESC = "whether an answering document is among the first N of others but not among the first N (DC-22)"
    GAINED = False


PBT = _PBT()
"""The share of questions with an answering document among the first N that the other results lack there (DC-21).

Give it the results to compare with, usually those of the retriever, under the name that the column shows::

    found = bm25(topics)
    pt.Experiment([bm25, bm25 >> reranker], topics, qrels, [Success @ 10, PBT(bm25=found) @ 10, PTB(bm25=found) @ 10])

A question with several such documents counts once. Higher is better.
"""

PTB = _PTB()
"""The share of questions with an answering document among the first N of the other results, lost here (DC-22).

Used like :data:`PBT`. Lower is better.
"""


class _EM(ir_measures.measures.Measure):
    NAME = __name__ = "EM"
    PRETTY_NAME = "Exact match"
    SHORT_DESC = "whether the first result of a question has one of the right answers (DC-23)"
    SUPPORTED_PARAMS: ClassVar = {
        "answers": ir_measures.ParamInfo(dtype=dict, required=True, desc="the right answers of each question")
    }
    RUN_INPUTS: ClassVar = ["query_id", "doc_id", "score", "answer"]
    QREL_INPUTS: ClassVar = ["query_id"]

    def __call__(self, answers):
        """Returns the measure with the right answers, a frame (qid, answer): ``EM(dataset.get_answers())``."""
        return type(self)(answers={qid: set(map(_normalised, right)) for qid, right in answers_of(answers).items()})

    def validate_params(self):
        """Raises ValueError unless there are answers."""
        if "answers" not in self.params:
            raise ValueError("EM needs the right answers, as in EM(dataset.get_answers())")

    def runtime_impl(self, qrels, run):
        """Yields 1 for a question whose first result has a right answer."""
        missing = [name for name in self.RUN_INPUTS if name not in run.columns]
        if missing:
            raise ValueError(
                f"EM is a measure of a reader's results, but these have no column {missing[0]!r}; add the answers"
            )
        questions, right = qrels["query_id"].unique(), self.params["answers"]
        unknown = [qid for qid in questions if qid not in right]
        if unknown:
            raise ValueError(
                f"EM has no answers for {len(unknown)} of {len(questions)} questions: {shown(unknown[0])}; give their "
                f"answers or leave them out of the qrels"
            )
        order, rank = _order(run)
        first = run.iloc[order[rank == 0]]
        said = dict(zip(first["query_id"], first["answer"], strict=True))
        for qid in questions:
            yield ir_measures.Metric(qid, self, float(pd.notna(said.get(qid)) and _normalised(said[qid]) in right[qid]))

    def __repr__(self):
        return self.NAME

    def __eq__(self, other):
        return super().__eq__(other) and self.params == other.params

    __hash__ = ir_measures.measures.Measure.__hash__


EM = _EM()
"""The share of questions whose first result has one of the right answers in its column ``answer`` (DC-23).

``EM(dataset.get_answers())`` measures the results of a reader: ``qid``, ``docno``, ``score`` and ``answer``. Answers
are compared as in SQuAD's own evaluation: without case, punctuation, articles and repeated blanks. A missing answer is
wrong.
"""


def answers_of(answers: pd.DataFrame) -> dict[str, list[str]]:
    """Returns the different answers of each question.

    Args:
        answers: A frame with ``qid`` and ``answer``.

    Raises:
        ValueError: If an answer is not a string.
    """
    pt.validate.columns(answers, includes=["qid", "answer"])
    of = {}
    for qid, answer in zip(answers["qid"], answers["answer"], strict=True):
        if not isinstance(answer, str):
            raise ValueError(
                f"answers must be strings, but qid {shown(qid)} has {shown(answer)} ({type(answer).__name__})"
            )
        of.setdefault(qid, {})[answer] = None
    return {qid: list(different) for qid, different in of.items()}


_UNPUNCTUATED = str.maketrans("", "", string.punctuation)


def _normalised(answer: str) -> str:
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_UNPUNCTUATED)).split())


def em_drop(em_base, em):
    """Returns the drop of exact match in percent: (base - em) / base x 100 (DC-24).

    Three of the drops that the paper prints do not follow from its exact matches (DC-32): it prints 2.1, 2.0 and 9.7,
    and this formula gives 2.24, 2.14 and 10.36.

    Args:
        em_base: The exact match of the model that the others are compared with, above 0.
        em: The exact match of another model, or an array or a column of several.

    Raises:
        ValueError: If ``em_base`` is not above 0.
    """
    if not em_base > 0:
        raise ValueError(f"em_base={em_base!r}: a drop is relative to an exact match above 0; give one")
    return (em_base - em) / em_base * 100
