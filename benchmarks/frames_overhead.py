"""The overhead of frames in a ranker: blocks, texts, costs, ranks; milliseconds for a query of 1,000 candidates.

    python benchmarks/frames_overhead.py > benchmarks/results/frames_overhead.md

A ranker with given scores runs on results of 1 to 100 queries, in rank order and shuffled, with distinct scores and
with ties everywhere. So does a cascade of five heads with given scores.
"""

import platform
import statistics
import time

import numpy as np
import pandas as pd

from pyterrier_cascade import frames
from pyterrier_cascade.early_exit.policy import Policy
from pyterrier_cascade.early_exit.pruning import scores_in_turn
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker, HeadScores
from pyterrier_cascade.ranker import Ranker

N_CANDIDATES, ROUNDS = 1_000, 15
GOAL = 1.0


class Fixed(Ranker):
    """Does everything that a ranker does, except scoring."""

    def __init__(self, scores):
        self.scores = scores

    def score(self, frame, blocks):
        """Returns the given scores and the columns of a neural ranker."""
        frames.texts(frame, "query")
        frames.texts(frame, "text")
        ones, layers = np.ones(len(frame)), np.full(len(frame), 12)
        return {"score": self.scores, "exit_layer": layers, **frames.charged(frame, blocks, layers, 12, ones, ones)}


class FixedCascade(EarlyExitRanker):
    """Does everything that a cascade at alpha=.4 does, except scoring."""

    text_field, head_layers, full_layers, weights, reuses_encodings = "text", (4, 6, 8, 10, 12), 12, "none", True
    computed_precision = "fp32"

    def __init__(self, scores):
        self.scores, self.policy = scores, Policy(alpha=0.4)

    def fingerprint(self):
        """Returns an empty text, because no trace is made."""
        return ""

    def head_scores(self, frame, blocks, plan, prune=True, handover=None):
        """Returns the given scores, in another order at every head, of the candidates that reach it."""
        frames.texts(frame, "query")
        frames.texts(frame, "text")
        rows = frames.ranking(frame, blocks, np.zeros(len(frame)))
        scores = scores_in_turn(
            plan, blocks.codes[rows], lambda number, alive: np.roll(self.scores, number)[alive], prune
        )
        return HeadScores(rows, scores, np.ones(len(rows)))


def results(n_queries: int) -> pd.DataFrame:
    """Returns a retriever's results, 1,000 a query."""
    rng, n = np.random.default_rng(0), n_queries * N_CANDIDATES
    return pd.DataFrame(
        {
            "qid": np.repeat([f"q{i}" for i in range(n_queries)], N_CANDIDATES),
            "query": np.repeat([f"what is the question number {i}" for i in range(n_queries)], N_CANDIDATES),
            "docno": [f"d{i}" for i in rng.permutation(n)],
            "text": [f"sentence {i} of a corpus" for i in range(n)],
            "score": -np.tile(np.arange(N_CANDIDATES, dtype=float), n_queries),
            "rank": np.tile(np.arange(N_CANDIDATES), n_queries),
        }
    )


def main() -> None:
    """Measures all cases in turn, round after round, and prints a table of medians."""
    rng, cases = np.random.default_rng(1), {}
    for n_queries in (1, 10, 100):
        frame = results(n_queries)
        shuffled = frame.sample(frac=1, random_state=0)
        distinct, tied = rng.random(len(frame)), rng.integers(0, 3, len(frame)).astype(float)
        cases[n_queries, "in rank order", "distinct"] = Fixed(distinct), frame
        cases[n_queries, "shuffled", "distinct"] = Fixed(distinct), shuffled
        cases[n_queries, "shuffled", "tied"] = Fixed(tied), shuffled
        cases[n_queries, "in rank order", "cascade, distinct"] = FixedCascade(distinct), frame
        cases[n_queries, "shuffled", "cascade, tied"] = FixedCascade(tied), shuffled
    times = {case: [] for case in cases}
    for _ in range(ROUNDS):
        for case, (ranker, frame) in cases.items():
            start = time.perf_counter()
            ranker(frame)
            times[case].append((time.perf_counter() - start) * 1_000 / case[0])
    print(f"`python benchmarks/frames_overhead.py`: {N_CANDIDATES} candidates a query, medians of {ROUNDS}, ", end="")
    print(f"pandas {pd.__version__}, Python {platform.python_version()}\n")
    print("| queries | rows | scores | ms a query | slowest |\n|---|---|---|---|---|")
    for case, values in times.items():
        print("| {} | {} | {} |".format(*case), f"{statistics.median(values):.2f} | {max(values):.2f} |")
    above = sum(statistics.median(values) > GOAL for values in times.values())
    print(f"\nGoal: {GOAL} ms a query; {above} of {len(times)} rows are above it.")


if __name__ == "__main__":
    main()
