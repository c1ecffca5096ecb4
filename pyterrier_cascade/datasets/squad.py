"""SQuAD as a retrieval test: paragraphs to find, questions to ask (Rajpurkar et al., EMNLP 2016)."""

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import pandas as pd

from pyterrier_cascade.datasets.collection import Collection, checked_folder
from pyterrier_cascade.datasets.download import DataFile
from pyterrier_cascade.datasets.files import Shelf, Stamp, read_text, stamp

SHELVES = {
    "dev-v1.1": Shelf(
        "squad",
        {
            "dev-v1.1": DataFile(
                "dev-v1.1.json",
                "https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v1.1.json",
                "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
                aliases=("dev-v1.1.rebuilt.json",),
            )
        },
    ),
    "new_wiki_v1.0": Shelf(
        "squadshifts",
        {
            "new_wiki_v1.0": DataFile(
                "new_wiki_v1.0.json",
                "https://raw.githubusercontent.com/modestyachts/squadshifts-website/master/datasets/new_wiki_v1.0.json",
                "1d50a0ca4cdab88d038b52ea8a2d0510af6038d7f41a0a256b9659237769d0ee",
            )
        },
    ),
}
INFO = {
    "dev-v1.1": ("CC BY-SA 4.0", "https://rajpurkar.github.io/SQuAD-explorer/"),
    "new_wiki_v1.0": ("not stated", "https://modestyachts.github.io/squadshifts-website/"),
    None: ("the file's own", None),
}
HALVES = ("even", "odd")


class Squad(NamedTuple):
    """A parsed file: ``documents`` (text, title; by docno), ``topics``, ``qrels`` and ``answers`` (qid, answer)."""

    documents: pd.DataFrame
    topics: pd.DataFrame
    qrels: pd.DataFrame
    answers: pd.DataFrame


@dataclass(frozen=True)
class SquadFile(Collection):
    """The paragraphs and questions of one SQuAD-shaped file.

    A ``docno`` is the position of the article and of the paragraph in it (``12-3``). Questions marked
    ``is_impossible`` (SQuAD 2) have no gold paragraph and are left out. Where an answer starts is not read: in some
    distributions it is merely the first occurrence.

    Args:
        release: A file that we know, ``dev-v1.1`` or ``new_wiki_v1.0``.
        folder: Where that file is; without it ``PTC_DATA``, and without that it is downloaded.
        file: The path of any other file, plain or gzipped, instead of a release.
        articles: ``"even"`` or ``"odd"``: the questions about every other article alone, so that one can train on one
            half and evaluate on the other. The paragraphs are always those of all articles.
    """

    release: str | None = None
    folder: str | None = None
    file: str | None = None
    articles: str | None = None

    text_fields = ("text", "title")
    notes = "qrels = the paragraph that the question was written for; questions marked is_impossible are left out"

    def __post_init__(self):
        """Refuses a folder that does not exist, and other articles than a half."""
        object.__setattr__(self, "folder", checked_folder(self.folder))
        if self.file is not None:
            object.__setattr__(self, "file", os.fspath(self.file))
        if self.articles not in (None, *HALVES):
            raise ValueError(f"articles={self.articles!r}; choose among {', '.join(HALVES)}, or leave it out")

    @property
    def name(self) -> str:
        """The name after ``as2:``."""
        return "squad-open" if self.release is None else f"squad-open/{self.release}"

    @property
    def licence(self) -> str:
        """The licence of the text."""
        return INFO[self.release][0]

    @property
    def url(self) -> str | None:
        """The page of the data set."""
        return INFO[self.release][1]

    def options(self) -> dict:
        """Returns the settings that differ from their defaults, without the release, which is in the name."""
        return {key: value for key, value in super().options().items() if key != "release"}

    def check(self) -> None:
        """Raises ValueError unless there is either a release or a file."""
        if (self.release is None) == (self.file is None):
            raise ValueError(
                f"as2:{self.name} with file={self.file!r}; use as2:squad-open/<name> with a name among "
                f"{', '.join(SHELVES)}, or as2:squad-open with file='path/to/squad-shaped.json'"
            )

    def read(self) -> Squad:
        """Returns the parsed file, questions about other articles left out.

        Raises:
            FileNotFoundError: If it is not there.
            ValueError: If it does not have the shape of SQuAD.
        """
        self.check()
        file = stamp(self._path())
        return _parse(file) if self.articles is None else _half(file, self.articles)

    def _path(self) -> str | os.PathLike:
        if self.file is None:
            return SHELVES[self.release].locate(self.release, self.folder)
        path = os.path.expanduser(self.file)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"there is no file {self.file!r}; file=... takes a SQuAD-shaped .json or .json.gz")
        return path

    def documents(self) -> pd.DataFrame:
        """Returns the paragraphs."""
        return self.read().documents


@lru_cache(maxsize=4)
def _parse(file: Stamp) -> Squad:
    path = file[0]
    documents, topics, answers = [], [], []
    for docno, title, paragraph in _paragraphs(path, _load(path)):
        try:
            documents.append((docno, paragraph["context"], title))
            for question in paragraph["qas"]:
                if not question.get("is_impossible", False):
                    qid = str(question["id"])
                    topics.append((qid, question["question"], docno))
                    answers += [(qid, answer["text"]) for answer in question.get("answers", [])]
        except (KeyError, TypeError, AttributeError) as err:
            raise ValueError(f"{path}: paragraph {docno} does not have the shape of SQuAD ({err!r})") from err
    return _frames(path, documents, topics, answers)


@lru_cache(maxsize=4)
def _half(file: Stamp, articles: str) -> Squad:
    squad = _parse(file)
    number = squad.qrels["docno"].str.split("-").str[0].astype(int)
    qrels = squad.qrels[number % 2 == HALVES.index(articles)]
    asked = (frame[frame["qid"].isin(qrels["qid"])] for frame in (squad.topics, qrels, squad.answers))
    return Squad(squad.documents, *(frame.reset_index(drop=True) for frame in asked))


def _load(path: str) -> dict:
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as err:
        raise ValueError(f"{path}, line {err.lineno}: not JSON ({err.msg} at column {err.colno})") from err


def _paragraphs(path: str, record: dict):
    try:
        for a, article in enumerate(record["data"]):
            for p, paragraph in enumerate(article["paragraphs"]):
                yield f"{a}-{p}", article.get("title", ""), paragraph
    except (KeyError, TypeError, AttributeError) as err:
        raise ValueError(f"{path}: not 'data', a list of articles with 'paragraphs', as in SQuAD ({err!r})") from err


def _frames(path: str, documents: list, topics: list, answers: list) -> Squad:
    asked = pd.DataFrame(topics, columns=["qid", "query", "docno"], dtype=str)
    twice = asked["qid"][asked["qid"].duplicated()].tolist()
    if twice:
        raise ValueError(f"{path}: question id {twice[0]!r} occurs more than once")
    return Squad(
        pd.DataFrame(documents, columns=["docno", "text", "title"], dtype=str).set_index("docno"),
        asked[["qid", "query"]],
        asked[["qid", "docno"]].assign(label=1),
        pd.DataFrame(answers, columns=["qid", "answer"], dtype=str),
    )
