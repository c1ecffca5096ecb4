"""Whether a document cache is what was written."""

import filecmp
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyterrier as pt

from pyterrier_cascade.dcbert.catalog import catalog_name, write_catalog
from pyterrier_cascade.dcbert.layout import opened, read_end, read_meta, shard_numbers
from pyterrier_cascade.dcbert.shards import TOKENS, Shard, shard_name
from pyterrier_cascade.store.publish import sha256


def faults(folder: Path, verbose: bool) -> list[str]:
    """Returns what is wrong with a cache, each with its name; reads everything."""
    found, shards, meta = [], {}, read_meta(folder)
    for number in pt.tqdm(shard_numbers(folder), desc="verifying", unit=" shards", disable=not verbose):
        try:
            shard = opened(folder, number, meta)
            shards[number] = shard
            found += _contents(shard) or _counts(shard)
        except (ValueError, OSError) as error:
            found.append(str(error))
    found += _missing(folder, shard_numbers(folder))
    return found or _ends(folder, shards) or _catalog(folder, shards)


def _contents(shard: Shard) -> list[str]:
    wrong = [name for name, file in shard.meta["files"].items() if sha256(shard.folder / name) != file["sha256"]]
    return [f"{str(shard.folder / name)!r} is damaged: it is not what was written" for name in wrong]


def _counts(shard: Shard) -> list[str]:
    entries, offsets = (shard.array(name).astype(np.int64) for name in ("entries", "offsets"))
    n_documents, n_entries, n_tokens = (shard.meta[name] for name in ("n_documents", "n_entries", "n_tokens"))
    agree = (
        len(entries) == n_documents + 1
        and len(offsets) == n_entries + 1
        and (entries[0], entries[-1], offsets[0], offsets[-1]) == (0, n_entries, 0, n_tokens)
        and (np.diff(entries) > 0).all()
        and (np.diff(offsets) > 0).all()
        and shard.meta["files"][TOKENS]["bytes"] == n_tokens * shard.row_bytes
        and len(shard.array("checks")) == n_entries
        and len(shard.docnos()) == len(shard.array("hashes")) == n_documents
    )
    return [] if agree else [f"the counts and offsets of {str(shard.folder)!r} contradict each other"]


def _missing(folder: Path, there: list[int]) -> list[str]:
    end = read_end(folder)
    last = end["n_shards"] if end else max(there, default=-1) + 1
    found = [f"{shard_name(number)} is missing" for number in sorted(set(range(last)) - set(there))]
    found += [f"{shard_name(number)} is one too many" for number in there if number >= last]
    return found if end else [*found, "its build did not come to the end of the corpus: run it again"]


def _ends(folder: Path, shards: Mapping[int, Shard]) -> list[str]:
    end, there = read_end(folder), sum(shard.n_documents for shard in shards.values())
    return [] if not end or end["n_documents"] == there else [f"it holds {there} documents of {end['n_documents']}"]


def _catalog(folder: Path, shards: Mapping[int, Shard]) -> list[str]:
    with tempfile.TemporaryDirectory() as fresh:
        try:
            write_catalog(Path(fresh), shards)
        except ValueError as error:
            return [str(error)]
        there = folder / catalog_name(shards)
        names = [path.name for path in Path(fresh).iterdir()]
        if not there.is_dir() or not any(filecmp.cmpfiles(fresh, there, names, shallow=False)[1:]):
            return []
    return [f"{str(there)!r} is damaged; delete that folder, it is made again from the shards"]
