"""The costs of the document cache of DC-BERT without the model: to build, open, look up, read and change it.

    python benchmarks/dcbert_cache.py --output benchmarks/results/dcbert_cache.md      # some minutes
    python benchmarks/dcbert_cache.py --quick                                          # seconds

Made-up documents of width 32 and 2 to 6 tokens; each size is opened and read in a process of its own. Goals: opening
costs the same whatever the size, 1,000 of 1,000,000 docnos are looked up in at most 2 ms, memory is bounded. Then come
the changes of the largest cache, a comparison with sqlite3 and filelock, and the sizes of 10 million passages.
"""

import argparse
import json
import platform
import random
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

import numpy as np
from filelock import FileLock

from pyterrier_cascade import DocumentCache
from pyterrier_cascade.store import locks, publish
from pyterrier_cascade.store.indexing import bring_up_to_date

WIDTH, ASKED, ROUNDS = 32, 1_000, 15
NEWLINE = "\n"
META = {"model": "made-up", "fingerprint": "0" * 64, "width": WIDTH}


def encode(texts):
    """States of 2 to 6 tokens a text; all numbers are equal, because the model is not measured."""
    lengths = np.array([len(text) for text in texts])
    return np.full((lengths.sum(), WIDTH), 0.5, np.float32), lengths, np.arange(len(texts))


def corpus(n):
    """Documents whose docnos look like those of passage collections."""
    return ({"docno": f"passage-{number:08d}", "text": "x" * (2 + number % 5)} for number in range(n))


def build(path, n, shard_size):
    """Seconds that it takes to build a cache."""
    start = time.perf_counter()
    DocumentCache.build(path, corpus(n), encode, meta=META, shard_size=shard_size, batch_size=1000)
    return time.perf_counter() - start


@contextmanager
def unsynced():
    """Does not wait for the disk."""
    sync, publish.sync = publish.sync, lambda path: None
    yield
    publish.sync = sync


