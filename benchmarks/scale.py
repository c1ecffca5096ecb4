"""The speed of a pool of workers, and the cost of large collections, by measurement and then by arithmetic.

    python benchmarks/scale.py --output benchmarks/results/scale.md
    python benchmarks/scale.py --quick

The models have random weights and 12 layers x 384, and the texts have invented words. The pool: a cascade ranks the
same candidates in this process on one thread, on one Ray worker and on two. They take turns, and the table shows
medians over rounds. Capacity: the time of one core for a candidate of a passage's length, with fresh heads, and with
all candidates scored. The figures of the collections are multiples of that time.
"""

import argparse
import contextlib
import io
import shlex
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import torch
from speed import random_model, ratio, silence, spread, table, words

from pyterrier_cascade import DCBERT, Cascade, CrossEncoder, RayPool

# Word pieces of a passage of MS MARCO and of its queries, about; the tables scale with them.
PASSAGE, QUERY = 75, 8
PASSAGES, QUERIES, DEPTH = 8_841_823, 6_980, 1_000
DOCUMENTS = 1_000_000_000


def candidates(n_queries: int, depth: int, seed: int = 0) -> pd.DataFrame:
    """Returns a results frame of random texts of a passage's length."""
    rng, vocabulary = np.random.default_rng(seed), np.array(words())
    queries = [" ".join(rng.choice(vocabulary, QUERY)) for _ in range(n_queries)]
    rows = [
        (str(number), query, f"d{number}-{place}", " ".join(rng.choice(vocabulary, PASSAGE)))
        for number, query in enumerate(queries)
        for place in range(depth)
    ]
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text"])


def pool(folder: str, options: argparse.Namespace) -> None:
    """Prints the throughput of one process, of one worker and of two."""
    frame = candidates(options.queries, options.depth)
    ranker = Cascade.from_pretrained(folder, alpha=0.4)
    ranker.save_pretrained(str(Path(folder) / "cascade"))
    torch.set_num_threads(1)
    start = time.perf_counter()
    # Both pools have workers on the same two cores, because they take turns.
    with RayPool(1, cpus=0.5) as one, RayPool(2, cpus=0.5) as two:
        list(one.map(len, ["warm"]))
        started = time.perf_counter() - start
        how = {"rows_per_block": options.depth}
        contenders = {
            "this process, one thread": lambda: ranker(frame),
            "one worker": lambda: one(ranker, **how)(frame),
            "two workers": lambda: two(ranker, **how)(frame),
        }
        times, results = {name: [] for name in contenders}, {}
        for number in range(options.rounds + 1):
            for name, work in contenders.items():
                start = time.perf_counter()
                results[name] = work()
                if number:
                    times[name].append(time.perf_counter() - start)
    base = results["this process, one thread"]
    worst = max(np.abs(found["score"].to_numpy() - base["score"].to_numpy()).max() for found in results.values())
    same = all(found["docno"].tolist() == base["docno"].tolist() for found in results.values())
    print(f"## A pool: cascade alpha=0.4 over {len(frame)} candidates of {options.queries} queries\n")
    rows = [
        [name, f"{len(frame) / median(seconds):.0f}", spread(ratio(times, "this process, one thread", name))]
        for name, seconds in times.items()
    ]
    table(["", "candidates a second", "times as fast"], rows)
    order = "the same" if same else "NOT the same"
    print(f"\nOrder {order}, scores within {worst:.0e}. To start a cluster and a worker takes {started:.1f} s.\n")


def seconds_of(work, rounds: int) -> float:
    """Returns the median time of some work, after one run that does not count."""
    taken = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return median(taken[1:])


