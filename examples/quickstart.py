"""Your reranker, the same answers, fewer layers: in three minutes on a laptop, without Java, the Hub or a GPU.

    python examples/quickstart.py [--model FOLDER_OR_HUB_NAME] [--plot FILE.png]

You bring a trained cross-encoder; here one learns while you watch which sentences answer a question. It becomes a
cascade, which drops most candidates early. That takes no labels, and a certificate says what it may cost you.
"""

import argparse
import warnings

import matplotlib
import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR, P

from pyterrier_cascade import BM25, Cascade, CrossEncoder, RelativeCost, Training
from pyterrier_cascade.demo import small_encoder

matplotlib.use("Agg")
pd.set_option("display.width", 120)
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

print("A question, and the sentences that BM25 finds for it:\n")
question = test.get_topics().iloc[:1]
print(question["query"].item())
for text in bm25(question)["text"].head(3):
    print("   ", text)

print("\n1. The reranker that you have: a cross-encoder, trained with labels, each question with its answers and a few")
print("   other sentences. (With your own, this step is CrossEncoder.from_pretrained(folder_or_hub_name).)\n")
training = Training(learning_rate=7e-5, head_learning_rate=5e-4, epochs=2, tokens_per_batch=700, negatives=4)
reranker = CrossEncoder.from_pretrained(small_encoder(options.model), training=training, verbose=True)
# Half of the development questions are enough to see it learn, and take less time.
reranker.fit_candidates(train.get_candidates(), dev.get_candidates().query("qid <= 'dev-050'"))
print("\nThe same question, reranked:\n")
for text in (bm25 >> reranker)(question)["text"].head(3):
    print("   ", text)

print("\n2. Converted, without labels: its classifier is the last head, and earlier heads learn the last one's scores.")
print("   Agreement with the last head, on questions that were held out:\n")
unlabelled = train.get_candidates().drop(columns="label").query("qid <= 'train-250'")
cascade = Cascade.from_cross_encoder(reranker).distil(unlabelled)(verbose=False)
print(cascade.history.round(3).to_string(index=False))

print("\n3. Certified, without labels: on about 200 questions that the heads did not learn from. Half of them choose")
print("   a setting, and the other half test it.\n")
other = pt.get_dataset("as2:facts/test", seed=1)
questions = other.get_topics()
questions = questions[~cascade.has_seen(questions["query"])]
trace = cascade.trace((BM25.from_docs(other.get_corpus_iter(verbose=False)) % 20)(questions))
certificate = trace.certify()
print("  ", certificate)

layers = cascade.head_layers
print(
    f"\n4. Compared, on the test questions. The heads are at layers {layers}; each but the last drops a fraction alpha"
)
print("   of the candidates. The stages keep 60%, then 5 candidates (mrt = milliseconds a query):\n")
stages = cascade[layers[0]] % 0.6 >> cascade[layers[1]] % 5 >> cascade[layers[-1]]
table = pt.Experiment(
    {
        "bm25": bm25,
        "cross-encoder": bm25 >> reranker(verbose=False),
        "full": bm25 >> cascade,
        "certified": bm25 >> cascade(**certificate.settings),
        "alpha=0.4": bm25 >> cascade(alpha=0.4),
        "stages": bm25 >> stages,
    },
    test.get_topics(),
    test.get_qrels(),
    MEASURES,
    round=3,
)
print(table[COLUMNS].to_string(index=False))

print("\nAll heads scored the other questions once, so that any setting follows without the model:\n")
sweep = trace.sweep(other.get_qrels(), [AP])
best = sweep.best(max_cost=0.6)
print(f"    {len(sweep)} settings of alpha. The best one at 60% of the layers or less: {best['alpha']}")
sweep.plot().figure.savefig(options.plot, dpi=120)
print(f"    a plot of all settings, quality against cost: {options.plot}")
