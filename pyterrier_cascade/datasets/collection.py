"""Collections: the content of a data set, apart from the way in which PyTerrier asks for it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import pandas as pd

from pyterrier_cascade.datasets.files import DataFolder, Stamp, checked_folder, stamp
from pyterrier_cascade.datasets.modes import Mode


class Split(NamedTuple):
    """One split as distributed: ``topics`` (qid, query) and ``pairs`` (qid, query, docno, text, label)."""

    topics: pd.DataFrame
    pairs: pd.DataFrame


class RetrievalData(NamedTuple):
    """Questions for a whole corpus.

    Args:
        documents: The index is the ``docno``; the columns are the fields, such as ``text``.
        topics: The questions: ``qid, query``.
        qrels: The judgements: ``qid, docno, label``.
        answers: The answer strings, where there are such: ``qid, answer``.
    """

    documents: pd.DataFrame
    topics: pd.DataFrame
    qrels: pd.DataFrame
    answers: pd.DataFrame | None = None


@dataclass(frozen=True)
class Collection(ABC):
    """A value that knows how to read its documents.

    A collection is cheap to make, is compared by its settings and pickles as them. The content that it reads is cached
    in this process, and is read again when a file changes. The frames that it returns are shared: callers copy them
    before they hand them on.
    """

    name: ClassVar[str]
    text_fields: ClassVar[tuple[str, ...]] = ("text",)
    licence: ClassVar[str]
    url: ClassVar[str | None] = None
    notes: ClassVar[str] = ""
    fields_in_name: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def documents(self) -> pd.DataFrame:
        """Returns the documents: the index is the ``docno``, the columns are ``text_fields``."""

    @classmethod
    def option_names(cls) -> list[str]:
        """Returns the names of the settings that ``pt.get_dataset(name, ...)`` takes."""
        return [field.name for field in fields(cls) if field.name not in cls.fields_in_name]

    def options(self) -> dict[str, Any]:
        """Returns the settings that differ from their defaults and are not part of the name."""
        defaults = {field.name: field.default for field in fields(self)}
        values = {name: getattr(self, name) for name in self.option_names()}
        return {name: value for name, value in values.items() if value != defaults[name]}

    def check(self) -> None:
        """Raises ValueError if the settings do not go together; called once all of them are known."""
        return


@dataclass(frozen=True)
class LabelledCollection(Collection):
    """A collection whose questions come with labelled candidates, in splits.

    The keys of ``default_modes`` are the splits; its values are the modes in which the papers use them.
    """

    default_modes: ClassVar[Mapping[str, Mode]]

    @abstractmethod
    def split(self, name: str) -> Split:
        """Returns one split, unfiltered."""


@dataclass(frozen=True)
class LabelledFiles(LabelledCollection):
    """A labelled collection with one file per split.

    Args:
        folder: The folder of the files. Without it the folder in ``PTC_DATA`` is used, and without that the files are
            downloaded.
    """

    folder: str | None = None

    data_folder: ClassVar[DataFolder]

    def __post_init__(self):
        object.__setattr__(self, "folder", checked_folder(self.folder))

    @classmethod
    @abstractmethod
    def parse(cls, path: str, split: str) -> Split:
        """Reads the file of a split."""

    def split(self, name: str) -> Split:
        """Returns one split, unfiltered."""
        return _parse(type(self), self._stamp(name), name)

    def documents(self) -> pd.DataFrame:
        """Returns the candidates of all splits, each once, so that every split shares one corpus."""
        return _merge(type(self), tuple(map(self._stamp, self.default_modes)))

    def _stamp(self, split: str) -> Stamp:
        return stamp(self.data_folder.locate(split, self.folder))


@dataclass(frozen=True)
class RetrievalCollection(Collection):
    """A collection whose questions are asked of the whole corpus."""

    part: ClassVar[str | None] = None
    """The part of the questions that these are: a split, or a half of the articles."""

    @abstractmethod
    def read(self) -> RetrievalData:
        """Returns documents, topics and qrels."""

    def documents(self) -> pd.DataFrame:
        """Returns the documents."""
        return self.read().documents


@lru_cache(maxsize=8)
def _parse(kind: type[LabelledFiles], file: Stamp, split: str) -> Split:
    return kind.parse(file[0], split)


@lru_cache(maxsize=4)
def _merge(kind: type[LabelledFiles], files: tuple[Stamp, ...]) -> pd.DataFrame:
    splits = zip(files, kind.default_modes, strict=True)
    documents = pd.concat([_parse(kind, file, split).pairs[["docno", "text"]] for file, split in splits])
    documents = documents.drop_duplicates()
    unclear = documents["docno"][documents["docno"].duplicated()].tolist()
    if unclear:
        names = ", ".join(file[0] for file in files)
        raise ValueError(f"docno {unclear[0]!r} has more than one text in {names}; are these files of one version?")
    return documents.set_index("docno")
