"""TANDA on WikiQA and TREC-QA (clean test), with a transfer set made of SQuAD-shaped files, and its rivals.

    python benchmarks/tanda_quality.py build --folder transfer
    python benchmarks/tanda_quality.py train --data wikiqa --way tanda --folder transfer
    python benchmarks/tanda_quality.py table --data wikiqa

``build`` makes the transfer set of SQuAD's development articles and those of new_wiki, with labels as in ASNQ (TA-10).
``train`` trains once, appends what came of it to a file of JSON lines, and does nothing if that training is there
already. Ways: ``target``, ``transfer`` and ``union`` in one step (TA-4), ``tanda`` in two (TA-3), the transfer step
kept in the folder and shared. ``--noise`` turns labels of the target's training pairs (TA-23); ``--labels`` says which
negatives of the transfer set are kept (TA-24). The transfer set is sampled: so many questions, each with its answers
and two negatives of each label. Weights are chosen by development MAP of the target.
"""

import argparse
import json
import os
import time
from pathlib import Path

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR

from pyterrier_cascade import CrossEncoder, FineTune, Tanda, Training
from pyterrier_cascade.datasets.asnq import SquadShaped, build, select_negatives
from pyterrier_cascade.tanda.noise import flipped

SHARED = Path(os.environ.get("PTC_SHARED", "../shared"))
FILES = ["squad/dev-v1.1.rebuilt.json.gz", "squadshifts/new_wiki_v1.0.json.gz"]
KEYS = ("data", "way", "noise", "labels", "questions", "rate", "adapt_rate", "epochs", "adapt_epochs", "seed")


def transfer_set(folder: str, labels: list[int], n_questions: int) -> pd.DataFrame:
    """Returns labelled candidates: questions drawn with a fixed seed, their answers, two negatives of each label."""
    data = pt.get_dataset("as2:asnq-like/train", folder=folder, negatives=dict.fromkeys(labels, 2), sample_seed=0)
    candidates = data.get_candidates()
    drawn = np.random.default_rng(0).permutation(candidates["qid"].unique())[:n_questions]
    return select_negatives(candidates[candidates["qid"].isin(set(drawn))], labels)


def rows_of(path: str) -> list[dict]:
    """Returns the results so far."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()] if Path(path).exists() else []


def train(options: argparse.Namespace) -> None:
    """Trains once and keeps the result."""
    key = {name: getattr(options, name) for name in KEYS} | {"model": Path(options.model).name}
    if any(all(row[name] == value for name, value in key.items()) for row in rows_of(options.results)):
        print(f"there already: {key}")
        return
    sets = {split: pt.get_dataset(f"as2:{options.data}/{split}", folder=str(SHARED / "data")) for split in SPLITS}
    lists = {split: data.get_candidates() for split, data in sets.items()}
    start, negatives = time.perf_counter(), {"negatives": options.negatives}
    training = Training(tokens_per_batch=1_000, head_learning_rate=10 * options.rate, patience=2, seed=options.seed)
    ranker = CrossEncoder.from_pretrained(options.model, training=training)
    target = flipped(lists["train"], options.noise, options.seed)
    transfer = None
    if options.way != "target":
        transfer = transfer_set(options.folder, options.labels, options.questions)
    if options.way == "tanda":
        name = f"{options.data}-{options.labels}-{options.questions}-{options.rate}-{options.epochs}-{options.seed}"
        recipe = Tanda(
            ranker,
            transfer,
            transfer_rate=options.rate,
            adapt_rate=options.adapt_rate,
            transfer_epochs=options.epochs,
            adapt_epochs=options.adapt_epochs,
            test=lists["test"],
            adapt_training={"head_learning_rate": None, **negatives},
            folder=str(Path(options.folder) / "trained" / name),
        )
        transferred = recipe.transferred(lists["dev"])
        recipe.adapt(transferred, target, lists["dev"], f"adapt-{options.noise}-{options.adapt_rate}")
    else:
        recipe = FineTune(ranker, options.way, transfer, rate=options.rate, epochs=options.epochs, training=negatives)
        recipe.fit_candidates(target, lists["dev"])
    run = pt.model.to_ir_measures(recipe.ranker(lists["test"].drop(columns="label")))
    found = ir_measures.calc_aggregate([AP, RR], pt.model.to_ir_measures(sets["test"].get_qrels()), run)
    row = key | {
        "seconds": round(time.perf_counter() - start),
        "dev": float(recipe.history["dev_map"].dropna().max()),
        "AP": found[AP],
        "RR": found[RR],
        "course": recipe.history.dropna(subset="dev_map")[["step", "epoch", "dev_map"]].to_numpy().tolist(),
    }
    with Path(options.results).open("a") as file:
        file.write(json.dumps(row) + "\n")
    print({name: row[name] for name in (*KEYS, "seconds", "dev", "AP", "RR")}, flush=True)


def table(options: argparse.Namespace) -> None:
    """Prints all trainings, means over seeds."""
    rows = pd.DataFrame(row for row in rows_of(options.results) if row["data"] == options.data)
    rows["labels"] = rows["labels"].astype(str)
    same = [name for name in (*KEYS, "model") if name not in ("data", "seed")]
    grouped = rows.groupby(same, dropna=False, sort=False)
    means = grouped[["dev", "AP", "RR", "seconds"]].mean().assign(seeds=grouped.size()).reset_index()
    print(f"as2:{options.data}/test, means over seeds\n")
    lines = [means.columns, ["---"] * len(means.columns), *means.itertuples(index=False)]
    for line in lines:
        print("| " + " | ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in line) + " |")


SPLITS = ("train", "dev", "test")


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "train", "table"])
    parser.add_argument("--data", choices=["wikiqa", "trecqa"], default="wikiqa")
    parser.add_argument("--folder", default="transfer", help="of the transfer set")
    parser.add_argument("--results", default="tanda_quality.jsonl", help="file of JSON lines")
    parser.add_argument("--model", default=str(SHARED / "models" / "e5-small"))
    parser.add_argument("--way", choices=["target", "transfer", "union", "tanda"], default="tanda")
    parser.add_argument("--noise", type=float, default=0.0, help="share of the target's training labels to turn")
    parser.add_argument("--labels", type=int, nargs="+", default=[1, 2, 3], help="negatives of the transfer set")
    parser.add_argument("--questions", type=int, default=3_000, help="of the transfer set")
    parser.add_argument("--rate", type=float, default=3e-5, help="of the transfer step, or of the only one")
    parser.add_argument("--adapt-rate", type=float, default=1e-5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--adapt-epochs", type=int, default=3)
    parser.add_argument("--negatives", type=int, help="of a question of the target in an epoch; all unless given")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.what == "build":
        build(SquadShaped([str(SHARED / "data" / name) for name in FILES], held_out=0.1), options.folder)
    else:
        train(options) if options.what == "train" else table(options)


if __name__ == "__main__":
    main()
