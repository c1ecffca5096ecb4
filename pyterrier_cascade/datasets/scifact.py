"""``as2:scifact``: scientific claims and the abstracts that support or refute them (Wadden et al., EMNLP 2020)."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import pandas as pd

from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.datasets.collection import RetrievalCollection, RetrievalData
from pyterrier_cascade.datasets.download import DataFile
from pyterrier_cascade.datasets.files import DataFolder, Stamp, checked_folder, stamp
from pyterrier_cascade.text_files import (
    QRELS,
    fields_of,
    filled_lines,
    number,
    numbered_lines,
    parse_json,
    refusing_other_shapes,
)

SPLITS = ("train", "test")
BEIR_QRELS = "query-id corpus-id score"


@dataclass(frozen=True)
class SciFactFolder(RetrievalCollection):
    """SciFact as BEIR distributes it: 5,183 abstracts, 809 claims for training and 300 for testing.

    Every judgement has the label 1: it names an abstract with evidence about the claim, whether for or against it.
    Abstracts without a judgement are taken as not relevant.

    The files are ``corpus.jsonl`` (objects with ``docno`` and ``text``, or with BEIR's ``_id``, ``title`` and
    ``text``), ``queries.jsonl`` (``_id`` and ``text``), and ``qrels-train.tsv`` and ``qrels-test.tsv`` or BEIR's
    ``qrels/train.tsv`` and ``qrels/test.tsv``; all may be gzipped.

    Args:
        split: ``"train"`` or ``"test"``; both have the same corpus.
        folder: The folder of the files; without it the folder in ``PTC_DATA``.
    """

    split: str = "test"
    folder: str | None = None

    fields_in_name = ("split",)
    licence = "CC BY 4.0; abstracts: ODC-By"
    url = "https://github.com/allenai/scifact"
    notes = "label 1 = the abstract has evidence for or against the claim; text = title and abstract"
    data_folder: ClassVar = DataFolder(
        ("scifact",),
        {
            "corpus": DataFile("corpus.jsonl"),
            "queries": DataFile("queries.jsonl"),
            **{split: DataFile(f"qrels-{split}.tsv", aliases=(f"qrels/{split}.tsv",)) for split in SPLITS},
        },
        "unpack https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/scifact.zip",
    )

    def __post_init__(self):
        check_choices(split=(self.split, SPLITS))
        object.__setattr__(self, "folder", checked_folder(self.folder))

    @property
    def name(self) -> str:
        """The name after ``as2:``."""
        return f"scifact/{self.split}"

    @property
    def part(self) -> str:
        """The split."""
        return self.split

    def read(self) -> RetrievalData:
        """Returns the abstracts, and the claims and judgements of the split.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If a file is damaged or does not have the shape of SciFact.
        """
        files = (stamp(self.data_folder.locate(part, self.folder)) for part in ("corpus", "queries", self.split))
        return _read(*files)


@lru_cache(maxsize=4)
def _read(corpus: Stamp, queries: Stamp, qrels: Stamp) -> RetrievalData:
    claims = pd.DataFrame(_records(queries[0]), columns=["qid", "query"], dtype=str)
    judgements = pd.DataFrame(_judgements(qrels[0]), columns=["qid", "docno", "label"])
    topics = claims[claims["qid"].isin(judgements["qid"])].reset_index(drop=True)
    return RetrievalData(_documents(corpus), topics, judgements)


@lru_cache(maxsize=2)
def _documents(corpus: Stamp) -> pd.DataFrame:
    return pd.DataFrame(_records(corpus[0]), columns=["docno", "text"], dtype=str).set_index("docno")


def _records(path: str) -> list[tuple[str, str]]:
    """Returns the identifier and the text of each object of a file; BEIR keeps the title apart from the text."""
    rows = []
    for where, line in numbered_lines(path):
        record: Any = parse_json(where, line)
        with refusing_other_shapes(f"{where}: not an object with an _id (or docno) and a text"):
            name = record["docno"] if "docno" in record else record["_id"]
            rows.append((name, " ".join(filter(None, (record.get("title"), record["text"])))))
    return rows


def _judgements(path: str) -> list[tuple[str, str, int]]:
    """Returns the rows of a file with three columns and a header, as in BEIR, or with TREC's four columns."""
    rows = []
    for where, line in filled_lines(path):
        form = QRELS if len(line.split()) == len(QRELS.split()) else BEIR_QRELS
        qid, *_, docno, label = fields_of(where, line, form)
        if qid != "query-id":
            rows.append((qid, docno, number(where, "label", label, int)))
    return rows
