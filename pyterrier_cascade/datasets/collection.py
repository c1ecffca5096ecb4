"""What a data set is made of, apart from how PyTerrier asks for it."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import pandas as pd

from pyterrier_cascade.datasets.files import Shelf, Stamp, stamp
from pyterrier_cascade.datasets.modes import Mode


class Split(NamedTuple):
    """One split as distributed: ``topics`` (qid, query) and ``pairs`` (qid, query, docno, text, label)."""

    topics: pd.DataFrame
    pairs: pd.DataFrame


@dataclass(frozen=True)
class Collection(ABC):
    """A value that knows how to read its documents.

    It is cheap to make, compares by its settings and pickles as them; what it reads is cached beside the code and
    read again when a file changes. Frames that it returns are shared: callers copy them before handing them on.
    """

    name: ClassVar[str]
    text_fields: ClassVar[tuple[str, ...]] = ("text",)
    licence: ClassVar[str]
    url: ClassVar[str | None] = None
    notes: ClassVar[str] = ""

    @abstractmethod
    def documents(self) -> pd.DataFrame:
        """Returns the documents: the index is the ``docno``, the columns are ``text_fields``."""

    def options(self) -> dict[str, Any]:
        """Returns the settings that differ from their defaults."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


@dataclass(frozen=True)
class LabelledCollection(Collection):
    """A collection whose questions come with labelled candidates, in splits.

    ``default_modes`` is the use of the papers, and its keys are the splits.
    """

    default_modes: ClassVar[Mapping[str, Mode]]

    @abstractmethod
    def split(self, name: str) -> Split:
        """Returns one split, unfiltered."""


@dataclass(frozen=True)
class FiledCollection(LabelledCollection):
    """A labelled collection with one file per split.

    Args:
        folder: Where the files are; without it ``PTC_DATA``, and without that they are downloaded.
    """

    folder: str | None = None

    shelf: ClassVar[Shelf]

    def __post_init__(self):
        """Refuses a folder that does not exist."""
        object.__setattr__(self, "folder", checked_folder(self.folder))

    @classmethod
    @abstractmethod
    def parse(cls, path: str, split: str) -> Split:
        """Reads the file of a split."""

    def split(self, name: str) -> Split:
        """Returns one split, unfiltered."""
        return _parse(type(self), stamp(self.shelf.locate(name, self.folder)), name)

    def documents(self) -> pd.DataFrame:
        """Returns the candidates of all splits, each once, so that every split shares one corpus."""
        stamps = tuple(stamp(self.shelf.locate(split, self.folder)) for split in self.default_modes)
        return _merge(type(self), stamps)


def checked_folder(folder: str | os.PathLike | None) -> str | None:
    """Returns ``folder`` as a string.

    Raises:
        FileNotFoundError: If there is no such folder.
    """
    if folder is None:
        return None
    if not os.path.isdir(os.path.expanduser(folder)):
        raise FileNotFoundError(f"folder {os.fspath(folder)!r} does not exist; name the one that has the data files")
    return os.fspath(folder)


@lru_cache(maxsize=8)
def _parse(kind: type[FiledCollection], file: Stamp, split: str) -> Split:
    return kind.parse(file[0], split)


@lru_cache(maxsize=4)
def _merge(kind: type[FiledCollection], files: tuple[Stamp, ...]) -> pd.DataFrame:
    splits = zip(files, kind.default_modes, strict=True)
    documents = pd.concat([_parse(kind, file, split).pairs[["docno", "text"]] for file, split in splits])
    documents = documents.drop_duplicates()
    unclear = documents["docno"][documents["docno"].duplicated()].tolist()
    if unclear:
        names = ", ".join(file[0] for file in files)
        raise ValueError(f"docno {unclear[0]!r} has more than one text in {names}; are these files of one version?")
    return documents.set_index("docno")
