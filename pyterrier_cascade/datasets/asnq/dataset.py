"""ASNQ and the folders that :func:`build` makes, as collections of the data set provider."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import pandas as pd

from pyterrier_cascade.checks import warn_user
from pyterrier_cascade.datasets.asnq.built_folder import MANIFEST, pages_of, read_manifest
from pyterrier_cascade.datasets.asnq.questions import Question, read_official, to_split
from pyterrier_cascade.datasets.asnq.selection import (
    SPLITS,
    NegativesLike,
    checked_negatives,
    halves,
    list_path,
    read_question_lists,
    selected_positions,
)
from pyterrier_cascade.datasets.collection import LabelledCollection, Split
from pyterrier_cascade.datasets.download import DataFile
from pyterrier_cascade.datasets.files import ENV, DataFolder, Stamp, checked_folder, stamp
from pyterrier_cascade.datasets.modes import Mode

TAR = "https://d3t7erp6ge410c.cloudfront.net/tanda-aaai-2020/data/asnq.tar"


@dataclass(frozen=True)
class AsnqBase(LabelledCollection):
    """The base of ASNQ and of folders built like it: dev becomes dev and test, and negatives may be sampled.

    ``label`` is 1 for the four-way label 4 and 0 for the others; the column ``asnq_label`` keeps all four
    (TA-10). All questions count in training; dev and test are measured on those with an answer sentence (X-1).

    Args:
        folder: The folder of the files; without it the folder in ``PTC_DATA``.
        questions: The folder of the Cascade Transformer's question lists (CT-37). With it, a split consists of the
            questions in its list; without it, dev is halved by ``split_seed``.
        split_seed: The seed that decides which half of dev becomes test.
        negatives: The wrong answers to keep, and the number of each that a question keeps, as in ``(2, 3)`` or
            ``{1: 10, 2: 5, 3: None}`` (see :func:`select_negatives`). In the official files a sample is drawn from the
            lines of a question that stand together. Without it all wrong answers are kept, and ASNQ's train part takes
            several gigabytes as a frame. The corpus holds only the sentences that are kept.
        sample_seed: The seed of the sample.
    """

    folder: str | None = None
    questions: str | None = None
    split_seed: int = 0
    negatives: NegativesLike | None = None
    sample_seed: int = 0

    default_modes: ClassVar = {"train": Mode.RAW, "dev": Mode.NO_ALL_MINUS, "test": Mode.NO_ALL_MINUS}

    def __post_init__(self):
        object.__setattr__(self, "folder", checked_folder(self.folder))
        object.__setattr__(self, "questions", checked_folder(self.questions))
        if self.negatives is not None:
            object.__setattr__(self, "negatives", checked_negatives(self.negatives))

    @abstractmethod
    def iter_part(self, part: str) -> Iterator[Question]:
        """Yields all questions of ``train``, or of ``dev`` before it is halved."""

    @abstractmethod
    def stamps(self) -> tuple[Stamp, ...]:
        """Returns the stamps of the files, so that changed files are read again."""

    @property
    def notes(self) -> str:
        """The division of dev, and the negatives that are kept."""
        halved = f"halves of dev by split_seed={self.split_seed}, which are not the published ones"
        split = halved if self.questions is None else f"by the question lists in {self.questions}"
        kept = "all" if self.negatives is None else f"{self.negatives} by sample_seed={self.sample_seed}"
        return f"label 1 = asnq_label 4; dev and test: {split}; negatives: {kept}"

    def iter_questions(self, split: str) -> Iterator[Question]:
        """Yields the questions of a split with the selected candidates, one at a time.

        Warns:
            UserWarning: If the list of this split has questions that are not in the files.
        """
        wanted = self._wanted(split)
        missing = set(wanted) if self.questions is not None else set()
        for question in self.iter_part("train" if split == "train" else "dev"):
            key = question.query if self.questions is not None else question.group
            if wanted is None or key in wanted:
                missing.discard(key)
                yield self._sampled(question)
        if missing:
            warn_user(
                f"as2:{self.name}/{split}: {len(missing):,} of the {len(wanted):,} questions in unique.{split} are "
                f"not in the files, for instance {min(missing)!r}"
            )

    def split(self, name: str) -> Split:
        """Returns one split as frames.

        Raises:
            ValueError: If the files have no question for it.
        """
        return _split(self, self._version(), name)

    def documents(self) -> pd.DataFrame:
        """Returns the candidates of all splits, each once."""
        return _documents(self, self._version())

    def _version(self) -> tuple[Stamp, ...]:
        lists = [] if self.questions is None else [stamp(list_path(self.questions, split)) for split in SPLITS]
        return (*lists, *self.stamps())

    def _sampled(self, question: Question) -> Question:
        if self.negatives is None:
            return question
        return question.take(
            selected_positions(question.qid, question.docnos, question.labels, self.negatives, self.sample_seed)
        )

    def _wanted(self, split: str) -> frozenset[str] | None:
        if self.questions is not None:
            return read_question_lists(self.questions)[split]
        return None if split == "train" else _halves(self, self.stamps(), self.split_seed)[split]


@dataclass(frozen=True)
class Asnq(AsnqBase):
    """ASNQ from its official files, ``train.tsv`` and ``dev.tsv``, plain or gzipped (TA-10, TA-11).

    The files are not downloaded: get the archive, unpack it and name the folder.
    """

    name = "asnq"
    licence = "see the page; the text is that of the Natural Questions (CC BY-SA 3.0)"
    url = "https://github.com/alexa/wqa_tanda"
    data_folder: ClassVar = DataFolder(
        ("asnq", "data/asnq"), {part: DataFile(f"{part}.tsv") for part in ("train", "dev")}, f"unpack {TAR}"
    )

    def iter_part(self, part: str) -> Iterator[Question]:
        """Yields the questions of one file."""
        return read_official(self.data_folder.locate(part, self.folder))

    def stamps(self) -> tuple[Stamp, ...]:
        """Returns the stamps of the two files."""
        return tuple(stamp(self.data_folder.locate(part, self.folder)) for part in ("train", "dev"))


@dataclass(frozen=True)
class AsnqLike(AsnqBase):
    """A folder that :func:`build` made, from the Natural Questions or from SQuAD-shaped files.

    A ``docno`` is the name of the page and the position of the sentence in it. In a folder made from SQuAD-shaped
    files, dev and test share no article with train. They share none with each other either, unless question lists
    divide them.
    """

    name = "asnq-like"
    licence = "that of the files it was built from"
    url = "https://arxiv.org/abs/1911.04118"
    data_folder: ClassVar = DataFolder(("asnq-like",), {})

    def iter_part(self, part: str) -> Iterator[Question]:
        """Yields the questions of one part; shards without questions of that part are not opened."""
        (folder, manifest), seen = self._finished(), set()
        for shard in manifest["shards"]:
            if not shard["counts"].get(part, {}).get("questions"):
                continue
            for page in pages_of(folder, shard):
                if page.part == part:
                    docnos = [f"{page.name}-{position}" for position in range(len(page.sentences))]
                    for qid, query, labels in page.questions:
                        if qid in seen:
                            raise ValueError(
                                f"as2:{self.name}/{part}: question id {qid!r} occurs more than once in {folder}; was "
                                "it built of two files with the same questions?"
                            )
                        seen.add(qid)
                        group = page.article if manifest["halve_by"] == "page" else query
                        yield Question(qid, query, group, docnos, page.sentences, [int(label) for label in labels])

    def stamps(self) -> tuple[Stamp, ...]:
        """Returns the stamp of the manifest."""
        return (stamp(self._finished()[0] / MANIFEST),)

    def _finished(self) -> tuple[Path, dict]:
        places = self.data_folder.places(self.folder)
        if not places:
            raise FileNotFoundError(f"as2:{self.name} is a folder that build made; name it with folder=... or {ENV}")
        folder = next((place for place in places if (place / MANIFEST).is_file()), places[0])
        return folder, read_manifest(folder)


@lru_cache(maxsize=3)
def _split(collection: AsnqBase, files: tuple[Stamp, ...], name: str) -> Split:
    split = to_split(collection.iter_questions(name))
    if split.topics.empty:
        raise ValueError(
            f"as2:{collection.name}/{name}: {files[-1][0]} has no question for it; {collection.notes}. Build the "
            f"folder with files for it, or name other question lists"
        )
    return split


@lru_cache(maxsize=2)
def _documents(collection: AsnqBase, files: tuple[Stamp, ...]) -> pd.DataFrame:
    texts: dict[str, str] = {}
    for split in collection.default_modes:
        for question in collection.iter_questions(split):
            texts.update(zip(question.docnos, question.texts, strict=True))
    return pd.DataFrame(list(texts.items()), columns=["docno", "text"], dtype=str).set_index("docno")


@lru_cache(maxsize=4)
def _halves(collection: AsnqBase, files: tuple[Stamp, ...], seed: int) -> dict[str, frozenset[str]]:
    return halves((question.group for question in collection.iter_part("dev")), seed)
