"""Quality and cost of cascades, of the ways to train them, and of their rivals, on WikiQA and TREC-QA (clean test).

    python benchmarks/cascade_quality.py train --data wikiqa --model ../shared/models/e5-small --way distilled
    python benchmarks/cascade_quality.py table --data wikiqa

``train`` trains once, appends what came of it to a file of JSON lines, and does nothing if that training is there
already. A way is ``sampled`` (the paper's: one head a step), ``joint``, ``distilled``, or ``sequential``: independent
models of 4, 6, 8, 10 and 12 layers, of which the last is the monolithic reranker. The rate of the heads is ten times
that of the encoder. The weights with the best development MAP (of the last head) are measured, in fp32. ``table`` takes
for each way, and each number of epochs, the rate with the best development MAP of the first seed.
"""

import argparse
import json
import os
import time
from pathlib import Path

import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR, P, nDCG

from pyterrier_cascade import Cascade, CascadeTraining, SequentialReranker, Training

MEASURES = [AP, RR, P @ 1, nDCG @ 10]
ALPHAS = [0.3, 0.4, 0.5]
WAYS = ["sampled", "joint", "distilled", "sequential"]


def datasets(name: str) -> dict:
    """Returns the splits."""
    folder = os.environ.get("PTC_DATA") or str(Path(os.environ.get("PTC_SHARED", "../shared")) / "data")
    return {split: pt.get_dataset(f"as2:{name}/{split}", folder=folder) for split in ("train", "dev", "test")}


def worth(ranker, candidates: pd.DataFrame, qrels: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Returns the measures of each head over all candidates, and of cascades with one alpha."""
    trace = ranker.trace(candidates)
    rows = {f"head {layer}": trace.sweep(qrels, MEASURES, [0.0], plan=(layer,)).full for layer in trace.layers}
    sweep = trace.sweep(qrels, MEASURES, ALPHAS).frame
    rows |= {f"alpha {row['alpha']}": row for _, row in sweep.iterrows()}
    names = [*map(str, MEASURES), "RelativeCost"]
    return {name: {column: float(row[column]) for column in names} for name, row in rows.items()}


def train(options: argparse.Namespace) -> None:
    """Trains once and keeps the result."""
    key = {name: getattr(options, name) for name in ("data", "way", "rate", "epochs", "negatives", "tokens", "seed")}
    key["model"] = Path(options.model).name
    if any(all(row[name] == value for name, value in key.items()) for row in rows_of(options.results)):
        print(f"there already: {key}")
        return
    sets = datasets(options.data)
    lists = {split: data.get_candidates() for split, data in sets.items()}
    how = {
        "learning_rate": options.rate,
        "head_learning_rate": 10 * options.rate,
        "tokens_per_batch": options.tokens,
        "epochs": options.epochs,
        "patience": options.epochs * 2,
        "evaluations_per_epoch": options.per_epoch,
        "negatives": options.negatives,
        "seed": options.seed,
    }
    if options.way == "sequential":
        ranker = SequentialReranker.from_pretrained(options.model, models={"training": Training(**how)})
    else:
        ranker = Cascade.from_pretrained(options.model, training=CascadeTraining(**how, heads=options.way))
    start = time.perf_counter()
    ranker.fit_candidates(lists["train"], lists["dev"])
    row = key | {
        "seconds": round(time.perf_counter() - start),
        **{
            split: worth(ranker, lists[split].drop(columns="label"), sets[split].get_qrels())
            for split in ("dev", "test")
        },
    }
    with Path(options.results).open("a") as file:
        file.write(json.dumps(row) + "\n")
    if options.save:
        ranker.save_pretrained(options.save)
    print(key, {name: round(found["AP"], 4) for name, found in row["dev"].items()}, flush=True)


def rows_of(path: str) -> list[dict]:
    """Returns the results so far."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()] if Path(path).exists() else []


def table(options: argparse.Namespace) -> None:
    """Prints development MAP of every training, and test measures of the best rate of each way."""
    rows = [row for row in rows_of(options.results) if row["data"] == options.data]
    runs = pd.DataFrame(
        {
            **{name: row[name] for name in ("model", "way", "epochs", "negatives", "rate", "seed", "seconds")},
            **{name: found["AP"] for name, found in row["dev"].items()},
        }
        for row in rows
    )
    heads = [name for name in runs if name.startswith("head")]
    runs["mean of heads"] = runs[heads].mean(axis=1)
    same = ["model", "way", "epochs", "negatives", "rate"]
    print(f"Development MAP, as2:{options.data}/dev; means over seeds\n")
    means = runs.drop(columns="seed").groupby(same, dropna=False).mean().reset_index()
    means.insert(5, "seeds", runs.groupby(same, dropna=False).size().to_numpy())
    print(markdown(means))
    # By the first seed, with which all rates were tried.
    first = runs[runs["seed"] == runs["seed"].min()]
    chosen = first.loc[first.groupby(["model", "way", "epochs"])["head 12"].idxmax(), same]
    for _, one in chosen.iterrows():
        of_way = [row for row in rows if all(row[name] == one[name] for name in ("model", "way", "epochs", "rate"))]
        print(
            f"\n{one['model']}, {one['way']}, {one['epochs']} epochs, rate {one['rate']}; {len(of_way)} seeds, test\n"
        )
        found = pd.concat([pd.DataFrame(row["test"]).T for row in of_way], keys=range(len(of_way)))
        by_row = found.groupby(level=1, sort=False)
        shown = by_row.mean().round(4).astype(str) + " (" + by_row.std().fillna(0).round(4).astype(str) + ")"
        shown["RelativeCost"] = by_row["RelativeCost"].mean().round(3)
        print(markdown(shown.reset_index(names="")))


def markdown(frame: pd.DataFrame) -> str:
    """Returns a frame as a table."""
    lines = [frame.columns, ["---"] * len(frame.columns), *frame.itertuples(index=False)]
    shown = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in shown)


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "table"])
    parser.add_argument("--data", choices=["wikiqa", "trecqa"], required=True)
    parser.add_argument("--results", default="cascade_quality.jsonl", help="file of JSON lines")
    parser.add_argument("--model", help="folder or Hub name of the encoder")
    parser.add_argument("--way", choices=WAYS, default="distilled")
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--negatives", type=int, help="negatives of a question in an epoch; all unless given")
    parser.add_argument("--tokens", type=int, default=1_000, help="tokens of a batch")
    parser.add_argument("--per-epoch", type=int, default=1, help="development measurements in an epoch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", help="folder for the model")
    options = parser.parse_args()
    train(options) if options.what == "train" else table(options)


if __name__ == "__main__":
    main()
