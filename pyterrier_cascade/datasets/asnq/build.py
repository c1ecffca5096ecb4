"""Building an ASNQ-like folder: in several processes, and resumable after a crash."""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import groupby
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_cascade.checks import is_count
from pyterrier_cascade.datasets.asnq.built_folder import (
    FORMAT,
    MANIFEST,
    PLAN,
    REMEDY,
    describe_shard,
    read_manifest,
    total_counts,
    write_json,
    write_shard,
)
from pyterrier_cascade.datasets.asnq.labelling import ANSWER, label_table, table_text
from pyterrier_cascade.datasets.asnq.natural_questions import NaturalQuestions
from pyterrier_cascade.datasets.asnq.squad_shaped import SquadShaped
from pyterrier_cascade.store.publish import SEAL, explaining_full_disk, read_sealed, sha256, sweep

Source = NaturalQuestions | SquadShaped

_stop: Event | None = None


def build(
    source: Source,
    folder: str | os.PathLike,
    *,
    processes: int = 1,
    records_per_shard: int | None = None,
    verbose: bool = True,
) -> pd.DataFrame:
    """Builds the folder that ``pt.get_dataset("as2:asnq-like/train", folder=...)`` reads, and returns TA-10's table.

    Each process works through one file after the other and holds one record at a time. The content of the folder does
    not depend on the number of processes. A shard appears when it is whole, and the manifest when all shards are there.
    After a crash, the same call continues the build and loses at most one shard per process.

    With several processes, a script has to call this function below ``if __name__ == "__main__":``, because each
    process imports the script when it starts.

    Args:
        source: The files to build from.
        folder: The folder to build, made if it is missing.
        processes: The number of files that are read at the same time.
        records_per_shard: The number of records (questions, or articles of SQuAD) in a file of the folder; by default
            that of the source.
        verbose: Whether to show the progress and print the table.

    Raises:
        ValueError: If a number is not a whole number from 1, a file is damaged (the message names it, and the line), no
            question in the files has an answer, or the folder was begun with other files or settings.
    """
    records_per_shard = source.records_per_shard if records_per_shard is None else records_per_shard
    for name, value in (("processes", processes), ("records_per_shard", records_per_shard)):
        if not is_count(value):
            raise ValueError(f"{name}={value!r}; give a whole number from 1")
    folder, plan = Path(folder).expanduser(), _plan(source, records_per_shard)
    full = f"the disk with {str(folder)!r} is full; what was finished is kept: make room, then run the same build again"
    with explaining_full_disk(full):
        _begin(folder, plan)
        if not (folder / MANIFEST).exists():
            _build_files(source, folder, plan, processes, verbose)
            _finish(folder, plan)
    counts = total_counts(shard["counts"] for shard in read_manifest(folder)["shards"])
    table = label_table({part: counts[part] for part in ("train", "dev") if part in counts})
    if verbose:
        print(table_text(table))
    return table


def _plan(source: Source, records_per_shard: int) -> dict[str, Any]:
    files = [
        {"part": part, "name": Path(path).name, "bytes": os.path.getsize(path), "sha256": sha256(path)}
        for part, path in source.files()
    ]
    if not files:
        raise ValueError(f"{source!r} names no files; name at least one to build from")
    return {**FORMAT, **source.settings(), "records_per_shard": records_per_shard, "files": files}


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    path = folder / PLAN
    if path.exists():
        _check_same_build(folder, _without_seal(read_sealed(path, REMEDY)), plan)
    elif any(folder.iterdir()):
        raise ValueError(f"{folder} has files but no {PLAN}: it was not begun by this builder; name another folder")
    write_json(path, plan)


def _without_seal(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != SEAL}


def _check_same_build(folder: Path, begun: dict[str, Any], plan: dict[str, Any]) -> None:
    """Refuses a folder of another build. In an unfinished one, drops the shards of files that were replaced since."""
    changed = [key for key in {**begun, **plan} if begun.get(key) != plan.get(key)]
    old_names, new_names = ([(file["part"], file["name"]) for file in one["files"]] for one in (begun, plan))
    if changed == ["files"] and old_names == new_names and not (folder / MANIFEST).exists():
        for number, (old, new) in enumerate(zip(begun["files"], plan["files"], strict=True)):
            if old != new:
                _discard(folder, number)
    elif changed:
        raise ValueError(
            f"{folder} was begun with {_some(begun, changed)}, and not with {_some(plan, changed)}; build with the "
            f"same files and settings, or in another folder"
        )