def capacity(folder: str, options: argparse.Namespace) -> None:
    """Prints the cost of a candidate on one core, and the cost of whole collections."""
    torch.set_num_threads(1)
    n_queries, depth = 2, options.depth
    frame = candidates(n_queries, depth)
    corpus = frame[["docno", "text"]].to_dict("records")
    cross, cascade = CrossEncoder.from_pretrained(folder), Cascade.from_pretrained(folder)
    dcbert, contenders = DCBERT.from_pretrained(folder), {}
    for engine, precision in (("torch", "fp32"), ("torch", "bf16"), ("openvino", "int8")):
        how = {"engine": engine, "precision": precision}
        contenders[f"cross-encoder, {engine} {precision}"] = lambda how=how: cross(**how)(frame)
        contenders[f"cascade alpha=0.4, {engine} {precision}"] = lambda how=how: cascade(alpha=0.4, **how)(frame)
    with tempfile.TemporaryDirectory() as place:
        start = time.perf_counter()
        cache = dcbert.encode(corpus, Path(place) / "cache", dtype="int8")
        encoding = (time.perf_counter() - start) / len(corpus)
        start = time.perf_counter()
        dcbert(precision="bf16").encode(corpus, Path(place) / "bf16", dtype="int8")
        encoding_bf16 = (time.perf_counter() - start) / len(corpus)
        no_text = frame.drop(columns="text")
        joint, late = cache.reranker(dcbert), cache.reranker(dcbert, interaction="late")
        contenders["DC-BERT K=1 from an int8 cache"] = lambda: joint(no_text)
        contenders["late interaction from an int8 cache"] = lambda: late(no_text)
        cost = {name: seconds_of(work, options.rounds) / len(frame) for name, work in contenders.items()}
        stored = cache.n_tokens / len(cache)
    n_pairs = QUERIES * DEPTH
    print(f"## Cost on one core: passages of {PASSAGE} word pieces, queries of {QUERY}, {depth} candidates a query\n")
    rows = [
        [name, f"{1000 * each:.3f}", f"{1 / each:,.0f}", f"{each * n_pairs / 3600:,.1f}",
         f"{each * DEPTH * 1000:,.0f}"]
        for name, each in cost.items()
    ]  # fmt: skip
    head = ["", "ms a candidate", "a second", f"core-hours for {QUERIES:,} x {DEPTH:,}", f"ms a query of {DEPTH:,}"]
    table(head, rows)
    print(
        f"\nCore-hours = ms a candidate x {QUERIES:,} x {DEPTH:,} / 3,600,000; divide by the cores. "
        "Time to the answer of one query is the last column divided by the cores that share it.\n"
    )
    print("## Encoding and keeping documents\n")
    rows = []
    for name, n in (("MS MARCO", PASSAGES), ("a billion", DOCUMENTS)):
        for precision, each in (("fp32", encoding), ("bf16", encoding_bf16)):
            for dtype, width in (("fp16", 768), ("int8", 388)):
                size = n * (stored * width + 108)
                rows.append(
                    [f"{name}, {n:,}", precision, f"{1 / each:.0f}", f"{each * n / 3600:,.0f}", dtype,
                     f"{size / 1e9:,.0f} GB", f"{-(-n // 100_000):,}"]
                )  # fmt: skip
    head = ["documents", "encoded in", "a second and core", "core-hours", "kept as", "disk", "shards of 100,000"]
    table(head, rows)
    print(
        f"\nDisk = documents x ({stored:.0f} tokens x 384 x 2 bytes, or 384 + 4 in int8, + 108 bytes of small files, "
        "half of which is the catalog that a look-up touches).\n"
    )


def main() -> None:
    """Runs the sections that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=["pool", "capacity"], default=["pool", "capacity"])
    parser.add_argument("--queries", type=int, default=6, help="of the pool's candidates")
    parser.add_argument("--depth", type=int, default=100, help="candidates of a query")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", help="file for the tables; standard output unless given")
    parser.add_argument("--quick", action="store_true", help="few candidates, to try it")
    options = parser.parse_args()
    if options.quick:
        options.queries, options.depth, options.rounds = 4, 32, 1
    silence()
    warnings.filterwarnings("ignore", message="the (head|joint layers)")
    out = io.StringIO() if options.output else sys.stdout
    with contextlib.redirect_stdout(out), tempfile.TemporaryDirectory() as folder:
        print(f"# More than one process\n\n    python {shlex.join(sys.argv)}\n")
        print(f"12 layers x 384, random weights, torch {torch.__version__}; medians of {options.rounds} rounds.\n")
        random_model(folder, 384)
        for section in options.sections:
            {"pool": pool, "capacity": capacity}[section](folder, options)
    if options.output:
        Path(options.output).write_text(out.getvalue())


if __name__ == "__main__":
    main()
