"""A lab on TANDA: does a transfer step on other questions help, and do wrong labels then hurt less?

    python examples/tanda_lab.py [--model FOLDER_OR_HUB_NAME] [--plot FILE.png]

A few questions of some kinds are the target, and many questions of other kinds are the transfer set. The ranker is
trained on the target alone, on the transfer set alone, and by TANDA, which transfers and then adapts. The trainings on
the target run with clean labels, and again with a fifth of the labels flipped. The lab takes five minutes on a laptop.
"""

import argparse

import matplotlib
import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR, P

from pyterrier_cascade import CrossEncoder, FineTune, Tanda, Training
from pyterrier_cascade.demo import small_encoder
from pyterrier_cascade.tanda.noise import drops, flipped

matplotlib.use("Agg")
MEASURES = [AP, RR, P @ 1]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", help="an encoder; by default the all-MiniLM-L6-v2 that the extra [demo] brings")
parser.add_argument("--plot", default="tanda_lab.png", help="the file for the plot")
options = parser.parse_args()

train, dev, test = (pt.get_dataset(f"as2:facts/{split}").get_candidates() for split in ("train", "dev", "test"))
relations = sorted(train["relation"].unique())
TARGET = relations[::3]
transfer = train[~train["relation"].isin(TARGET)]
train, dev, test = (frame[frame["relation"].isin(TARGET)] for frame in (train, dev, test))
train = train[train["qid"].isin(train["qid"].unique()[:40])]
noisy = flipped(train, 0.2)
n_flipped = (noisy["label"] != train["label"]).sum()
print(f"Target: {', '.join(TARGET)}; {train['qid'].nunique()} training questions with {len(train)} candidates.")
print(f"Transfer: {len(relations) - len(TARGET)} other relations, {transfer['qid'].nunique()} questions.")
print(f"Noise: {n_flipped} of the target's {len(train)} training labels are flipped.")
print(f"Test: {test['qid'].nunique()} questions of the target's relations.\n")

ranker = CrossEncoder.from_pretrained(
    small_encoder(options.model),
    precision="bf16",
    training=Training(head_learning_rate=5e-4, tokens_per_batch=700, patience=2),
)
few = {"negatives": 4}
# The step on the target is the same with and without transfer, so that the comparison shows the transfer alone.
RATE, EPOCHS = 7e-5, 8
tanda = Tanda(
    ranker,
    transfer,
    transfer_rate=7e-5,
    transfer_epochs=3,
    adapt_rate=RATE,
    adapt_epochs=EPOCHS,
    test=test,
    transfer_training=few,
    adapt_training=few,
)


def alone(labels: pd.DataFrame) -> FineTune:
    """Returns the ranker trained on the target alone."""
    return FineTune(ranker, rate=RATE, epochs=EPOCHS, training=few).fit_candidates(labels, dev)


print("Transfer, then adapt twice, then without transfer ...")
transferred = tanda.transferred(dev)
on_target = alone(train)
systems = {
    ("transfer only", "-"): transferred,
    ("TANDA", "clean"): tanda.adapt(transferred, train, dev, "adapt").ranker,
    ("TANDA", "20% flipped"): tanda.adapt(transferred, noisy, dev, "adapt, 20% flipped").ranker,
    ("target only", "clean"): on_target.ranker,
    ("target only", "20% flipped"): alone(noisy).ranker,
}

candidates = pt.Transformer.from_df(test.drop(columns=["label", "query", "relation"]))
table = pt.Experiment(
    [candidates >> system for system in systems.values()],
    test[["qid", "query"]].drop_duplicates(),
    test[["qid", "docno", "label"]],
    MEASURES,
    names=[" ".join(name) for name in systems],
)
table = table.set_index(pd.MultiIndex.from_tuples(systems, names=["trained on", "labels"]))[list(map(str, MEASURES))]
print(f"\n{table.round(3).to_string()}\n\nPercent lost to the noise:\n")
for name in ("target only", "TANDA"):
    lost = drops(table.loc[[(name, "clean"), (name, "20% flipped")]]).iloc[1]
    print(f"{name:>12}", *(f"{measure} {value:.1f}" for measure, value in lost.items()))
on_target.plot(tanda.plot()).figure.savefig(options.plot, dpi=120)
print(f"\nThe plot shows development MAP over the epochs of each training: {options.plot}")
