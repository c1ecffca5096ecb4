"""Labels from answer strings (distant supervision, DC-8), and negatives to learn them by (DC-9)."""

import unicodedata
from collections.abc import Callable
from numbers import Real

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade.checks import check_choices, shown
from pyterrier_cascade.frames import Blocks, distinct, labelled
from pyterrier_cascade.measures.open_domain import answers_of

FIRST = [0]
"""The rows that are judged for a question that has no other row to judge."""

KINDS = {"hard": 1.0, "random": 0.0}


def answer_qrels(documents: pd.DataFrame, answers: pd.DataFrame, match: str = "exact") -> pd.DataFrame:
    """Returns qrels (qid, docno, label): 1 where a document contains an answer to the question, else 0 (DC-8).

    Every question of ``answers`` has a row. A question without candidates, or without a document that answers it, has
    a row about the first document, with label 0. This matters because measures are averaged over the questions of the
    qrels, and the measures of the paper are shares of all questions (DC-20 to DC-22).

    Args:
        documents: Candidates (qid, docno, text), each judged for its own question; they must contain the results of
            all systems that are compared. Or a corpus (docno, text), judged for every question; then only the positive
            rows are returned.
        answers: The right answers (qid, answer), as ``dataset.get_answers()`` gives them; empty answers are skipped.
        match: ``"exact"``: the answer is a substring of the text, as the paper says, so "art" is in "party".
            ``"normalised"``: the words of the answer follow one another in the text; case, punctuation and the form of
            Unicode (NFD) do not count. DrQA's evaluation is similar, but compares punctuation.

    Raises:
        ValueError: If a text is missing, or a question has no answer or only empty ones.
    """
    check_choices(match=(match, MATCHES))
    pt.validate.columns(documents, includes=["docno", "text"])
    pt.validate.columns(answers, includes=["qid", "answer"])
    for name, frame in (("documents", documents), ("answers", answers)):
        if not len(frame):
            raise ValueError(f"there are no {name} to judge by")
    spans = {
        qid: [span for span in map(MATCHES[match], right) if span.strip()] for qid, right in answers_of(answers).items()
    }
    _refuse_unanswered(spans, documents)
    texts, judged = _texts(documents, MATCHES[match]), []
    blocks = Blocks.of(documents) if "qid" in documents else None
    candidates = {} if blocks is None else {q: rows.tolist() for q, rows in zip(blocks.qids, blocks, strict=True)}
    for qid, wanted in spans.items():
        rows = range(len(texts)) if blocks is None else candidates.get(qid, FIRST)
        right = {row for span in wanted for row in rows if span in texts[row]}
        if blocks is None:
            rows = sorted(right) or FIRST
        judged += [(qid, row, int(row in right)) for row in rows]
    qids, rows, labels = zip(*judged, strict=True)
    docnos = documents["docno"].array.take(list(rows))
    qrels = pd.DataFrame({"qid": np.array(qids, dtype=object), "docno": docnos, "label": labels})
    return qrels.groupby(["qid", "docno"], sort=False, as_index=False)["label"].max()


class _Letters(dict):
    """A table for ``str.translate`` that keeps letters, numbers and marks and makes every other character a blank."""

    def __missing__(self, code: int) -> int:
        self[code] = code if unicodedata.category(chr(code))[0] in "LNM" else ord(" ")
        return self[code]


_LETTERS = _Letters()


def _words(text: str) -> str:
    """Returns the words of a text with a blank on both sides of each, so that a sequence of words is a substring."""
    return f" {' '.join(unicodedata.normalize('NFD', text).lower().translate(_LETTERS).split())} "


MATCHES: dict[str, Callable[[str], str]] = {"exact": str, "normalised": _words}


def _texts(documents: pd.DataFrame, prepare: Callable[[str], str]) -> list[str]:
    """Returns the prepared text of each row; equal texts are one object."""
    for column in ("docno", "text"):
        missing = documents[column].isna().to_numpy()
        if missing.any():
            raise ValueError(
                f"{int(missing.sum())} of {len(documents)} documents have no {column}, the first in row "
                f"{int(missing.argmax())}; nobody can tell whether they contain an answer, so leave them out"
            )
    codes, different = distinct(documents["text"])
    prepared = [prepare(text) for text in different]
    return [prepared[code] for code in codes]


