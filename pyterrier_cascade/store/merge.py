"""Joining document stores in a new folder."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyterrier_cascade.store import publish
from pyterrier_cascade.store.change import copy
from pyterrier_cascade.store.folder import END, META, StoreFolder, first_difference, shard_name
from pyterrier_cascade.store.indexing import bring_up_to_date
from pyterrier_cascade.store.shards import Shard, ShardWriter

if TYPE_CHECKING:
    from pyterrier_cascade.store.store import DocumentStore

Part = tuple["DocumentStore", int, Shard]
"""A shard, with its store and its number there."""


def merge(stores: Sequence["DocumentStore"], out: Path) -> None:
    """Makes a store of the shards of stores; see :meth:`DocumentStore.merge`."""
    if not stores:
        raise ValueError("there are no caches to merge; give a list of caches or of their folders")
    if out.exists():
        raise FileExistsError(f"{str(out)!r} exists; give another path")
    _refuse_others(stores)
    incomplete = [store for store in stores if not store.complete]
    if incomplete and len(incomplete) < len(stores):
        raise ValueError(
            f"{str(incomplete[0].path)!r} is not complete and others are; build it to its end, or merge parts of one "
            "corpus only"
        )
    parts, end = _of_one_corpus(stores) if incomplete else _one_after_the_other(stores)
    fields = stores[0].meta | {"shard_size": max(store.meta["shard_size"] for store in stores)}
    fields.pop(publish.SEAL)
    with publish.explaining_full_disk(f"no room to merge into {str(out)!r}"), publish.publishing_folder(out) as into:
        (into / META).write_bytes(publish.sealed(fields))
        for number, part in parts.items():
            folder = into / shard_name(number)
            folder.mkdir()
            _write(*part, folder)
        if end:
            (into / END).write_bytes(publish.sealed(end))
        bring_up_to_date(StoreFolder.now(into, fields))


def _refuse_others(stores: Sequence["DocumentStore"]) -> None:
    first = stores[0]
    for store in stores[1:]:
        key = first_difference(first.meta, store.meta, {"shard_size"})
        if key is not None:
            raise ValueError(
                f"{str(store.path)!r} has {key} {store.meta.get(key)!r} and {str(first.path)!r} has "
                f"{first.meta.get(key)!r}; only caches of one model with the same settings can be merged"
            )


def _parts(store: "DocumentStore") -> list[Part]:
    return [(store, number, shard) for number, shard in store.folder.shards().items()]


def _one_after_the_other(stores: Sequence["DocumentStore"]) -> tuple[dict[int, Part], dict[str, int]]:
    parts = [part for store in stores for part in _parts(store)]
    return dict(enumerate(parts)), {"n_documents": sum(map(len, stores)), "n_shards": len(parts)}


def _of_one_corpus(stores: Sequence["DocumentStore"]) -> tuple[dict[int, Part], dict[str, Any] | None]:
    ends = [end for end in (store.folder.end for store in stores) if end]
    if changed := [store for store in stores if store.folder.changes.next]:
        raise ValueError(
            f"{str(changed[0].path)!r} was changed and is not complete; add its missing documents again before you "
            "merge it"
        )
    _refuse_different("their shards have", {store.meta["shard_size"] for store in stores})
    _refuse_different("they say that it has", {end["n_documents"] for end in ends})
    parts: dict[int, Part] = {}
    for store in stores:
        for part in _parts(store):
            number, shard = part[1:]
            other = parts.setdefault(number, part)[2]
            if other.meta != shard.meta:
                raise ValueError(
                    f"{str(other.folder)!r} and {str(shard.folder)!r} are different shards with one number; "
                    "only parts of one corpus can be merged before they are complete"
                )
    return dict(sorted(parts.items())), ends[0] if ends else None


def _refuse_different(subject: str, values: Iterable[int]) -> None:
    if len(set(values)) > 1:
        counts = " and ".join(map(str, sorted(values)))
        raise ValueError(
            f"the caches are no parts of one corpus: {subject} {counts} documents; build each to its end to join them"
        )


def _write(store: "DocumentStore", number: int, shard: Shard, folder: Path) -> None:
    """Links the files of a shard into a folder; a shard with deleted documents is written anew without them."""
    if store.folder.changes.dead.get(number):
        documents = store.documents
        with ShardWriter(folder, store.meta) as writer:
            copy(store, documents[documents >> 40 == number], writer)
        return
    for path in shard.folder.iterdir():
        try:
            os.link(path, folder / path.name)
        except OSError:
            shutil.copyfile(path, folder / path.name)
