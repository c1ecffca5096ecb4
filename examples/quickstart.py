"""From questions to an experiment in three minutes on a laptop, without Java, the Hub or a GPU.

    python examples/quickstart.py [--model FOLDER_OR_HUB_NAME]

BM25 finds sentences that share the question's words; the reranker learns, before your eyes, which of them answer it.
"""

import argparse
import warnings

import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR, P

from pyterrier_cascade import BM25, CrossEncoder, RelativeCost, Training
from pyterrier_cascade.demo import small_encoder

MEASURES = [AP, RR, P @ 1, RelativeCost, "mrt"]
COLUMNS = ["name", *map(str, MEASURES)]

# Each pipeline is timed from its first step on, so what they share is run for each of them.
warnings.filterwarnings("ignore", message="There are shared pipeline components")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", help="an encoder; by default the all-MiniLM-L6-v2 that the extra [demo] brings")
options = parser.parse_args()

train, dev, test = (pt.get_dataset(f"as2:facts/{split}") for split in ("train", "dev", "test"))
bm25 = BM25.from_docs(test.get_corpus_iter(verbose=False)) % 20
reranker = CrossEncoder.from_pretrained(
    small_encoder(options.model),
    training=Training(learning_rate=7e-5, head_learning_rate=5e-4, epochs=4, tokens_per_batch=700, negatives=4),
    verbose=True,
)

print("A question and what BM25 finds for it:\n")
question = test.get_topics().iloc[:1]
print(question["query"].item())
for text in bm25(question)["text"].head(3):
    print("   ", text)

print(f"\nTraining on {len(train.get_topics())} questions, each with a few of its wrong answers:")
# Half of the development questions are enough to see it learn, and sooner.
reranker.fit_candidates(train.get_candidates(), dev.get_candidates().query("qid <= 'dev-050'"))
reranker = reranker(verbose=False, precision="bf16")

print("\nThe same question, reranked:\n")
for text in (bm25 >> reranker)(question)["text"].head(3):
    print("   ", text)

pd.set_option("display.width", 120)
print("\nRetrieval over the whole corpus, test questions (mrt = milliseconds a query):\n")
table = pt.Experiment(
    {"bm25": bm25, "bm25 >> reranker": bm25 >> reranker},
    test.get_topics(),
    test.get_qrels(),
    MEASURES,
    round=3,
)
print(table[COLUMNS].to_string(index=False))

print("\nAnswer selection, each question with its own candidates:\n")
candidates = pt.Transformer.from_df(test.get_candidates().drop(columns=["label", "query"]))
table = pt.Experiment(
    {"bm25": candidates >> bm25.scorer(), "reranker": candidates >> reranker},
    test.get_topics(),
    test.get_qrels(),
    MEASURES,
    round=3,
)
print(table[COLUMNS].to_string(index=False))
