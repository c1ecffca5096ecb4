"""ASNQ, and folders built in its likeness, as collections of the data set provider."""

import os
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import pandas as pd

from pyterrier_cascade.datasets.asnq.official import read_official
from pyterrier_cascade.datasets.asnq.questions import Question, to_split
from pyterrier_cascade.datasets.asnq.sampling import Wanted, checked_negatives, chosen
from pyterrier_cascade.datasets.asnq.shards import MANIFEST, read_manifest, read_shard
from pyterrier_cascade.datasets.asnq.split import SPLITS, halves, list_path, read_question_lists
from pyterrier_cascade.datasets.collection import LabelledCollection, Split, checked_folder
from pyterrier_cascade.datasets.files import ENV, Stamp, stamp
from pyterrier_cascade.datasets.modes import Mode

TAR = "https://d3t7erp6ge410c.cloudfront.net/tanda-aaai-2020/data/asnq.tar"


@dataclass(frozen=True)
class AsnqBase(LabelledCollection):
    """What ASNQ and its likenesses share: dev becomes dev and test, and negatives may be sampled.

    ``label`` is 1 for the four-way label 4 and 0 for the others; the column ``asnq_label`` keeps all four
    (TA-10). All questions count in training; dev and test are measured on those with an answer sentence (X-1).

    Args:
        folder: Where the files are; without it ``PTC_DATA``.
        questions: The folder of the Cascade Transformer's question lists (CT-37). With it a split consists of
            the questions in its list; without it dev is halved by ``split_seed``.
        split_seed: Which half of dev is test.
        negatives: Which wrong answers to keep, and how many of each for a question, as in ``(2, 3)`` or
            ``{1: 10, 2: 5, 3: None}`` (see :func:`select_negatives`; in the official files, of the lines of a question
            that stand together); without it all. What is left out is not in the corpus either. Without it, ASNQ's
            train part as a frame takes several gigabytes.
        sample_seed: Which of the negatives.
    """

    folder: str | None = None
    questions: str | None = None
    split_seed: int = 0
    negatives: Wanted | None = None
    sample_seed: int = 0

    default_modes: ClassVar = {"train": Mode.RAW, "dev": Mode.NO_ALL_MINUS, "test": Mode.NO_ALL_MINUS}

    def __post_init__(self):
        """Refuses folders that do not exist and negatives without meaning."""
        object.__setattr__(self, "folder", checked_folder(self.folder))
        object.__setattr__(self, "questions", checked_folder(self.questions))
        if self.negatives is not None:
            object.__setattr__(self, "negatives", checked_negatives(self.negatives))

    @abstractmethod
    def part(self, name: str) -> Iterator[Question]:
        """Yields all questions of ``train`` or of ``dev``, which has yet to be halved."""

    @abstractmethod
    def stamps(self) -> tuple[Stamp, ...]:
        """Returns those of the files: what has been read is read again when they change."""

    @property
    def notes(self) -> str:
        """How dev was divided, and which negatives there are."""
        halved = f"halves of dev by split_seed={self.split_seed}, which are not the published ones"
        split = halved if self.questions is None else f"by the question lists in {self.questions}"
        kept = "all" if self.negatives is None else f"{self.negatives} by sample_seed={self.sample_seed}"
        return f"label 1 = asnq_label 4; dev and test: {split}; negatives: {kept}"

    def iter_questions(self, split: str) -> Iterator[Question]:
        """Yields the questions of a split with the chosen candidates, one at a time.

        Warns:
            UserWarning: If some questions of the list of this split are not in the files.
        """
        wanted = self._wanted(split)
        missing = set(wanted) if self.questions is not None else set()
        for question in self.part("train" if split == "train" else "dev"):
            key = question.query if self.questions is not None else question.group
            if wanted is None or key in wanted:
                missing.discard(key)
                yield self._sampled(question)
        if missing:
            warnings.warn(
                f"as2:{self.name}/{split}: {len(missing):,} of the {len(wanted):,} questions in unique.{split} are "
                f"not in the files, for instance {min(missing)!r}",
                stacklevel=2,
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
        kept = chosen(question.qid, question.docnos, question.labels, self.negatives, self.sample_seed)
        return question.take(kept)

    def _wanted(self, split: str) -> frozenset[str] | None:
        if self.questions is not None:
            return read_question_lists(self.questions)[split]
        return None if split == "train" else _halves(self, self.stamps(), self.split_seed)[split]


@dataclass(frozen=True)
class Asnq(AsnqBase):
    """ASNQ from its official files, ``train.tsv`` and ``dev.tsv``, plain or gzipped (TA-10, TA-11).

    They are not downloaded: get the archive, unpack it and name the folder.
    """

    name = "asnq"
    licence = "see the page; the text is that of the Natural Questions (CC BY-SA 3.0)"
    url = "https://github.com/alexa/wqa_tanda"

    def part(self, name: str) -> Iterator[Question]:
        """Yields the questions of one file."""
        return read_official(self._path(name))

    def stamps(self) -> tuple[Stamp, ...]:
        """Returns those of the two files."""
        return tuple(stamp(self._path(part)) for part in ("train", "dev"))

    def _path(self, part: str) -> Path:
        places = _places(self, ("", "asnq", "data/asnq"))
        for place in places:
            for path in (place / f"{part}.tsv", place / f"{part}.tsv.gz"):
                if path.is_file():
                    return path
        where = f"neither in {' nor in '.join(map(str, places))}" if places else "nowhere, as no folder is named"
        raise FileNotFoundError(
            f"{part}.tsv (or {part}.tsv.gz) is {where}; unpack {TAR} and name the folder with folder=... or {ENV}"
        )


@dataclass(frozen=True)
class AsnqLike(AsnqBase):
    """A folder that :func:`build` made, from the Natural Questions or from SQuAD-shaped files.

    A ``docno`` is the name of the page and the position of the sentence in it. In a folder made from SQuAD-shaped
    files, dev and test do not share an article with train, nor with each other unless question lists are used.
    """

    name = "asnq-like"
    licence = "that of the files it was built from"
    url = "https://arxiv.org/abs/1911.04118"

    def part(self, name: str) -> Iterator[Question]:
        """Yields the questions of one part; shards without any are not opened."""
        (folder, manifest), seen = self._finished(), set()
        for shard in manifest["shards"]:
            if not shard["counts"].get(name, {}).get("questions"):
                continue
            for page in read_shard(folder / shard["name"]):
                if page.part == name:
                    docnos = [f"{page.name}-{position}" for position in range(len(page.sentences))]
                    for qid, query, labels in page.questions:
                        if qid in seen:
                            raise ValueError(
                                f"as2:{self.name}/{name}: question id {qid!r} occurs more than once in {folder}; was "
                                "it built of two files with the same questions?"
                            )
                        seen.add(qid)
                        group = page.article if manifest["halve_by"] == "page" else query
                        yield Question(qid, query, group, docnos, page.sentences, [int(label) for label in labels])

    def stamps(self) -> tuple[Stamp, ...]:
        """Returns that of the manifest."""
        return (stamp(self._finished()[0] / MANIFEST),)

    def _finished(self) -> tuple[Path, dict]:
        places = _places(self, ("", self.name))
        if not places:
            raise FileNotFoundError(f"as2:{self.name} is a folder that build made; name it with folder=... or {ENV}")
        folder = next((place for place in places if (place / MANIFEST).is_file()), places[0])
        return folder, read_manifest(folder)


def _places(collection: AsnqBase, below: tuple[str, ...]) -> list[Path]:
    named = collection.folder or os.environ.get(ENV)
    return [Path(named).expanduser() / name for name in below] if named else []


@lru_cache(maxsize=3)
def _split(collection: AsnqBase, files: tuple[Stamp, ...], name: str) -> Split:
    split = to_split(collection.iter_questions(name))
    if split.topics.empty:
        raise ValueError(
            f"as2:{collection.name}/{name}: {files[-1][0]} has no question for it; {collection.notes}. Build the "
            f"folder with files for it, or name other question lists"
        )
    twice = split.pairs.duplicated(["qid", "docno"])
    if twice.any():
        qid = split.pairs["qid"][twice].iloc[0]
        raise ValueError(f"as2:{collection.name}/{name}: question id {qid!r} occurs more than once in {files[-1][0]}")
    return split


@lru_cache(maxsize=2)
def _documents(collection: AsnqBase, files: tuple[Stamp, ...]) -> pd.DataFrame:
    texts: dict[str, str] = {}
    for split in collection.default_modes:
        for question in collection.iter_questions(split):
            texts.update(zip(question.docnos, question.texts, strict=True))
    return pd.DataFrame({"docno": list(texts), "text": list(texts.values())}, dtype=str).set_index("docno")


@lru_cache(maxsize=4)
def _halves(collection: AsnqBase, files: tuple[Stamp, ...], seed: int) -> dict[str, frozenset[str]]:
    return halves((question.group for question in collection.part("dev")), seed)
