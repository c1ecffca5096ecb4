"""Checking that a document store is what was written."""

import filecmp
import tempfile
from pathlib import Path

import numpy as np

from pyterrier_cascade.store.dtypes import DTYPES
from pyterrier_cascade.store.folder import StoreFolder, shard_name
from pyterrier_cascade.store.indexing import index_name, write_index
from pyterrier_cascade.store.progress import progress
from pyterrier_cascade.store.publish import sha256
from pyterrier_cascade.store.shards import TOKENS, Shard


def faults(folder: StoreFolder, verbose: bool) -> list[str]:
    """Returns the faults of a store, each with its place. It reads everything.

    Args:
        folder: The folder of the store.
        verbose: Whether to show the progress.
    """
    found, shards, numbers = [], {}, folder.numbers()
    with progress("verifying", "shards", verbose, len(numbers)) as done:
        for number in numbers:
            try:
                shards[number] = folder.shard(number)
                found += _contents(shards[number]) or _counts(shards[number])
            except (ValueError, OSError) as error:
                found.append(str(error))
            done(1)
    found += _missing(folder)
    return found or _ends(folder, shards) or _index(folder, shards)


def _contents(shard: Shard) -> list[str]:
    wrong = [name for name, file in shard.meta["files"].items() if sha256(shard.folder / name) != file["sha256"]]
    return [f"{str(shard.folder / name)!r} is damaged: it is not what was written" for name in wrong]


def _counts(shard: Shard) -> list[str]:
    entries, offsets = (shard.array(name).astype(np.int64) for name in ("entries", "offsets"))
    n_documents, n_entries, n_tokens = (shard.meta[name] for name in ("n_documents", "n_entries", "n_tokens"))
    row_bytes = shard.meta["width"] * DTYPES[shard.meta["dtype"]].stored.itemsize
    agree = (
        len(entries) == n_documents + 1
        and len(offsets) == n_entries + 1
        and (entries[0], entries[-1], offsets[0], offsets[-1]) == (0, n_entries, 0, n_tokens)
        and (np.diff(entries) > 0).all()
        and (np.diff(offsets) > 0).all()
        and shard.meta["files"][TOKENS]["bytes"] == n_tokens * row_bytes
        and len(shard.array("checks")) == n_entries
        and len(shard.docnos()) == len(shard.array("hashes")) == n_documents
    )
    return [] if agree else [f"the counts and offsets of {str(shard.folder)!r} contradict each other"]


def _missing(folder: StoreFolder) -> list[str]:
    end = folder.end
    found = [f"{folder.place(number).name} is missing" for number in folder.missing()]
    if end is None:
        return [*found, "its build did not come to the end of the corpus: run it again"]
    return found + [f"{shard_name(number)} is one too many" for number in folder.built() if number >= end["n_shards"]]


def _ends(folder: StoreFolder, shards: dict[int, Shard]) -> list[str]:
    end, there = folder.end, sum(shard.n_documents for shard in shards.values())
    found = [
        f"{str(shard.folder)!r} has fewer documents than were deleted from it"
        for number, shard in shards.items()
        if max(folder.changes.dead.get(number, ()), default=-1) >= shard.n_documents
    ]
    if not folder.changes.next and end["n_documents"] != there:
        found.append(f"it holds {there} documents of {end['n_documents']}")
    return found


def _index(folder: StoreFolder, shards: dict[int, Shard]) -> list[str]:
    with tempfile.TemporaryDirectory() as fresh:
        try:
            write_index(Path(fresh), shards, folder.changes)
        except ValueError as error:
            return [str(error)]
        there = folder.path / index_name(shards, folder.changes)
        names = [path.name for path in Path(fresh).iterdir()]
        if not there.is_dir() or not any(filecmp.cmpfiles(fresh, there, names, shallow=False)[1:]):
            return []
    return [f"{str(there)!r} is damaged; delete that folder, it is made again from the shards"]
