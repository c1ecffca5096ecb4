"""TANDA and its baselines on WikiQA and TREC-QA (clean test), with a transfer set made from SQuAD-shaped files.

    python benchmarks/tanda_quality.py build --folder transfer
    python benchmarks/tanda_quality.py train --data wikiqa --way tanda --folder transfer
    python benchmarks/tanda_quality.py table --data wikiqa
    python benchmarks/tanda_quality.py speed --data wikiqa

``build`` makes the transfer set from the development articles of SQuAD and from those of new_wiki, with the labels of
ASNQ (TA-10).

``train`` runs one training and appends its result to a file of JSON lines. It does nothing if the file already has
that training. The ways ``target``, ``transfer`` and ``union`` train in one step (TA-4), and ``tanda`` in two (TA-3).
Trainings with the same transfer step share its weights in the folder. ``--noise`` flips labels of the target's training
pairs (TA-23). ``--labels`` chooses the negatives of the transfer set (TA-24). The transfer set is a sample of
questions, each with its answers and two negatives of each label. Development MAP of the target chooses the weights.

``table`` prints all trainings: means and standard deviations over seeds, the standard deviation of development MAP over
the epochs of the last step (TA-22; the paper's curve is on the test set), and the loss to noise (TA-23).

``speed`` prints the time that bf16 and batches of similar length save.
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
from pyterrier_cascade.datasets.squad import RELEASES, SquadFile
from pyterrier_cascade.tanda.noise import drops, flipped
from pyterrier_cascade.tanda.overlap import common_questions
from pyterrier_cascade.training import batches

SHARED = Path(os.environ.get("PTC_SHARED", "../shared"))
KEYS = ("data", "way", "noise", "labels", "questions", "rate", "adapt_rate", "epochs", "adapt_epochs", "seed")


def transfer_set(folder: str, labels: list[int], n_questions: int, test: pd.DataFrame) -> pd.DataFrame:
    """Returns labelled candidates: questions drawn with a fixed seed, their answers, and two negatives of each label.

    The questions are the same for all labels. Questions of the test set are left out; TREC-QA has one of them.
    """
    data = pt.get_dataset("as2:asnq-like/train", folder=folder, negatives=dict.fromkeys((1, 2, 3), 2), sample_seed=0)
    candidates = data.get_candidates()
    drawn = np.random.default_rng(0).permutation(candidates["qid"].unique())[:n_questions]
    sample = candidates[candidates["qid"].isin(set(drawn))]
    return select_negatives(sample[~sample["query"].isin(common_questions(sample, test).keys())], labels)


def rows_of(path: str) -> list[dict]:
    """Returns the results so far."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()] if Path(path).exists() else []


def train(options: argparse.Namespace) -> None:
    """Runs one training and appends its result to the file."""
    key = {name: getattr(options, name) for name in KEYS} | {"model": Path(options.model).name}
    if any(all(row[name] == value for name, value in key.items()) for row in rows_of(options.results)):
        print(f"the file already has this training: {key}")
        return
    sets = {split: pt.get_dataset(f"as2:{options.data}/{split}", folder=str(SHARED / "data")) for split in SPLITS}
    lists = {split: data.get_candidates() for split, data in sets.items()}
    start, negatives = time.perf_counter(), {"negatives": options.negatives}
    training = Training(tokens_per_batch=1_000, head_learning_rate=10 * options.rate, patience=2, seed=options.seed)
    ranker = CrossEncoder.from_pretrained(options.model, training=training)
    target = flipped(lists["train"], options.noise, options.seed)
    transfer = None
    if options.way != "target":
        transfer = transfer_set(options.folder, options.labels, options.questions, lists["test"])
    if options.way in ("transfer", "tanda"):
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
        recipe.ranker = recipe.transferred(lists["dev"])
        if options.way == "tanda":
            recipe.adapt(recipe.ranker, target, lists["dev"], f"adapt-{options.noise}-{options.adapt_rate}")
    else:
        how = {"rate": options.rate, "epochs": options.epochs, "training": negatives, "test": lists["test"]}
        recipe = FineTune(ranker, options.way, transfer, **how)
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
    """Prints all trainings as means over seeds, and the loss to noise."""
    rows = pd.DataFrame(row for row in rows_of(options.results) if row["data"] == options.data)
    rows["labels"] = rows["labels"].astype(str)
    rows["over_epochs"] = rows["course"].map(deviation_over_epochs)
    same = [name for name in (*KEYS, "model") if name not in ("data", "seed")]
    grouped = rows.groupby(same, dropna=False, sort=False)
    means = grouped[["dev", "AP", "RR", "over_epochs", "seconds"]].mean().assign(seeds=grouped.size())
    means.insert(3, "AP_over_seeds", grouped["AP"].std())
    print(f"as2:{options.data}/test, means over seeds; deviations of AP over seeds, of development MAP over epochs\n")
    show(means.reset_index())
    print("\nPercent lost to noise, over the seeds that were trained with every share of noise\n")
    same.remove("noise")
    found = []
    for key, some in rows.groupby(same, dropna=False, sort=False):
        everywhere = some.groupby("seed")["noise"].nunique().eq(some["noise"].nunique())
        some = some[some["seed"].map(everywhere)]
        of_noise = some.groupby("noise")[["AP", "RR"]].mean()
        if 0 in of_noise.index and len(of_noise) > 1:
            found.append(drops(of_noise).iloc[1:].reset_index().assign(**dict(zip(same, key, strict=True))))
    if found:
        show(pd.concat(found)[["way", "noise", "AP", "RR", *(name for name in same if name != "way")]])