def _discard(folder: Path, number: int) -> None:
    for path in [_done(folder, number), *folder.glob(f"{number:05d}-*.jsonl.gz")]:
        path.unlink(missing_ok=True)


def _some(plan: dict[str, Any], keys: list[str]) -> str:
    return ", ".join(f"{key}={plan.get(key)!r}" for key in keys)


def _build_files(source: Source, folder: Path, plan: dict[str, Any], processes: int, verbose: bool) -> None:
    sizes = [file["bytes"] for file in plan["files"]]
    todo = [number for number in range(len(sizes)) if not _done(folder, number).exists()]
    with pt.tqdm(
        desc=f"building {folder.name}", total=sum(sizes), unit="B", unit_scale=True, disable=not verbose
    ) as bar:
        bar.update(sum(sizes) - sum(sizes[number] for number in todo))
        for number in _run(source, folder, plan["records_per_shard"], todo, processes):
            bar.set_postfix(shards=sum(1 for _ in folder.glob("[0-9]*.jsonl.gz")))
            bar.update(0 if number is None else sizes[number])


def _run(source: Source, folder: Path, size: int, todo: list[int], processes: int) -> Iterator[int | None]:
    """Yields the number of each file when it is done, and None from time to time meanwhile."""
    if processes == 1 or len(todo) < 2:
        for number in todo:
            yield from _build_shards(source, folder, number, size)
            yield number
        return
    # A fork would copy the locks of torch and of the progress bar in a state that no thread ever changes.
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(min(processes, len(todo)), context, initializer=_start, initargs=(stop,)) as pool:
        waiting = {pool.submit(_build_file, source, folder, number, size) for number in todo}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=1, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
                yield None
        except BrokenProcessPool as err:
            raise RuntimeError(
                f"a process that built {folder} ended abruptly (was it killed, or out of memory?); run the same build "
                f'again to go on. A script has to call build below if __name__ == "__main__":'
            ) from err
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _start(stop: Event) -> None:
    """Lets a process end after its shard when another process fails, and at once when its parent was killed."""
    global _stop
    _stop = stop
    parent = multiprocessing.parent_process()
    # Without this thread, a process whose parent was killed would wait for work for ever.
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def _build_file(source: Source, folder: Path, number: int, size: int) -> int:
    for _ in _build_shards(source, folder, number, size):
        if _stop is not None and _stop.is_set():
            break
    return number


def _build_shards(source: Source, folder: Path, number: int, size: int) -> Iterator[None]:
    """Writes the missing shards of one file, then a note that the file is done; yields after each shard."""
    shards = []
    records = enumerate(source.records(number))
    try:
        for shard, group in groupby(records, lambda record: record[0] // size):
            path = folder / f"{number:05d}-{shard:05d}.jsonl.gz"
            pages = (source.page(number, where, record) for _, (where, record) in group)
            asked = (page for page in pages if page is not None and page.questions)
            shards.append(describe_shard(path) if path.exists() else write_shard(path, asked))
            yield
    except ValueError:
        # The checksum is compared only at the end of a file, so the shards from before the damage may be wrong too.
        _discard(folder, number)
        raise
    write_json(_done(folder, number), {"shards": shards})


def _done(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.done.json"


def _finish(folder: Path, plan: dict[str, Any]) -> None:
    done = [_done(folder, number) for number in range(len(plan["files"]))]
    shards = [shard for path in done for shard in read_sealed(path, REMEDY)["shards"]]
    counts = total_counts(shard["counts"] for shard in shards)
    if not sum(counter[str(ANSWER)] for counter in counts.values()):
        names = ", ".join(file["name"] for file in plan["files"])
        raise ValueError(f"no question in {names} has an answer sentence; are these the right files?")
    write_json(folder / MANIFEST, {**plan, "shards": shards})
