"""Quality of the monolithic reranker on WikiQA and TREC-QA (clean test), beside BM25 over the same candidates.

    python benchmarks/monolithic_quality.py --data wikiqa --model ../shared/models/e5-small --rates 3e-5 6e-5
    python benchmarks/monolithic_quality.py --data trecqa --model ../shared/models/e5-small --rates 3e-5 \\
        --negatives 5 --epochs 2 --per-epoch 2 --patience 2

The rate (that of the fresh head is ten times as high) is chosen on the development questions with the first seed; every
seed then trains with it, and the weights with the best development MAP are measured on test, in fp32. Prints a Markdown
table.
"""

import argparse
import os
import time
from pathlib import Path

import ir_measures
import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR

from pyterrier_cascade import BM25, CrossEncoder, Training

MEASURES = [AP, RR]


def measure(results: pd.DataFrame, qrels: pd.DataFrame) -> list[float]:
    """Returns MAP and MRR."""
    run, judged = pt.model.to_ir_measures(results), pt.model.to_ir_measures(qrels)
    found = ir_measures.calc_aggregate(MEASURES, judged, run)
    return [found[measure] for measure in MEASURES]


def main() -> None:
    """Trains, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["wikiqa", "trecqa"], required=True)
    parser.add_argument("--model", required=True, help="folder or Hub name of the encoder")
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-5], help="peak learning rates to choose from")
    parser.add_argument("--tokens", type=int, default=1_000, help="tokens of a batch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--patience", type=int, default=1)
    parser.add_argument("--per-epoch", type=int, default=1, help="development measurements in an epoch")
    parser.add_argument("--negatives", type=int, help="negatives of a question in an epoch; all unless given")
    parser.add_argument("--save", help="folder for the model of the first seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()

    folder = os.environ.get("PTC_DATA") or str(Path(os.environ.get("PTC_SHARED", "../shared")) / "data")
    sets = {split: pt.get_dataset(f"as2:{options.data}/{split}", folder=folder) for split in ("train", "dev", "test")}
    lists = {split: data.get_candidates() for split, data in sets.items()}
    qrels = sets["test"].get_qrels()
    test = lists["test"].drop(columns="label")

    def train(rate: float, seed: int) -> tuple[CrossEncoder, float, float]:
        training = Training(
            learning_rate=rate,
            head_learning_rate=10 * rate,
            tokens_per_batch=options.tokens,
            epochs=options.epochs,
            patience=options.patience,
            evaluations_per_epoch=options.per_epoch,
            negatives=options.negatives,
            seed=seed,
        )
        start = time.perf_counter()
        ranker = CrossEncoder.from_pretrained(options.model, training=training)
        ranker.fit_candidates(lists["train"], lists["dev"])
        course = ranker.history["dev_map"].dropna()
        seconds = time.perf_counter() - start
        print(f"rate {rate} seed {seed}: dev MAP {course.round(4).tolist()}, {seconds:.0f} s", flush=True)
        return ranker, course.max(), len(course)

    tried = {rate: train(rate, options.seeds[0]) for rate in options.rates}
    rate = max(tried, key=lambda rate: tried[rate][1])
    if options.save:
        tried[rate][0].save_pretrained(options.save)
    runs = [tried[rate], *(train(rate, seed) for seed in options.seeds[1:])]

    print(f"\n{', '.join(f'as2:{data.name}' for data in sets.values())}; rate {rate} chosen on dev\n")
    print("| | dev MAP | test MAP | test MRR |\n|---|---|---|---|")
    bm25 = measure(BM25.from_docs(sets["test"].get_corpus_iter(verbose=False)).scorer()(test), qrels)
    print(f"| BM25 over the candidates | | {bm25[0]:.4f} | {bm25[1]:.4f} |")
    rows = [(dev, *measure(ranker(test), qrels)) for ranker, dev, _ in runs]
    for seed, row in zip(options.seeds, rows, strict=True):
        print(f"| seed {seed} | " + " | ".join(f"{value:.4f}" for value in row) + " |")
    table = pd.DataFrame(rows)
    print(
        "| mean (sd) | "
        + " | ".join(f"{m:.4f} ({s:.4f})" for m, s in zip(table.mean(), table.std(), strict=True))
        + " |"
    )


if __name__ == "__main__":
    main()