def resident():
    """This process's memory in MB, with and without mapped files, which the system can drop."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan"), float("nan")
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return tuple(int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))


def milliseconds(work, rounds=ROUNDS):
    """The median time of some calls, each with an argument of its own that is made before."""
    took = []
    for _ in range(rounds):
        prepared, call = work()
        start = time.perf_counter()
        call(prepared)
        took.append(1000 * (time.perf_counter() - start))
    return median(took)


def measured(path, n):
    """The times and the memory of a process that opens a cache and reads from it."""
    rng = np.random.default_rng(7)

    def docnos(form="passage-{:08d}", size=ASKED):
        return [form.format(number) for number in rng.integers(0, n, size)]

    DocumentCache(path).read(DocumentCache(path).find(docnos(size=1)))
    before = resident()
    opening = milliseconds(lambda: (path, DocumentCache))
    first = milliseconds(lambda: (DocumentCache(path), lambda cache: cache.find(["passage-00000000"])))
    cache = DocumentCache(path)
    look_up = milliseconds(lambda: (docnos(), cache.find))
    missing = milliseconds(lambda: (docnos("stranger-{}"), cache.find))
    read = milliseconds(lambda: (cache.find(docnos()), cache.read))
    after = resident()
    return {
        "shards": len(list(Path(path).glob("shard-*"))),
        "open": opening,
        "first look-up": first,
        "look up": look_up,
        "look up missing": missing,
        "read": read,
        "resident": after[0] - before[0],
        "own": after[1] - before[1],
    }


def in_its_own_process(path, n):
    """The same, measured by a fresh process."""
    done = subprocess.run([sys.executable, __file__, "--measure", str(path), str(n)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def disk(path):
    """The bytes of a cache: token states, and everything else."""
    sizes = {file: file.stat().st_size for file in Path(path).rglob("*") if file.is_file()}
    states = sum(size for file, size in sizes.items() if file.name in ("tokens.bin", "scales.bin"))
    return states, sum(sizes.values()) - states


def changed(path, n):
    """Seconds of the changes of a cache, and the milliseconds of a look-up afterwards."""
    rng, seconds = np.random.default_rng(8), {}
    cache, new = DocumentCache(path), list(corpus(ASKED))
    new = [{**document, "docno": f"new-{number}"} for number, document in enumerate(new)]
    old = [f"passage-{number:08d}" for number in rng.choice(n, ASKED, replace=False)]
    changes = {
        "add 1,000": lambda: cache.add(new, encode),
        "replace 1,000": lambda: cache.replace([{**document, "text": "xyz"} for document in new], encode),
        "delete 1,000": lambda: cache.delete(old),
        "delete 1": lambda: cache.delete(["new-0"]),
        "compact": cache.compact,
    }
    for name, change in changes.items():
        start = time.perf_counter()
        change()
        seconds[name] = time.perf_counter() - start
    ask = [f"passage-{number:08d}" for number in rng.integers(0, n, ASKED)]
    cache.verify()
    return seconds, milliseconds(lambda: (ask, cache.find))


def ours(path, n):
    """Our index of a cache: seconds to make it, its bytes for the look-up, and milliseconds."""
    cache = DocumentCache(path)
    shutil.rmtree(next(Path(path).glob("index-*")))
    start = time.perf_counter()
    bring_up_to_date(cache.folder)
    seconds, index = time.perf_counter() - start, next(Path(path).glob("index-*"))
    names = ("hashes.bin", "order.bin", "blocks.bin", "docnos.bytes.bin", "docnos.ends.bin")
    found = [milliseconds(lambda form=form: (names_of(n, form), cache.find)) for form in FORMS]
    opening = milliseconds(lambda: (path, lambda path: len(DocumentCache(path))))
    return seconds, sum((index / name).stat().st_size for name in names), opening, *found


FORMS = ("passage-{:08d}", "stranger-{}")


RANDOM = np.random.default_rng(7)


def names_of(n, form):
    """Random docnos."""
    return [form.format(number) for number in RANDOM.integers(0, n, ASKED)]


def sqlite(path, n):
    """The same of a table in sqlite3 whose primary key is the docno."""
    start = time.perf_counter()
    with sqlite3.connect(path) as table:
        table.execute("create table documents (docno text primary key, number integer) without rowid")
        table.executemany("insert into documents values (?, ?)", ((one["docno"], i) for i, one in enumerate(corpus(n))))
    table.close()
    seconds = time.perf_counter() - start

    def connect(path):
        return sqlite3.connect(f"file:{path}?immutable=1", uri=True)

    table, asked = connect(path), ",".join("?" * ASKED)

    def find(docnos):
        there = dict(table.execute(f"select docno, number from documents where docno in ({asked})", docnos))
        return np.array([there.get(docno, -1) for docno in docnos])

    def first(path):
        connect(path).execute("select number from documents limit 1").fetchone()

    found = [milliseconds(lambda form=form: (names_of(n, form), find)) for form in FORMS]
    return seconds, Path(path).stat().st_size, milliseconds(lambda: (path, first)), *found


def flipped(folder, n=20_000, flips=50):
    """How many of some flipped bits make sqlite3 miss a document or return another number without an error."""
    path, chance, silent = folder / "flipped", random.Random(0), 0
    sqlite(path, n)
    data = bytearray(path.read_bytes())
    for _ in range(flips):
        place = chance.randrange(len(data))
        before, data[place] = data[place], data[place] ^ 1 << chance.randrange(8)
        path.write_bytes(data)
        data[place] = before
        table = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
        try:
            every = dict(table.execute("select * from documents"))
            asked = ((i, table.execute("select number from documents where docno = ?", (one["docno"],)).fetchone())
                     for i, one in enumerate(corpus(n)))  # fmt: skip
            silent += any(found is None or found[0] != i for i, found in asked) or len(every) != n
        except sqlite3.Error:
            pass
        finally:
            table.close()
    return silent / flips


def lock_times(folder):
    """Microseconds to take and release a lock: ours, filelock's."""

    def theirs(path):
        lock = FileLock(path)
        lock.acquire()
        lock.release()

    works = (lambda path: locks.hold(path).close(), theirs)
    return [1000 * milliseconds(lambda work=work: (folder / "lock", work), 1000) for work in works]


