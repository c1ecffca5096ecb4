"""Questions of ASNQ with their candidates: read from the official files one at a time, and collected in frames."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from pyterrier_cascade.datasets.asnq.labelling import ANSWER, DIGITS
from pyterrier_cascade.datasets.collection import Split
from pyterrier_cascade.datasets.docnos import hashed_docnos
from pyterrier_cascade.text_files import numbered_lines

COLUMNS = ["qid", "query", "docno", "text", "label", "asnq_label"]


class Question(NamedTuple):
    """A question and its candidates.

    Args:
        qid: The identifier.
        query: The text.
        group: The key by which dev is halved: questions of one group, such as an article, stay together.
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
        """Returns the question with the candidates at some positions only."""
        docnos, texts, labels = ([values[p] for p in positions] for values in (self.docnos, self.texts, self.labels))
        return self._replace(docnos=docnos, texts=texts, labels=labels)


def read_official(path: str | Path) -> Iterator[Question]:
    """Yields the questions of an official file, plain or gzipped; one is held in memory at a time.

    The files have no ids. A ``qid`` is the name of the file and the count of the question (``train-00001``). A
    ``docno`` is a hash of the sentence, with a count where a question repeats a sentence. The lines of a question
    follow each other; if a question occurs again later, it keeps its ``qid``, and its ``docno`` tell the occurrences
    apart.

    Raises:
        ValueError: If the file is damaged, a line does not have three columns, or a label is none of 1, 2, 3, 4.
    """
    part = Path(path).name.split(".")[0]
    qids: dict[str, str] = {}
    occurrences: Counter[str] = Counter()
    for query, lines in groupby(_official_lines(path), key=lambda line: line[0]):
        qid = qids.setdefault(query, f"{part}-{len(qids) + 1:05d}")
        occurrences[qid] += 1
        _, texts, labels = (list(column) for column in zip(*lines, strict=True))
        # 64 bits: among the 21 million sentences of ASNQ, two share a hash with a chance of one in 80,000.
        docnos = hashed_docnos(texts, 16, f"-t{occurrences[qid]}" if occurrences[qid] > 1 else "")
        yield Question(qid, query, query, docnos, texts, labels)


def _official_lines(path: str | Path) -> Iterator[tuple[str, str, int]]:
    for where, line in numbered_lines(path):
        columns = line.split("\t")
        if len(columns) != 3:
            raise ValueError(f"{where}: {len(columns)} columns instead of question, sentence and label")
        if columns[2].strip() not in DIGITS:
            raise ValueError(f"{where}: label {columns[2]!r} is none of 1, 2, 3, 4")
        yield columns[0], columns[1], int(columns[2])


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
