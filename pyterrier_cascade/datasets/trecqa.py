"""TREC-QA: questions of the TREC QA tracks, candidates from newswire (Wang et al., EMNLP 2007)."""

from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from pyterrier_cascade.datasets.collection import LabelledFiles, Split
from pyterrier_cascade.datasets.docnos import hashed_docnos
from pyterrier_cascade.datasets.download import DataFile
from pyterrier_cascade.datasets.files import DataFolder
from pyterrier_cascade.datasets.modes import Mode
from pyterrier_cascade.text_files import numbered_lines, parse_json, refusing_other_shapes

RAW = "https://raw.githubusercontent.com/mcrisc/lexdecomp/89d21f150188b551607317ccb79a07f5316e99e4/trec-qa/"
FILES = {
    "train": ("train-all.jsonl.gz", "c1a7d93807a8499c2d9672363eabf6a698b761062d4a141cbffe255bb7440c5d"),
    "dev": ("dev.jsonl", "9c5976698e2798ada7e269d5774bbd12c5fa923776fd1305334412333704029a"),
    "test": ("test.jsonl", "b2646549a41a878cd92c2abf3fa5ac6226717962d6ede54e653a213aeaa31c94"),
}
"""For each split the name of its file at that address, and the checksum of the unpacked file."""
MAX_DEV_TOKENS = 40


@dataclass(frozen=True)
class TrecQA(LabelledFiles):
    """TREC-QA; ``train`` is TRAIN-ALL, which is labelled automatically. Labels are 0 and 1.

    Training uses the ``raw`` questions and testing the ``clean`` ones (TA-14). The distributed test file has no
    sentence over 40 tokens, but the dev file does: these are dropped when the file is read, before any mode is applied.
    That gives the 82 questions and 1,148 pairs of the literature in ``raw``, and 65 and 1,117 in ``clean``.

    The files have no ids. A ``qid`` is the split and the question's position in the file (``train-0001``), so the
    three questions that train asks twice stay two each, with their own candidates. A ``docno`` is a hash of the
    sentence, so that ties are not decided by the order of the files, in which correct answers come first. A sentence
    that is repeated within a question (84 pairs of train, a few with another label) has its count after the hash.
    """

    name = "trecqa"
    licence = "not stated; the text is TREC newswire"
    url = "https://github.com/mcrisc/lexdecomp/tree/master/trec-qa"
    notes = (
        "train = TRAIN-ALL; dev without sentences over 40 tokens; 1 raw dev and 5 raw test questions lack candidates"
    )
    default_modes: ClassVar = {"train": Mode.RAW, "dev": Mode.CLEAN, "test": Mode.CLEAN}
    data_folder = DataFolder(
        ("trecqa",),
        {split: DataFile(name.removesuffix(".gz"), RAW + name, sha256) for split, (name, sha256) in FILES.items()},
    )

    @classmethod
    def parse(cls, path: str, split: str) -> Split:
        """Reads a TREC-QA JSONL file.

        Raises:
            ValueError: If a line is not a question with labelled candidates.
        """
        topics, pairs = [], []
        for n, (where, line) in enumerate(numbered_lines(path), start=1):
            query, candidates = _question(where, line)
            if split == "dev":
                candidates = [c for c in candidates if len(c[0].split()) <= MAX_DEV_TOKENS]
            qid = f"{split}-{n:04d}"
            topics.append((qid, query))
            docnos = hashed_docnos([text for text, _ in candidates], 12)
            pairs += [(qid, query, docno, *c) for docno, c in zip(docnos, candidates, strict=True)]
        frame = pd.DataFrame(pairs, columns=["qid", "query", "docno", "text", "label"]).astype({"label": "int64"})
        return Split(pd.DataFrame(topics, columns=["qid", "query"]), frame)


def _question(where: str, line: str) -> tuple[str, list[tuple[str, int]]]:
    record = parse_json(where, line)
    with refusing_other_shapes(f"{where}: not a question with candidates, each a sentence and a label"):
        query, candidates = record["question"], [(c["sentence"], c["label"]) for c in record["candidates"]]
    for text, label in candidates:
        if not isinstance(text, str) or not isinstance(query, str):
            raise ValueError(f"{where}: question and sentences should be text")
        if label not in (0, 1):
            raise ValueError(f"{where}: label {label!r} is neither 0 nor 1")
    return query, candidates