def deviation_over_epochs(course: list) -> float:
    """Returns the standard deviation of development MAP over the epochs of the last step."""
    return float(np.std([value for step, _, value in course if step == course[-1][0]]))


def show(frame: pd.DataFrame) -> None:
    """Prints a frame as a table."""
    for line in (frame.columns, ["---"] * len(frame.columns), *frame.itertuples(index=False)):
        print("| " + " | ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in line) + " |")


def speed(options: argparse.Namespace) -> None:
    """Prints the seconds of an epoch on some questions: in fp32, in bf16, and with batches by length."""
    lists = pt.get_dataset(f"as2:{options.data}/train", folder=str(SHARED / "data")).get_candidates()
    lists = lists[lists["qid"].isin(lists["qid"].unique()[:30])]
    ranker = CrossEncoder.from_pretrained(options.model)
    pooled = batches.POOL
    # Sorting within one batch means random batches: random inputs, padded to the longest of them.
    ways = {"fp32": ("fp32", 1), "bf16": ("bf16", 1), "bf16, by length": ("bf16", pooled)}
    times = {name: [] for name in ways}
    for _ in range(5):
        for name, (precision, batches.POOL) in ways.items():
            one = ranker.apart().with_training(epochs=1, precision=precision)
            start = time.perf_counter()
            one.fit_candidates(lists)
            times[name].append(time.perf_counter() - start)
    print(f"An epoch on {len(lists)} pairs of as2:{options.data}, median of 5 interleaved rounds\n")
    seconds = {name: float(np.median(found)) for name, found in times.items()}
    show(pd.DataFrame([(name, found, seconds["fp32"] / found) for name, found in seconds.items()],
                      columns=["training", "seconds", "times as fast"]))  # fmt: skip


SPLITS = ("train", "dev", "test")


def main() -> None:
    """Runs the part that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "train", "table", "speed"])
    parser.add_argument("--data", choices=["wikiqa", "trecqa"], default="wikiqa")
    parser.add_argument("--folder", default="transfer", help="of the transfer set")
    parser.add_argument("--results", default="tanda_quality.jsonl", help="file of JSON lines")
    parser.add_argument("--model", default=str(SHARED / "models" / "e5-small"))
    parser.add_argument("--way", choices=["target", "transfer", "union", "tanda"], default="tanda")
    parser.add_argument("--noise", type=float, default=0.0, help="share of the target's training labels to flip")
    parser.add_argument("--labels", type=int, nargs="+", default=[1, 2, 3], help="negatives of the transfer set")
    parser.add_argument("--questions", type=int, default=3_000, help="of the transfer set")
    parser.add_argument("--rate", type=float, default=3e-5, help="of the transfer step, or of the only one")
    parser.add_argument("--adapt-rate", type=float, default=1e-5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--adapt-epochs", type=int, default=3)
    parser.add_argument("--negatives", type=int, help="of each question of the target in an epoch; all by default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.what == "build":
        files = [str(SquadFile.data_folder.locate(name, str(SHARED / "data"))) for name in RELEASES]
        build(SquadShaped(files, held_out=0.1), options.folder)
    else:
        {"train": train, "table": table, "speed": speed}[options.what](options)


if __name__ == "__main__":
    main()
