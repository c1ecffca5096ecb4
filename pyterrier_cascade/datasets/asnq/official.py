"""ASNQ as it is distributed: ``train.tsv`` and ``dev.tsv``, a question, a sentence and a label a line."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from pyterrier_cascade.datasets.asnq.lines import numbered_lines
from pyterrier_cascade.datasets.asnq.page import DIGITS
from pyterrier_cascade.datasets.asnq.questions import Question


def read_official(path: str | Path) -> Iterator[Question]:
    """Yields the questions of an official file, plain or gzipped; one is held at a time.

    The files have no ids. A ``qid`` is the name of the file and the count of the question (``train-00001``), a
    ``docno`` a hash of the sentence, with a count where a question repeats a sentence. The lines of a question follow
    each other; if it comes up again later, it does so under its ``qid``, and its ``docno`` say which time it is.

    Raises:
        ValueError: If the file is damaged, a line has not three columns, or a label is none of 1, 2, 3, 4.
    """
    part = Path(path).name.split(".")[0]
    qids: dict[str, str] = {}
    times: Counter[str] = Counter()
    for query, lines in groupby(_lines(path), key=lambda line: line[0]):
        qid = qids.setdefault(query, f"{part}-{len(qids) + 1:05d}")
        times[qid] += 1
        _, texts, labels = (list(column) for column in zip(*lines, strict=True))
        yield Question(qid, query, query, _docnos(texts, times[qid]), texts, labels)


def _lines(path: str | Path) -> Iterator[tuple[str, str, int]]:
    for where, line in numbered_lines(path):
        columns = line.split("\t")
        if len(columns) != 3:
            raise ValueError(f"{where}: {len(columns)} columns instead of question, sentence and label")
        if columns[2].strip() not in DIGITS:
            raise ValueError(f"{where}: label {columns[2]!r} is none of 1, 2, 3, 4")
        yield columns[0], columns[1], int(columns[2])


def _docnos(texts: list[str], time: int) -> list[str]:
    seen: Counter[str] = Counter()
    docnos = []
    again = f"-t{time}" if time > 1 else ""
    for text in texts:
        seen[text] += 1
        repeated = f"-{seen[text]}" if seen[text] > 1 else ""
        # 64 bits: among the 21 million sentences of ASNQ, two share a hash with a chance of one in 80,000.
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]
        docnos.append(digest + again + repeated)
    return docnos