def on_paper(small, n=10_000_000, tokens=150, width=384, shard_size=5_000):
    """The sizes of a large cache, by the small files' bytes of a document that were measured."""
    lines = ["| dtype | a document | tokens | scales | small files | in all | shards | a shard |", "|" + "---|" * 8]
    for dtype, size, scale in (("fp16", 2, 0), ("int8", 1, 4)):
        states, scales = n * tokens * width * size, n * tokens * scale
        whole, shards = states + scales + n * small, n // shard_size
        lines.append(
            f"| {dtype} | {whole / n / 1e3:.1f} KB | {states / 1e9:,.0f} GB | {scales / 1e9:,.0f} GB | "
            f"{n * small / 1e9:.1f} GB | {whole / 1e9:,.0f} GB | {shards:,} | {whole / shards / 1e9:.2f} GB |"
        )
    return "\n".join(lines)


def index_row(name, seconds, n_bytes, opening, find, missing):
    """A row of the comparison."""
    return f"| {name} | {seconds:.1f} | {n_bytes / 1e6:.0f} | {opening:.2f} | {find:.2f} | {missing:.2f} |"


def main():
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--output", type=Path, help="also write the tables to this file")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure[0], int(options.measure[1]))))
        return
    scale = 10 if options.quick else 1
    # The last has as many shards as ten million documents have.
    sizes = [(10_000, 5_000), (100_000, 5_000), (1_000_000, 5_000), (20_000, 10)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        silent, lock = flipped(Path(folder)), lock_times(Path(folder))
        for n, shard_size in (
            (n // scale, shard_size // (1 if shard_size == 10 else scale)) for n, shard_size in sizes
        ):
            path = Path(folder) / f"{n}-{shard_size}"
            with unsynced() if shard_size == 10 else nullcontext():
                seconds = build(path, n, shard_size)
            found = in_its_own_process(path, n)
            if n == 1_000_000 // scale:
                small = disk(path)[1] / n
                compared = {"arrays of hashes": ours(path, n), "sqlite3": sqlite(Path(folder) / "sqlite", n)}
                changes, after = changed(path, n)
            rows.append(
                f"| {n:,} | {found['shards']:,} | {seconds:.1f} | {n / seconds:,.0f} | {found['open']:.2f} | "
                f"{found['first look-up']:.2f} | {found['look up']:.2f} | {found['look up missing']:.2f} | "
                f"{found['read']:.2f} | {found['resident']:.1f} | {found['own']:.1f} |"
            )
    report = f"""# The document cache without a model

    python {shlex.join(sys.argv)}

Width {WIDTH}, 2 to 6 tokens a document, fp16; Python {platform.python_version()}, {platform.machine()}; one thread;
medians of {ROUNDS}, warm. Building waits for the disk, except in the last row. Opening reads `pt_meta.json`; the first
find lists the shards and maps the index. `find` and `read` are of {ASKED:,} random docnos or documents. Memory is the
growth of a process after all of this, with and without mapped files.

| documents | shards | build s | documents/s | open ms | first find ms | find ms | missing ms | read ms | MB | own MB |
|{"---|" * 11}
{NEWLINE.join(rows)}

## Changes

Of the largest cache above, in seconds, each with fsync: every change writes the index anew.

| {" | ".join(changes)} | find afterwards, ms |
|{"---|" * (len(changes) + 1)}
| {" | ".join(f"{value:.2f}" for value in changes.values())} | {after:.2f} |

## The index of docnos and the lock

The documents of the largest cache above; the bytes are those of the look-up. Our index needs the names of documents
in any case, for the checksums of states; sqlite3 would come on top of them.

| | to make, s | MB | open and count, ms | find ms | missing ms |
|{"---|" * 6}
{NEWLINE.join(index_row(name, *values) for name, values in compared.items())}

sqlite3 is not taken: of the single bits that were flipped in its file, {100 * silent:.0f}% made it return nothing or a
wrong number without an error; our index refuses every such look-up. A lock takes {lock[0]:.0f} microseconds, filelock's
{lock[1]:.0f}. filelock is not taken, because it fails on file systems that answer ENOLCK, where the cache works without
locks, and it does not say whether the holder of a lock is gone.

## Ten million passages

Ten million passages of 150 tokens x 384 on paper, with {small:.0f} bytes of small files a document as above, half of
them the index:

{on_paper(small)}

To open it means to read one small file. The first look-up reads the list of 2,000 shards; the last row of the first
table has as many, and its 1,000 documents are in some 800 of them. A look-up touches some pages of the index. States
are read into the result, and no file of states is mapped.
"""
    print(report)
    if options.output:
        options.output.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
