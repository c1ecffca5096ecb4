"""``as2:squad-open``: the paragraphs of SQuAD as a corpus, its questions as topics (Rajpurkar et al., EMNLP 2016)."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import pandas as pd

from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.datasets.base import RetrievalDataset
from pyterrier_cascade.datasets.collection import RetrievalCollection, RetrievalData
from pyterrier_cascade.datasets.download import DataFile
from pyterrier_cascade.datasets.files import DataFolder, Stamp, checked_folder, stamp
from pyterrier_cascade.text_files import read_json, refusing_other_shapes

RELEASES = {
    "dev-v1.1": DataFile(
        "dev-v1.1.json",
        "https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v1.1.json",
        "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
        aliases=("dev-v1.1.rebuilt.json",),
    ),
    "new_wiki_v1.0": DataFile(
        "new_wiki_v1.0.json",
        "https://raw.githubusercontent.com/modestyachts/squadshifts-website/master/datasets/new_wiki_v1.0.json",
        "1d50a0ca4cdab88d038b52ea8a2d0510af6038d7f41a0a256b9659237769d0ee",
    ),
}
LICENCES_AND_PAGES = {
    "dev-v1.1": ("CC BY-SA 4.0", "https://rajpurkar.github.io/SQuAD-explorer/"),
    "new_wiki_v1.0": ("not stated", "https://modestyachts.github.io/squadshifts-website/"),
    None: ("the file's own", None),
}
HALVES = ("even", "odd")


@dataclass(frozen=True)
class SquadFile(RetrievalCollection):
    """The paragraphs and questions of one SQuAD-shaped file; every judgement has the label 1.

    A ``docno`` is the position of the article and of the paragraph in it (``12-3``). Questions marked
    ``is_impossible`` (SQuAD 2) have no gold paragraph and are left out. The places at which answers start are not read,
    because in some distributions they are merely the first occurrences.

    Args:
        release: A known file, ``dev-v1.1`` or ``new_wiki_v1.0``.
        folder: The folder of that file. Without it the folder in ``PTC_DATA`` is used, and without that the file is
            downloaded.
        file: The path of any other file, plain or gzipped, instead of a release.
        articles: ``"even"`` or ``"odd"``: only the questions about every other article, so that a model can be trained
            on one half and evaluated on the other. The paragraphs are always those of all articles.
    """

    release: str | None = None
    folder: str | None = None
    file: str | None = None
    articles: str | None = None

    text_fields = ("text", "title")
    fields_in_name = ("release",)
    notes = "qrels = the paragraph that the question was written for; questions marked is_impossible are left out"
    data_folder: ClassVar = DataFolder(("squad", "squadshifts"), RELEASES)

    def __post_init__(self):
        object.__setattr__(self, "folder", checked_folder(self.folder))
        if self.file is not None:
            object.__setattr__(self, "file", os.fspath(self.file))
        if self.articles is not None:
            check_choices(articles=(self.articles, HALVES))

    @property
    def name(self) -> str:
        """The name after ``as2:``."""
        return "squad-open" if self.release is None else f"squad-open/{self.release}"

    @property
    def licence(self) -> str:
        """The licence of the text."""
        return LICENCES_AND_PAGES[self.release][0]

    @property
    def url(self) -> str | None:
        """The page of the data set."""
        return LICENCES_AND_PAGES[self.release][1]

    @property
    def part(self) -> str | None:
        """The half of the articles; None for all of them."""
        return self.articles

    def check(self) -> None:
        """Raises ValueError unless there is either a release or a file."""
        if (self.release is None) == (self.file is None):
            raise ValueError(
                f"as2:{self.name} with file={self.file!r}; use as2:squad-open/<name> with a name among "
                f"{', '.join(RELEASES)}, or as2:squad-open with file='path/to/squad-shaped.json'"
            )

    def read(self) -> RetrievalData:
        """Returns the parsed file, without the questions about other articles.

        Raises:
            FileNotFoundError: If the file is missing.
            ValueError: If the file does not have the shape of SQuAD.
        """
        self.check()
        file = stamp(self._path())
        return _parse(file) if self.articles is None else _half(file, self.articles)

    def _path(self) -> str | os.PathLike:
        if self.file is None:
            return self.data_folder.locate(self.release, self.folder)
        path = os.path.expanduser(self.file)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"there is no file {self.file!r}; file=... takes a SQuAD-shaped .json or .json.gz")
        return path


class SquadOpen(RetrievalDataset):
    """The paragraphs of a SQuAD-shaped file to retrieve from, with its questions and answers."""

    collection: SquadFile

    def get_answers(self) -> pd.DataFrame:
        """Returns every annotated answer, repetitions included: ``qid, answer``."""
        return self.collection.read().answers.copy()


@lru_cache(maxsize=4)
def _parse(file: Stamp) -> RetrievalData:
    path = file[0]
    documents, topics, answers = [], [], []
    for docno, title, paragraph in _paragraphs(path):
        with refusing_other_shapes(f"{path}: paragraph {docno} does not have the shape of SQuAD"):
            documents.append((docno, paragraph["context"], title))
            for question in paragraph["qas"]:
                if not question.get("is_impossible", False):
                    qid = str(question["id"])
                    topics.append((qid, question["question"], docno))
                    answers += [(qid, answer["text"]) for answer in question.get("answers", [])]
    asked = pd.DataFrame(topics, columns=["qid", "query", "docno"], dtype=str)
    twice = asked["qid"][asked["qid"].duplicated()].tolist()
    if twice:
        raise ValueError(f"{path}: question id {twice[0]!r} occurs more than once")
    return RetrievalData(
        pd.DataFrame(documents, columns=["docno", "text", "title"], dtype=str).set_index("docno"),
        asked[["qid", "query"]],
        asked[["qid", "docno"]].assign(label=1),
        pd.DataFrame(answers, columns=["qid", "answer"], dtype=str),
    )


def _paragraphs(path: str) -> Iterator[tuple[str, str, Any]]:
    record = read_json(path)
    with refusing_other_shapes(f"{path}: not 'data', a list of articles with 'paragraphs', as in SQuAD"):
        for a, article in enumerate(record["data"]):
            for p, paragraph in enumerate(article["paragraphs"]):
                yield f"{a}-{p}", article.get("title", ""), paragraph


@lru_cache(maxsize=4)
def _half(file: Stamp, articles: str) -> RetrievalData:
    squad = _parse(file)
    number = squad.qrels["docno"].str.split("-").str[0].astype(int)
    qrels = squad.qrels[number % 2 == HALVES.index(articles)]
    asked = (frame[frame["qid"].isin(qrels["qid"])] for frame in (squad.topics, qrels, squad.answers))
    return RetrievalData(squad.documents, *(frame.reset_index(drop=True) for frame in asked))
