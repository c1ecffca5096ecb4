"""What the document cache of DC-BERT costs apart from the model: building, opening, looking up, reading, memory.

    python benchmarks/dcbert_cache.py --output benchmarks/results/dcbert_cache.md      # some minutes
    python benchmarks/dcbert_cache.py --quick                                          # seconds

Made-up documents of width 32 and 2 to 6 tokens; each size is opened and read in a process of its own. Goals: opening
costs the same whatever the size, 1,000 of 1,000,000 docnos are looked up in at most 5 ms, memory is bounded. Then what
follows for 10 million passages.
"""

import argparse
import json
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

import numpy as np

from pyterrier_cascade import DocumentCache
from pyterrier_cascade.store import publish

WIDTH, ASKED, ROUNDS = 32, 1_000, 15
NEWLINE = "\n"
META = {"model": "made-up", "fingerprint": "0" * 64, "width": WIDTH}


def encode(texts):
    """States of 2 to 6 tokens a text; all numbers are alike, for a model is not what is measured."""
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
    """Waits for no disk."""
    sync, publish.sync = publish.sync, lambda path: None
    yield
    publish.sync = sync


def resident():
    """This process's memory in MB, and what of it is its own; the rest are mapped files, which the system drops."""
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
    """What a process sees that opens a cache and reads from it."""
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
        for n, shard_size in (
            (n // scale, shard_size // (1 if shard_size == 10 else scale)) for n, shard_size in sizes
        ):
            path = Path(folder) / f"{n}-{shard_size}"
            with unsynced() if shard_size == 10 else nullcontext():
                seconds = build(path, n, shard_size)
            found = in_its_own_process(path, n)
            if n == 1_000_000 // scale:
                small = disk(path)[1] / n
            rows.append(
                f"| {n:,} | {found['shards']:,} | {seconds:.1f} | {n / seconds:,.0f} | {found['open']:.2f} | "
                f"{found['first look-up']:.2f} | {found['look up']:.2f} | {found['look up missing']:.2f} | "
                f"{found['read']:.2f} | {found['resident']:.1f} | {found['own']:.1f} |"
            )
    report = f"""# The document cache without a model

    python {shlex.join(sys.argv)}

Width {WIDTH}, 2 to 6 tokens a document, fp16; Python {platform.python_version()}, {platform.machine()}; one thread;
medians of {ROUNDS}, warm. Building waits for the disk, save in the last row. Opening reads `pt_meta.json`; the first
find lists the shards and maps the catalog. `find` and `read` are of {ASKED:,} random docnos or documents. Memory is
what a process has grown by after all of this, in all and without mapped files.

| documents | shards | build s | documents/s | open ms | first find ms | find ms | missing ms | read ms | MB | own MB |
|{"---|" * 11}
{NEWLINE.join(rows)}

Ten million passages of 150 tokens x 384 on paper, with {small:.0f} bytes of small files a document as above, half of
them the catalog:

{on_paper(small)}

Of these, opening reads one small file, and the first look-up the list of 2,000 shards: the last row above has as many,
and its 1,000 documents are in some 800 of them. A look-up touches some pages of the catalog, and states are read into
the result, mapped nowhere.
"""
    print(report)
    if options.output:
        options.output.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
