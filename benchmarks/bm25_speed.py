"""Does BM25 take longer than plain calls of bm25s? Both index and answer in turns; prints a table of medians.

python benchmarks/bm25_speed.py --output benchmarks/results/bm25_speed.md      # a minute or two
python benchmarks/bm25_speed.py --quick                                        # seconds
"""

import argparse
import gc
import platform
import shlex
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import bm25s
import numpy as np
import pandas as pd

from pyterrier_cascade import BM25

SEED = 7


def sentences(n_sentences, n_words, rng, vocabulary=50_000):
    """Returns sentences of about ``n_words`` invented words, whose frequencies follow Zipf's law."""
    lengths = rng.poisson(n_words, n_sentences) + 1
    weights = 1 / np.arange(1, vocabulary + 1)
    ids = rng.choice(vocabulary, size=lengths.sum(), p=weights / weights.sum())
    words = np.array([f"w{number}" for number in range(vocabulary)])[ids]
    return [" ".join(part) for part in np.split(words, np.cumsum(lengths)[:-1])]


def timed(work):
    """Returns the seconds that a call takes, and its result."""
    gc.collect()
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def plain_index(texts):
    """Returns an index made as in the documentation of bm25s."""
    index = bm25s.BM25(k1=1.2, b=0.75)
    index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    return index


def plain_search(index, queries, k):
    """Returns the numbers and scores of the k best documents, as bm25s gives them."""
    return index.retrieve(bm25s.tokenize(queries, show_progress=False), k=k, show_progress=False)


def one_round(texts, queries, ks, folder):
    """Measures every task once and returns ``{(task, who): seconds}``."""
    docs = [{"docno": f"d{number}", "text": text} for number, text in enumerate(texts)]
    topics = pd.DataFrame({"qid": [f"q{number}" for number in range(len(queries))], "query": queries})
    took = {}
    took["index", "bm25s"], plain = timed(lambda: plain_index(texts))
    took["index", "BM25"], ours = timed(lambda: BM25.from_docs(docs))
    BM25.from_docs(docs).save(folder, overwrite=True)
    saved = BM25(folder)
    saved(topics.head(1))
    for k in ks:
        task = f"answer, {k} results a query"
        took[task, "bm25s"], _ = timed(lambda k=k: plain_search(plain, queries, k))
        for who, index in (("BM25", ours), ("BM25, saved", saved)):
            took[task, who], _ = timed(lambda index=index, k=k: index.fuse_rank_cutoff(k)(topics))
    took["index and answer", "bm25s"] = took["index", "bm25s"] + took[task, "bm25s"]
    took["index and answer", "BM25"] = took["index", "BM25"] + took[task, "BM25"]
    return took


def table(rounds):
    """Returns the medians, and the ratio of bm25s' time to ours, in Markdown."""
    lines = ["| task | who | seconds (median) | bm25s / this |", "|---|---|---|---|"]
    for task, who in rounds[0]:
        ours, plain = (median(took[task, name] for took in rounds) for name in (who, "bm25s"))
        lines.append(f"| {task} | {who} | {ours:.3f} | {plain / ours:.2f} |")
    return "\n".join(lines)


def main():
    """Runs the rounds and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, 3 rounds")
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    if options.quick:
        options.sentences, options.queries, options.rounds = options.sentences // 10, options.queries // 10, 3
    rng = np.random.default_rng(SEED)
    texts, queries = sentences(options.sentences, 20, rng), sentences(options.queries, 6, rng)
    with tempfile.TemporaryDirectory() as folder:
        rounds = [one_round(texts, queries, (100, 1000), Path(folder) / "index") for _ in range(options.rounds)]
    report = (
        f"# BM25 beside bm25s\n\n    python {shlex.join(sys.argv)}\n\n"
        f"{options.sentences:,} invented sentences, {options.queries:,} queries, {options.rounds} rounds; one thread "
        f"each; bm25s {bm25s.__version__}, Python {platform.python_version()}, {platform.machine()}. "
        f"Ours returns the full results frame, with docnos, texts and ranks.\n\n{table(rounds)}\n"
    )
    print(report)
    if options.output:
        options.output.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
