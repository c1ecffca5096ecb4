"""Questions with their candidates, one at a time, and as a frame."""

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from pyterrier_cascade.datasets.asnq.page import ANSWER
from pyterrier_cascade.datasets.collection import Split

COLUMNS = ["qid", "query", "docno", "text", "label", "asnq_label"]


class Question(NamedTuple):
    """A question and its candidates.

    Args:
        qid: Its identifier.
        query: Its text.
        group: What must not be divided between dev and test: the question itself, or its article.
        docnos: The identifiers of the sentences.
        texts: The sentences.
        labels: Their four-way labels, 1 to 4.
    """

    qid: str
    query: str
    group: str
    docnos: list[str]
    texts: list[str]
    labels: list[int]

    def take(self, positions: list[int]) -> "Question":
        """Returns the question with only some of its candidates."""
        docnos, texts, labels = ([values[p] for p in positions] for values in (self.docnos, self.texts, self.labels))
        return self._replace(docnos=docnos, texts=texts, labels=labels)


def to_split(questions: Iterable[Question]) -> Split:
    """Returns topics and pairs; ``label`` is 1 for the label 4 and 0 for the others, ``asnq_label`` keeps all four."""
    topics: dict[str, str] = {}
    columns: dict[str, list] = {column: [] for column in COLUMNS}
    for question in questions:
        topics.setdefault(question.qid, question.query)
        n = len(question.docnos)
        columns["qid"] += [question.qid] * n
        columns["query"] += [question.query] * n
        columns["docno"] += question.docnos
        columns["text"] += question.texts
        columns["label"] += [int(label == ANSWER) for label in question.labels]
        columns["asnq_label"] += question.labels
    strings = dict.fromkeys(COLUMNS[:4], str)
    pairs = pd.DataFrame(columns).astype({**strings, "label": "int64", "asnq_label": "int64"})
    return Split(pd.DataFrame(list(topics.items()), columns=COLUMNS[:2], dtype=str), pairs)
