"""A lab on hierarchical ranking: do point and pair objectives help a list-wise ranker, and which words does it look at?

    python examples/hierarchical_lab.py [--questions N] [--epochs N] [--plot FILE.png] [--curves FILE.png]

Two small models are trained from nothing, without any pre-trained vector. CA(list) has one objective alone. PRI(list)
has three: its pair level reads the features of the point level, and its list level reads those of the pair level. The
lab takes under two minutes on a laptop.
"""

import argparse
import time

import matplotlib
import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR, P

from pyterrier_cascade import BM25, HierarchicalArchitecture, HierarchicalRanker, HierarchicalTraining
from pyterrier_cascade.hierarchical import plots

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MEASURES = [AP, RR, P @ 1]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--questions", type=int, default=600, help="how many questions are trained on")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--plot", default="hierarchical_attention.png", help="the file for the plot of the attention")
parser.add_argument("--curves", default="hierarchical_curves.png", help="the file for the curves")
options = parser.parse_args()

train, dev, test = (pt.get_dataset(f"as2:facts/{split}") for split in ("train", "dev", "test"))
lists = train.get_candidates()
lists = lists[lists["qid"].isin(lists["qid"].unique()[: options.questions])]
small = HierarchicalArchitecture(embedding_width=64, width=64, channels=32, hidden=64)
training = HierarchicalTraining(learning_rate=3e-3, questions_per_batch=15, epochs=options.epochs)

rankers = {}
for scheme in ("CA", "PRI"):
    ranker = HierarchicalRanker(scheme, "list", architecture=small, training=training)
    print(f"Training {scheme}(list) on {lists['qid'].nunique()} questions with {len(lists)} candidates ...", flush=True)
    start = time.perf_counter()
    ranker.fit_candidates(lists, dev.get_candidates())
    print(f"    {time.perf_counter() - start:.0f} s; MAP on development {ranker.history['dev_map'].max():.3f}\n")
    rankers[f"{scheme}(list)"] = ranker

candidates = test.get_candidates().drop(columns=["label", "relation"])
given = pt.Transformer.from_df(candidates)
bm25 = BM25.from_docs(test.get_corpus_iter(verbose=False)).scorer()
table = pt.Experiment(
    [given >> bm25, *(given >> ranker for ranker in rankers.values())],
    test.get_topics(),
    test.get_qrels(),
    MEASURES,
    names=["bm25", *rankers],
    round=3,
)
print("The rankers on the candidates of the test questions:\n")
print(table.to_string(index=False))

_, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
histories = {name: ranker.history for name, ranker in rankers.items()}
plots.curves(histories, "loss_list", axes[0])
plots.curves(histories, "dev_map", axes[1]).figure.savefig(options.curves, dpi=120)

ranked = rankers["PRI(list)"](candidates).merge(test.get_qrels())
right = ranked[(ranked["rank"] == 0) & (ranked["label"] == 1)]
shown = (right if len(right) else ranked).iloc[0]
to_answer, _ = rankers["PRI(list)"].attention(shown["query"], shown["text"])
print(f"\n{shown['query']}\n    {shown['text']}\n\nWhat each word of the question looks at most:\n")
most = pd.DataFrame({"looks at": to_answer.idxmax(axis=1), "weight": to_answer.max(axis=1).round(2)})
print(most.to_string())
plots.attention(to_answer).figure.savefig(options.plot, dpi=120)
print(f"\nThe plot of its attention: {options.plot}; the curves of both trainings: {options.curves}")
