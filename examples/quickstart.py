"""From questions to a cascade in three minutes on a laptop, without Java, the Hub or a GPU.

    python examples/quickstart.py [--model FOLDER_OR_HUB_NAME] [--plot FILE.png]

BM25 finds sentences that share words with a question. While you watch, a cascade learns which of them answer it, and
how to drop most of them early.
"""

import argparse
import warnings

import matplotlib
import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR, P

from pyterrier_cascade import BM25, Cascade, CascadeTraining, RelativeCost
from pyterrier_cascade.demo import small_encoder

matplotlib.use("Agg")
MEASURES = [AP, RR, P @ 1, RelativeCost, "mrt"]
COLUMNS = ["name", *map(str, MEASURES)]

# Each pipeline is timed from its first step on, so each of them runs the shared steps again.
warnings.filterwarnings("ignore", message="There are shared pipeline components")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", help="an encoder; by default the all-MiniLM-L6-v2 that the extra [demo] brings")
parser.add_argument("--plot", default="quickstart.png", help="where the plot goes")
options = parser.parse_args()

train, dev, test = (pt.get_dataset(f"as2:facts/{split}") for split in ("train", "dev", "test"))
bm25 = BM25.from_docs(test.get_corpus_iter(verbose=False)) % 20
cascade = Cascade.from_pretrained(
    small_encoder(options.model),
    training=CascadeTraining(learning_rate=7e-5, head_learning_rate=5e-4, epochs=3, tokens_per_batch=700, negatives=4),
    verbose=True,
)

print("A question, and the sentences that BM25 finds for it:\n")
question = test.get_topics().iloc[:1]
print(question["query"].item())
for text in bm25(question)["text"].head(3):
    print("   ", text)

print(f"\nTraining on {len(train.get_topics())} questions, each with its answers and a few other sentences:")
# Half of the development questions are enough to see it learn, and take less time.
cascade.fit_candidates(train.get_candidates(), dev.get_candidates().query("qid <= 'dev-050'"))
cascade = cascade(verbose=False, precision="bf16")
layers = cascade.head_layers

print("\nThe same question, reranked:\n")
for text in (bm25 >> cascade(alpha=0.4))(question)["text"].head(3):
    print("   ", text)

print(f"\nRetrieval over the whole corpus, test questions. The heads are at layers {layers}; each but the last drops")
print("a fraction alpha of the candidates. The stages keep 60%, then 5 candidates (mrt = milliseconds a query):\n")
stages = cascade[layers[0]] % 0.6 >> cascade[layers[1]] % 5 >> cascade[layers[-1]]
pd.set_option("display.width", 120)
table = pt.Experiment(
    {
        "bm25": bm25,
        "full": bm25 >> cascade,
        **{f"alpha={alpha}": bm25 >> cascade(alpha=alpha) for alpha in (0.3, 0.4, 0.5)},
        "stages": (bm25 >> stages).compile(),
    },
    test.get_topics(),
    test.get_qrels(),
    MEASURES,
    round=3,
)
print(table[COLUMNS].to_string(index=False))

print("\nAll heads score the development questions once. Any cascade then follows without the model:\n")
trace = cascade.trace(bm25(dev.get_topics()))
sweep = trace.sweep(dev.get_qrels(), [AP])
best = sweep.best(max_cost=0.6)
print(f"    {len(sweep)} settings of alpha. The best one at 60% of the layers or less: {best['alpha']}")
sweep.plot().figure.savefig(options.plot, dpi=120)
print(f"    a plot of all settings, quality against cost: {options.plot}")

print("\nThe chosen setting, measured on the test questions:\n")
chosen = pt.Experiment(
    {"chosen": bm25 >> cascade(alpha=best["alpha"])}, test.get_topics(), test.get_qrels(), MEASURES, round=3
)
print(chosen[COLUMNS].to_string(index=False))
