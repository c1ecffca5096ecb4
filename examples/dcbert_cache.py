"""A reranker that reads its documents from disk: encode once, then rerank without their texts.

    python examples/dcbert_cache.py [--model FOLDER_OR_HUB_NAME] [--folder FOLDER]

DC-BERT encodes questions and documents apart. Here its encoders stay as they are, and its joint layer is trained on
their states in a minute. The documents' states are kept in a folder. Late interaction reads the same folder and needs
no training. In the end the collection changes, and only the new document is encoded.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR, P

from pyterrier_cascade import BM25, DCBERT, DCBertTraining, RelativeCost
from pyterrier_cascade.demo import small_encoder

MEASURES = [AP, RR, P @ 1, RelativeCost, "mrt"]
COLUMNS = ["name", *map(str, MEASURES)]

# Each pipeline is timed from its first step on, so what they share is run for each of them.
warnings.filterwarnings("ignore", message="There are shared pipeline components")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", help="an encoder; by default the all-MiniLM-L6-v2 that the extra [demo] brings")
parser.add_argument("--folder", help="the folder for model and cache; a temporary folder unless given")
options = parser.parse_args()
folder = Path(options.folder or tempfile.mkdtemp())

train, dev, test = (pt.get_dataset(f"as2:facts/{split}") for split in ("train", "dev", "test"))
bm25 = BM25.from_docs(test.get_corpus_iter(verbose=False)) % 20

dcbert = DCBERT.from_pretrained(
    small_encoder(options.model),
    training=DCBertTraining(frozen_epochs=5, epochs=0, negatives=10),
    verbose=True,
)
print(f"Training the joint layer on {len(train.get_topics())} questions; their texts are encoded once before:")
dcbert.fit_candidates(train.get_candidates(), dev.get_candidates())
dcbert.save_pretrained(folder / "model")

print("\nEncoding the corpus:")
cache = dcbert.encode(test, folder / "facts.dc")
small = dcbert.encode(test, folder / "facts-int8.dc", dtype="int8")

print("\nOn disk:\n")
for one in (cache, small):
    size = sum(file.stat().st_size for file in one.path.rglob("*") if file.is_file())
    print(f"{one.path.name}: {len(one):,} documents, {one.n_tokens:,} tokens in {one.dtype}, {size / 1e6:.1f} MB")
for file in sorted(path for path in cache.path.rglob("*") if path.is_file()):
    print(f"    {file.relative_to(cache.path)}  {file.stat().st_size:,}")

print("\nRetrieval over the whole corpus, test questions; the three rankers in the middle read no text:\n")
pd.set_option("display.width", 120)
table = pt.Experiment(
    {
        "bm25": bm25,
        "cache": bm25 >> cache.reranker(),
        "cache, int8": bm25 >> small.reranker(),
        "late": bm25 >> cache.reranker(interaction="late"),
        "from texts": bm25 >> dcbert(verbose=False),
    },
    test.get_topics(),
    test.get_qrels(),
    MEASURES,
    round=3,
)
print(table[COLUMNS].to_string(index=False))

print("\nThe collection changes:\n")
before = len(cache)
cache.add([{"docno": "new", "text": "The lighthouse of the new harbour was built last year."}])
cache.delete(cache.docnos(cache.documents[:2]))
print(f"{before:,} documents, then {len(cache):,}: one was added and two were deleted. No other was encoded again.")
