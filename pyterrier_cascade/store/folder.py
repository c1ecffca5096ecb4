"""The folder of a document store: its files, and the shards that count.

========================  =============================================================================================
``pt_meta.json``          What made the states: written first.
``shard-NNNNN/``          A shard of the corpus that was built: it counts as soon as it is there.
``end.json``              The size of that corpus: written when a build has seen its end.
``changes.json``          What was added, replaced and deleted since: one rename makes a whole change count.
``added-NNNNN/``          A shard that a change wrote: it counts while ``changes.json`` lists it.
``index-*/``              The small arrays of all shards and the look-up of docnos: made again from the shards.
========================  =============================================================================================
"""

import contextlib
import os
import re
import shutil
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from pyterrier_cascade.checks import is_count
from pyterrier_cascade.store import locks, publish
from pyterrier_cascade.store.shards import Shard

META, END, CHANGES = "pt_meta.json", "end.json", "changes.json"
LOCK, CHANGING = ".lock", ".changing"
"""The first is held for a moment while the index is exchanged, the second throughout a change."""
MOST_SHARDS = 1_000_000
"""The most shards of a store; a damaged file that counts more would be believed for hours."""
BUILT, ADDED = re.compile(r"shard-(\d{5,})"), re.compile(r"added-(\d{5,})")


NOT_COMPARED = {publish.SEAL, "model", "parts"}
"""These fields of ``pt_meta.json`` may differ. The fingerprint says which encoder it was, the name may be a path, and
the parts describe the layers that join states."""


def first_difference(one: Mapping[str, Any], other: Mapping[str, Any], but: Set[str] = frozenset()) -> str | None:
    """Returns the first setting in which two stores differ, so that their states do not belong together.

    Args:
        one: The ``pt_meta.json`` of one store.
        other: That of the other store.
        but: Further fields that may differ.
    """
    keys = sorted((one.keys() | other.keys()) - NOT_COMPARED - but)
    return next((key for key in keys if one.get(key) != other.get(key)), None)


def shard_name(number: int) -> str:
    """Returns the name of the folder of a built shard."""
    return f"shard-{number:05d}"


def added_name(number: int) -> str:
    """Returns the name of the folder of a shard that a change wrote."""
    return f"added-{number:05d}"


@dataclass(frozen=True)
class Changes:
    """What changed since the build. Every change writes one such record in the place of the one before.

    Attributes:
        added: The numbers of the added shards, ascending.
        removed: The numbers of the built shards that :meth:`DocumentStore.compact` wrote anew.
        dead: The rows of each shard that were deleted or replaced, ascending.
        next: The number of the next added shard; a number is never given twice. 0 while nothing changed.
    """

    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    dead: Mapping[int, list[int]] = field(default_factory=dict)
    next: int = 0

    @classmethod
    def read(cls, folder: Path) -> "Changes":
        """Returns the record of a store; an empty one where nothing changed."""
        try:
            fields = publish.read_sealed(folder / CHANGES)
        except FileNotFoundError:
            return cls()
        try:
            dead = {number: list(rows) for number, rows in fields["dead"]}
            found = cls(tuple(fields["added"]), tuple(fields["removed"]), dead, fields["next"])
            numbers = (*found.added, *found.removed, *dead, *chain.from_iterable(dead.values()), found.next)
            if all(is_count(number, least=0) for number in numbers):
                return found
        except (KeyError, TypeError, ValueError):
            pass
        raise ValueError(f"{str(folder / CHANGES)!r} is damaged: it does not say which shards and documents changed")

    def _fields(self) -> dict[str, Any]:
        dead = [[number, rows] for number, rows in sorted(self.dead.items())]
        return {"added": list(self.added), "removed": list(self.removed), "dead": dead, "next": self.next}

    @property
    def seal(self) -> str:
        """The hash of the record, by which it is told from others."""
        return publish.seal(self._fields())

    def publish(self, folder: Path) -> None:
        """Makes this record the one of a store."""
        publish.publish_file(folder / CHANGES, publish.sealed(self._fields()))


@dataclass(frozen=True)
class StoreFolder:
    """The folder of a store as it was at one moment: which shards count follows from the changes that counted then.

    Attributes:
        path: The folder.
        meta: The content of its ``pt_meta.json``.
        changes: What changed since the build.
    """

    path: Path
    meta: Mapping[str, Any]
    changes: Changes

    @classmethod
    def now(cls, path: Path, meta: Mapping[str, Any]) -> "StoreFolder":
        """Returns the folder with the changes that count now."""
        return cls(path, meta, Changes.read(path))

    @property
    def is_current(self) -> bool:
        """Whether nothing was changed since."""
        return Changes.read(self.path) == self.changes

    @property
    def end(self) -> dict[str, int] | None:
        """The ``n_documents`` and ``n_shards`` of the corpus that was built; None while no build has seen its end."""
        if not (self.path / END).is_file():
            return None
        end = publish.read_sealed(self.path / END)
        if not all(is_count(end.get(name), least=0) for name in ("n_documents", "n_shards")):
            raise ValueError(f"{str(self.path / END)!r} is damaged: it counts neither documents nor shards")
        _check_many(self.path / END, end["n_shards"])
        return end

    def built(self) -> list[int]:
        """Returns the numbers of the built shards that are on disk, ascending."""
        return _numbers(self.path, BUILT)

    def numbers(self) -> list[int]:
        """Returns the numbers of the shards that are there and count, ascending."""
        added = set(_numbers(self.path, ADDED)) & set(self.changes.added)
        return sorted((set(self.built()) - set(self.changes.removed)) | added)

    def missing(self) -> list[int]:
        """Returns the numbers of the shards that are known to be missing, ascending."""
        there, end = self.numbers(), self.end
        _check_many(self.path, max(there, default=0))
        n_built = end["n_shards"] if end else max(there, default=-1) + 1
        return sorted((set(range(n_built)) - set(self.changes.removed) | set(self.changes.added)) - set(there))

    def place(self, number: int) -> Path:
        """Returns the folder of a shard."""
        return self.path / (added_name(number) if number in self.changes.added else shard_name(number))

    def shard(self, number: int) -> Shard:
        """Returns a shard, opened."""
        return Shard(self.place(number), self.meta)

    def shards(self) -> dict[int, Shard]:
        """Returns the shards that count by their numbers, opened."""
        return {number: self.shard(number) for number in self.numbers()}

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Lets one process at a time exchange the index."""
        return locks.alone(self.path / LOCK)

    def changing(self) -> contextlib.AbstractContextManager[None]:
        """Lets one process at a time change the documents."""
        return locks.alone(self.path / CHANGING)

    def sweep(self) -> None:
        """Removes the shards that do not count: those of killed changes, and those that were written anew."""
        left = [added_name(number) for number in set(_numbers(self.path, ADDED)) - set(self.changes.added)]
        left += [shard_name(number) for number in set(self.built()) & set(self.changes.removed)]
        for name in left:
            shutil.rmtree(self.path / name, ignore_errors=True)


def _check_many(place: Path, n_shards: int) -> None:
    """Raises where a file or a folder says that a store has more shards than one can have."""
    if n_shards > MOST_SHARDS:
        raise ValueError(
            f"{str(place)!r} says that there are {n_shards} shards, more than the {MOST_SHARDS} that a cache can have; "
            "it is damaged: build the cache anew"
        )


def _numbers(folder: Path, pattern: re.Pattern) -> list[int]:
    return sorted(int(match[1]) for name in os.listdir(folder) if (match := pattern.fullmatch(name)))
