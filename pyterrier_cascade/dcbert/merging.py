"""Joining document caches."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pyterrier_cascade.dcbert.layout import END, META, opened, read_end, shard_numbers, up_to_date
from pyterrier_cascade.dcbert.shards import Shard, shard_name
from pyterrier_cascade.store import publish


def merge(caches: Sequence, out: Path) -> None:
    """Makes a cache of the shards of caches; see :meth:`DocumentCache.merge`."""
    if not caches:
        raise ValueError("there are no caches to merge")
    if out.exists():
        raise FileExistsError(f"{str(out)!r} exists; give another path")
    _refuse_others(caches)
    incomplete = [cache for cache in caches if not cache.complete]
    if incomplete and len(incomplete) < len(caches):
        raise ValueError(
            f"{str(incomplete[0].path)!r} is not complete and others are; build it to its end, or merge parts of one "
            "corpus only"
        )
    shards, end = _parts(caches) if incomplete else _one_after_the_other(caches)
    fields = caches[0].meta | {"shard_size": max(cache.meta["shard_size"] for cache in caches)}
    fields.pop(publish.SEAL)
    unfinished = out.with_name(f"{publish.TEMPORARY}{out.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with publish.full_disk_named(f"no room to merge into {str(out)!r}"), publish.Writer(unfinished) as writer:
            writer.publish(META, publish.sealed(fields))
            for number, shard in shards.items():
                with writer.publishing(shard_name(number)) as folder:
                    _link(shard, folder)
            if end:
                writer.publish(END, publish.sealed(end))
            up_to_date(unfinished, fields, writer)
        os.replace(unfinished, out)
        publish.sync(out.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _refuse_others(caches: Sequence) -> None:
    first = caches[0]
    for cache in caches[1:]:
        # The fingerprint says which encoder it was; its name may be a path, and what joins its states another one.
        for key in sorted((first.meta.keys() | cache.meta.keys()) - {publish.SEAL, "shard_size", "model", "parts"}):
            if cache.meta.get(key) != first.meta.get(key):
                raise ValueError(
                    f"{str(cache.path)!r} has {key} {cache.meta.get(key)!r} and {str(first.path)!r} has "
                    f"{first.meta.get(key)!r}; only caches of one model with the same settings can be merged"
                )


def _one_after_the_other(caches: Sequence) -> tuple[dict[int, Shard], dict[str, int]]:
    shards = [opened(cache.path, number, cache.meta) for cache in caches for number in shard_numbers(cache.path)]
    end = {"n_documents": sum(shard.n_documents for shard in shards), "n_shards": len(shards)}
    return dict(enumerate(shards)), end


def _parts(caches: Sequence) -> tuple[dict[int, Shard], dict[str, int] | None]:
    ends = [end for end in (read_end(cache.path) for cache in caches) if end]
    _refuse_different("their shards have", {cache.meta["shard_size"] for cache in caches})
    _refuse_different("they say that it has", {end["n_documents"] for end in ends})
    shards: dict[int, Shard] = {}
    for cache in caches:
        for number in shard_numbers(cache.path):
            shard = opened(cache.path, number, cache.meta)
            if number in shards and shards[number].meta != shard.meta:
                raise ValueError(
                    f"{str(shards[number].folder)!r} and {str(shard.folder)!r} are different shards with one number; "
                    "only parts of one corpus can be merged before they are complete"
                )
            shards.setdefault(number, shard)
    return dict(sorted(shards.items())), ends[0] if ends else None


def _refuse_different(what: str, values: set[int]) -> None:
    if len(values) > 1:
        counts = " and ".join(map(str, sorted(values)))
        raise ValueError(
            f"the caches are no parts of one corpus: {what} {counts} documents; build each to its end to join them"
        )


def _link(shard: Shard, folder: Path) -> None:
    for path in shard.folder.iterdir():
        try:
            os.link(path, folder / path.name)
        except OSError:
            shutil.copyfile(path, folder / path.name)
