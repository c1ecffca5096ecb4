"""Changing a finished document store: add, replace, delete and compact.

A change first writes its new shards, which do not count yet, and the index that will belong to them. Then it renames
one file, ``changes.json``, into place: from this moment on the whole change counts. A process that is killed before
leaves the documents as they were; the next change removes its unfinished shards.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pyterrier_cascade.checks import is_count
from pyterrier_cascade.store import publish
from pyterrier_cascade.store.documents import checked, chunks, documents_of, some
from pyterrier_cascade.store.encoding import Encode, batches
from pyterrier_cascade.store.folder import Changes, added_name
from pyterrier_cascade.store.indexing import publish_index, remove_others
from pyterrier_cascade.store.progress import progress
from pyterrier_cascade.store.shards import ShardWriter

if TYPE_CHECKING:
    from pyterrier_cascade.store.store import DocumentStore

COPIED = 1_000
"""The documents that are copied together."""


class Change:
    """A change under way. Nothing that it writes counts before :meth:`finish`.

    Args:
        store: The store, which sees all documents that count.
    """

    def __init__(self, store: "DocumentStore"):
        self.folder = store.folder
        self.new: list[int] = []
        self._next = self.folder.changes.next or self.folder.end["n_shards"]

    @contextmanager
    def shard(self) -> Iterator[ShardWriter]:
        """Yields the writer of a new shard. It is finished when the block ends."""
        path = self.folder.path / added_name(self._next)
        with publish.publishing_folder(path) as unfinished, ShardWriter(unfinished, self.folder.meta) as writer:
            yield writer
        self.new.append(self._next)
        self._next += 1

    def finish(self, *, dead: Iterable[int] = (), rewritten: Iterable[int] = ()) -> None:
        """Makes the change count, in one step.

        Args:
            dead: The numbers of the documents that do not count any more.
            rewritten: The numbers of the shards whose documents are in the new shards now.
        """
        before = self.folder.changes
        # An added shard that somebody took away is forgotten.
        kept = set(self.folder.numbers()) - set(rewritten)
        rows = {number: list(rows) for number, rows in before.dead.items() if number in kept}
        for number in dead:
            rows.setdefault(number >> 40, []).append(number >> 16 & 0xFFFFFF)
        after = Changes(
            added=tuple(sorted({*(kept & set(before.added)), *self.new})),
            removed=tuple(sorted({*before.removed, *rewritten} - set(before.added))),
            dead={number: sorted(found) for number, found in rows.items()},
            next=self._next,
        )
        with self.folder.alone():
            # The index finds a docno that two documents have, before anything counts.
            index = publish_index(replace(self.folder, changes=after))
            after.publish(self.folder.path)
            remove_others(self.folder.path, index)


@contextmanager
def changing(store: "DocumentStore") -> Iterator[Change]:
    """Yields a change; one process at a time changes a store.

    Args:
        store: The store. It sees the change when the block ends.
    """
    with (
        publish.explaining_full_disk(f"the disk with {str(store.path)!r} is full; nothing was changed: make room"),
        store.folder.changing(),
    ):
        store.refresh()
        folder = store.folder
        if folder.end is None or set(folder.missing()) - set(folder.changes.added):
            raise ValueError(f"{str(store.path)!r} is not complete; build it to its end before you change it")
        publish.sweep(store.path)
        folder.sweep()
        try:
            yield Change(store)
        finally:
            store.folder.sweep()
            store.refresh()


def write(
    store: "DocumentStore",
    documents: Any,
    encode: Encode,
    replaces: bool,
    batch_size: int = 256,
    text_field: str = "text",
    verbose: bool = False,
) -> None:
    """Adds documents, or replaces those with the same docnos.

    Args:
        store: The store.
        documents: A data frame, an iterable of dictionaries, or a data set.
        encode: The model.
        replaces: Whether all docnos must be there, and not none.
        batch_size: The texts that are encoded together.
        text_field: The field with the text.
        verbose: Whether to show the progress.
    """
    if not is_count(batch_size):
        raise ValueError(f"batch_size is {batch_size!r}; give a whole number of 1 or more")
    given = checked(documents_of(documents), text_field)
    with changing(store) as change, progress("encoding documents", "documents", verbose) as done:
        seen, dead = set(), []
        for chunk in chunks(given, store.meta["shard_size"]):
            docnos = [docno for docno, _ in chunk]
            _refuse_repeated(docnos, seen)
            found = store.find(docnos)
            if replaces:
                _refuse_unknown(store, docnos, found, "replace takes documents that are there; use add for new ones")
                dead += found.tolist()
            elif (found >= 0).any():
                there = some(docno for docno, number in zip(docnos, found, strict=True) if number >= 0)
                raise ValueError(f"docno {there} is in {str(store.path)!r} already; use replace, or leave it out")
            with change.shard() as shard:
                for batch in batches(chunk, encode, batch_size, store.width):
                    shard.add(*batch)
                    done(len(batch.docnos))
        if change.new:
            change.finish(dead=dead)


def delete(store: "DocumentStore", docnos: Sequence[str]) -> None:
    """Deletes documents.

    Args:
        store: The store.
        docnos: Their names.
    """
    with changing(store) as change:
        _refuse_repeated(docnos, set())
        found = store.find(docnos)
        _refuse_unknown(store, docnos, found, "delete takes documents that are there; leave the others out")
        if len(found):
            change.finish(dead=found.tolist())


def compact(store: "DocumentStore") -> None:
    """Writes shards with deleted documents, and shards that are not full, anew without the deleted ones."""
    with changing(store) as change:
        shards, dead = change.folder.shards(), change.folder.changes.dead
        small = [number for number, shard in shards.items() if shard.n_documents < store.meta["shard_size"]]
        rewritten = sorted({*(number for number in shards if dead.get(number)), *(small if len(small) > 1 else ())})
        if not rewritten:
            return
        documents = store.documents
        documents = documents[np.isin(documents >> 40, rewritten)]
        for start in range(0, len(documents), store.meta["shard_size"]):
            with change.shard() as shard:
                copy(store, documents[start : start + store.meta["shard_size"]], shard)
        change.finish(rewritten=rewritten)


def copy(store: "DocumentStore", documents: np.ndarray, shard: ShardWriter) -> None:
    """Adds documents of a store to a shard as they are stored.

    Args:
        store: The store.
        documents: Their numbers ``(n,)``.
        shard: The shard.
    """
    for start in range(0, len(documents), COPIED):
        part = documents[start : start + COPIED]
        entries, n_entries = store.entries(part)
        found = store.read(entries)
        shard.add_stored(store.docnos(part).tolist(), found.states, found.scales, found.lengths, n_entries)


def _refuse_repeated(docnos: Sequence[str], seen: set[str]) -> None:
    repeated = []
    for docno in docnos:
        if docno in seen:
            repeated.append(docno)
        seen.add(docno)
    if repeated:
        raise ValueError(f"docno {some(repeated)} is given more than once; give each document once")


def _refuse_unknown(store: "DocumentStore", docnos: Sequence[str], found: np.ndarray, remedy: str) -> None:
    unknown = [docno for docno, number in zip(docnos, found.tolist(), strict=True) if number < 0]
    if unknown:
        raise KeyError(f"docno {some(unknown)} is not in {str(store.path)!r}; {remedy}")
