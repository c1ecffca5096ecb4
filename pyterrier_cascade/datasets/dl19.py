"""``as2:dl19``: the passages that TREC's Deep Learning track judged in 2019 (Craswell et al., TREC 2019)."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import pandas as pd

from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.datasets.base import RetrievalDataset
from pyterrier_cascade.datasets.collection import RetrievalCollection, RetrievalData
from pyterrier_cascade.datasets.download import DataFile
from pyterrier_cascade.datasets.files import DataFolder, Stamp, checked_folder, stamp
from pyterrier_cascade.text_files import fields_of, json_strings, numbered_lines, read_qrels, run_rows

RUNS = ("bm25base_p", "p_bert")
"""The official runs of the track that the folder may have."""
PARTS = ("queries", "qrels", "passages")


@dataclass(frozen=True)
class Dl19Folder(RetrievalCollection):
    """The judged passages of TREC DL 2019: 43 topics and 9,260 judgements with labels from 0 to 3.

    The documents are the passages of the folder, and not the 8.8 million of MS MARCO. They are meant for reranking the
    judged pool: of the first 100 and 1,000 passages of the official BM25 run, only 65% and 14% have their texts here.
    Labels of 2 and 3 count as relevant in the track's binary measures, such as ``AP(rel=2)``.

    The files are ``queries.tsv`` (qid and query), ``qrels``, ``passages.jsonl`` (objects with docno and text) and, for
    :meth:`Dl19.get_results`, the TREC runs ``run-bm25base_p`` and ``run-p_bert``; all may be gzipped.

    Args:
        folder: The folder of the files; without it the folder in ``PTC_DATA``.
    """

    folder: str | None = None

    name = "dl19"
    licence = "MS MARCO: non-commercial research only"
    url = "https://microsoft.github.io/msmarco/TREC-Deep-Learning-2019"
    notes = "labels 0 to 3, relevant from 2 in binary measures; the corpus has the judged passages and a few more"
    data_folder: ClassVar = DataFolder(
        ("dl19",),
        {
            "queries": DataFile("queries.tsv", aliases=("msmarco-test2019-queries.tsv",)),
            "qrels": DataFile("qrels", aliases=("2019qrels-pass.txt",)),
            "passages": DataFile("passages.jsonl"),
            **{run: DataFile(f"run-{run}", aliases=(f"input.{run}",)) for run in RUNS},
        },
        "get the files of the track, write the judged passages of MS MARCO to passages.jsonl (docno, text)",
    )

    def __post_init__(self):
        object.__setattr__(self, "folder", checked_folder(self.folder))

    def read(self) -> RetrievalData:
        """Returns the passages, the judged topics and the judgements.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If a file is damaged, or a judged topic or passage has no text.
        """
        return _read(*(stamp(self.data_folder.locate(part, self.folder)) for part in PARTS))

    def run(self, name: str) -> pd.DataFrame:
        """Returns an official run: ``qid, docno, score, rank``, ranks from 0, topics without judgements included."""
        check_choices(variant=(name, RUNS))
        return _run(stamp(self.data_folder.locate(name, self.folder)))


class Dl19(RetrievalDataset):
    """TREC DL 2019 with its judged passages as candidates, and two official runs."""

    collection: Dl19Folder

    def get_candidates(self) -> pd.DataFrame:
        """Returns the judged passages of every topic: ``qid, query, docno, text, label``; labels are 0 to 3."""
        data = self.collection.read()
        pairs = data.qrels.merge(data.topics, on="qid", how="left")
        pairs["text"] = data.documents["text"].reindex(pairs["docno"]).array
        return pairs[["qid", "query", "docno", "text", "label"]]

    def get_results(self, variant: str | None = None) -> pd.DataFrame:
        """Returns an official run on the judged topics: ``qid, query, docno, score, rank``.

        Most of its passages are not judged and have no text in this data set.

        Args:
            variant: The name of the run, ``"bm25base_p"`` or ``"p_bert"``.
        """
        run = self.collection.run(variant)
        return run.merge(self.get_topics(), on="qid")[["qid", "query", "docno", "score", "rank"]]


@lru_cache(maxsize=2)
def _read(queries: Stamp, qrels: Stamp, passages: Stamp) -> RetrievalData:
    judgements = read_qrels(qrels[0])
    asked = [fields_of(where, line, "qid query", "\t") for where, line in numbered_lines(queries[0])]
    topics = pd.DataFrame(asked, columns=["qid", "query"], dtype=str)
    topics = topics[topics["qid"].isin(judgements["qid"])].reset_index(drop=True)
    texts = dict(json_strings(where, line, "docno", "text") for where, line in numbered_lines(passages[0]))
    documents = pd.DataFrame(list(texts.items()), columns=["docno", "text"], dtype=str).set_index("docno")
    for column, known, path in (("qid", topics["qid"], queries[0]), ("docno", documents.index, passages[0])):
        unknown = judgements[column][~judgements[column].isin(known)]
        if len(unknown):
            raise ValueError(
                f"{column} {unknown.iloc[0]!r} is judged in {qrels[0]} but is not in {path}; get the files again"
            )
    return RetrievalData(documents, topics, judgements)


@lru_cache(maxsize=2)
def _run(file: Stamp) -> pd.DataFrame:
    run = pd.DataFrame([row for _, row in run_rows(file[0])], columns=["qid", "docno", "score", "rank"])
    # Ranks start at 1 in the files and at 0 in PyTerrier.
    run["rank"] -= run.groupby("qid")["rank"].transform("min")
    return run