def _refuse_unanswered(spans: dict[str, list[str]], documents: pd.DataFrame) -> None:
    asked = dict.fromkeys([*spans, *(documents["qid"].unique().tolist() if "qid" in documents else ())])
    unanswered = [qid for qid in asked if not spans.get(qid)]
    if unanswered:
        raise ValueError(
            f"{len(unanswered)} of {len(asked)} questions have no answer, or only empty ones: the first is "
            f"{shown(unanswered[0])} (the answers begin with {shown(next(iter(spans)))}); leave such questions out"
        )


def sampled_negatives(
    results: pd.DataFrame,
    corpus: pd.DataFrame,
    qrels: pd.DataFrame,
    *,
    kind: str | float = "hard",
    negatives: int = 10,
    positives: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Returns a training set (qid, query, docno, text, label): a question's positives and some negatives, at random.

    Positives and hard negatives come from the retriever's list, random negatives from the whole corpus. A document that
    the qrels call positive is never drawn as a negative. For random negatives the qrels should therefore be those of
    the whole corpus, ``answer_qrels(corpus, answers)``, and not those of the results alone. Questions without a
    positive in their list are left out, and lists that are too short give fewer hard negatives.

    Random negatives are easy to tell from positives; hard negatives are the kind that a reranker meets. A training may
    begin with ``kind="random"`` and go on with ``kind="hard"``, with another seed for each epoch.

    Args:
        results: A retriever's results (qid, query, docno).
        corpus: All documents (docno, text); the texts are taken from here.
        qrels: The judgements (qid, docno, label).
        kind: ``"hard"``, ``"random"``, or the share of hard negatives among the negatives, from 0 to 1.
        negatives: The number of negatives of a question.
        positives: The most positives of a question; all unless given.
        seed: Decides which documents are drawn.
    """
    share = KINDS.get(kind, kind)
    if not isinstance(share, Real) or not 0 <= share <= 1:
        raise ValueError(f"kind={kind!r}; use 'hard', 'random', or the share of hard negatives from 0 to 1")
    for name, number in (("negatives", negatives), ("positives", positives)):
        if number is not None and number < 1:
            raise ValueError(f"{name}={number}; use 1 or more")
    pt.validate.columns(results, includes=["qid", "query", "docno"])
    pt.validate.columns(corpus, includes=["docno", "text"])
    lists = labelled(results[["qid", "query", "docno"]], qrels).drop_duplicates(["qid", "docno"], ignore_index=True)
    index = _index(corpus)
    places, labels = _places(index, lists["docno"]), lists["label"].to_numpy()
    positive = qrels[qrels["label"] > 0]
    right = pd.Series(index.get_indexer(positive["docno"])).groupby(positive["qid"].to_numpy()).agg(list).to_dict()
    rng, blocks, drawn = np.random.default_rng(seed), Blocks.of(lists), []
    for qid, rows in zip(blocks.qids, blocks, strict=True):
        good, bad = (rng.permutation(places[rows[labels[rows] == label]]) for label in (1, 0))
        if len(good):
            n_hard = int(share * negatives + rng.random())
            good, bad = good[:positives], bad[:n_hard]
            others = _others(rng, len(corpus), negatives - n_hard, np.concatenate([right[qid], bad]))
            found = np.concatenate([good, bad, others])
            drawn.append((np.full(len(found), rows[0]), found, np.arange(len(found)) < len(good)))
    if not drawn:
        raise ValueError(f"no positive among the {len(lists)} results; are these the right qrels?")
    rows, found, labels = map(np.concatenate, zip(*drawn, strict=True))
    texts = corpus[["docno", "text"]].iloc[found].reset_index(drop=True)
    return pd.concat([lists[["qid", "query"]].iloc[rows].reset_index(drop=True), texts], axis=1).assign(
        label=labels.astype(np.int64)
    )


def _index(corpus: pd.DataFrame) -> pd.Index:
    index = pd.Index(corpus["docno"])
    if not index.is_unique:
        raise ValueError(f"docno {shown(index[index.duplicated()][0])} occurs more than once in the corpus")
    return index


def _places(index: pd.Index, docnos: pd.Series) -> np.ndarray:
    """Returns where documents are in the corpus."""
    places = index.get_indexer(docnos)
    missing = docnos[places < 0].unique()
    if len(missing):
        raise ValueError(
            f"{len(missing)} documents of the results are not in the corpus, such as {shown(missing[0])}; "
            "are both of the same collection?"
        )
    return places


def _others(rng: np.random.Generator, n_docs: int, n: int, taken: np.ndarray) -> np.ndarray:
    """Returns ``n`` places in the corpus that are not taken, all equally likely; fewer if there are no more."""
    drawn = rng.choice(n_docs, min(n_docs, n + len(taken)), replace=False)
    return drawn[~np.isin(drawn, taken)][:n]
