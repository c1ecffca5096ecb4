"""Whether deadlines are kept, and what the clock costs in quality beside numbers that are chosen with hindsight.

    python benchmarks/deadline.py --model trained > benchmarks/results/deadline.md
    python benchmarks/deadline.py --queries 5 --deadlines 50 100      # to see it run

TREC DL 2019: the best ``--candidates`` of BM25 over the judged passages, ranked query by query, each timed from the
call to the result. ``--model`` is a folder that ``cascade_quality.py train --save`` or ``Cascade.save_pretrained``
wrote; by default it is e5-small with fresh heads, whose times count and whose quality means nothing. The first queries
warm up and are dropped. nDCG@10 is against the labels, and against the full cascade's ranking, whose first ten have
gains from 10 to 1. ``alpha`` is the cascade with the one alpha that costs as much in tokens and layers, on average over
all queries; there is none where the deadline is too short for all candidates' first span. Needs a quiet machine.
"""

import argparse
import os
import platform
import shlex
import sys
import time
import warnings
from pathlib import Path

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import torch
from ir_measures import nDCG

from pyterrier_cascade import BM25, Cascade, RelativeTokenCost

DEADLINES = (20, 50, 100, 200, 400)
ALPHAS = np.round(np.arange(0, 0.96, 0.01), 2).tolist()
SHARED = Path(os.environ.get("PTC_SHARED", "../shared"))


def quality(results: pd.DataFrame, qrels: pd.DataFrame) -> float:
    """Returns nDCG@10."""
    found = ir_measures.calc_aggregate([nDCG @ 10], pt.model.to_ir_measures(qrels), pt.model.to_ir_measures(results))
    return found[nDCG @ 10]


def timed(ranker: Cascade, queries: list[pd.DataFrame]) -> tuple[pd.DataFrame, np.ndarray]:
    """Returns the results of all queries and the milliseconds that each took."""
    found, times = [], []
    for query in queries:
        start = time.perf_counter()
        found.append(ranker(query))
        times.append(1000 * (time.perf_counter() - start))
    return pd.concat(found), np.array(times)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(SHARED / "models" / "e5-small"))
    parser.add_argument("--engine", default="torch")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--deadlines", type=float, nargs="+", default=DEADLINES)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    data = pt.get_dataset("as2:dl19", folder=os.environ.get("PTC_DATA") or str(SHARED / "data"))
    bm25 = BM25.from_docs(data.get_corpus_iter(verbose=False)) % options.candidates
    topics = data.get_topics().head(options.queries + options.warm_up)
    queries = [block for _, block in bm25(topics).groupby("qid", sort=False)]
    warm, queries = queries[: options.warm_up], queries[options.warm_up :]
    candidates = pd.concat(queries)
    qrels = data.get_qrels()[lambda rows: rows["qid"].isin(candidates["qid"])]
    cascade = Cascade.from_pretrained(options.model, engine=options.engine, precision=options.precision)
    timed(cascade, warm)
    full, times = timed(cascade, queries)
    first = full[full["rank"] < 10]
    like_full = first[["qid", "docno"]].assign(label=10 - first["rank"])
    trace = cascade.trace(candidates)
    sweep = trace.sweep(qrels, [RelativeTokenCost], alphas=ALPHAS).frame

    print(f"# Deadlines\n\n    {shlex.join(['python', 'benchmarks/deadline.py', *sys.argv[1:]])}\n")
    print(f"{cascade}, heads at layers {cascade.head_layers}, {len(queries)} queries of {options.candidates}")
    print(f"candidates of {trace.tokens.mean():.0f} tokens; {platform.machine()}, {torch.get_num_threads()} threads.")
    print(f"Without a deadline a query takes {np.median(times):.0f} ms (95%: {np.percentile(times, 95):.0f}), and")
    print(f"nDCG@10 is {quality(full, qrels):.4f}; of BM25 it is {quality(candidates, qrels):.4f}.\n")
    print("| deadline, ms | median | 95% | most | 95% / deadline | layers of a candidate | not read, % | nDCG@10 | "
          "of alpha | as the full one | of alpha |")  # fmt: skip
    print(f"|{'---|' * 11}")
    for deadline in options.deadlines:
        ranker = cascade(deadline_ms=deadline)
        timed(ranker, warm)
        found, times = timed(ranker, queries)
        cost = (found["q_token_cost"] / found["q_token_cost_full"]).groupby(found["qid"].to_numpy()).first().mean()
        quartiles = np.percentile(times, [50, 95, 100])
        hindsight = ["-", "-"]
        if cost >= sweep[str(RelativeTokenCost)].min():
            alpha = sweep["alpha"][(sweep[str(RelativeTokenCost)] - cost).abs().idxmin()]
            hindsight = [f"{quality(trace.results(alpha), known):.4f}" for known in (qrels, like_full)]
        row = [
            f"{deadline:g}",
            *(f"{value:.1f}" for value in quartiles),
            f"{quartiles[1] / deadline:.2f}",
            f"{found['exit_layer'].mean():.2f}",
            f"{100 * (found['exit_layer'] == 0).mean():.0f}",
            f"{quality(found, qrels):.4f}",
            hindsight[0],
            f"{quality(found, like_full):.4f}",
            hindsight[1],
        ]
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
