"""How the public names are used, for a type checker; never run."""

import pandas as pd
from ir_measures import AP
from typing_extensions import assert_type

from pyterrier_cascade import (
    BM25,
    DCBERT,
    CachedRanker,
    Cascade,
    CascadeTraining,
    Certificate,
    CrossEncoder,
    DocumentCache,
    HierarchicalRanker,
    SequentialReranker,
    Tanda,
    TopLost,
    Trace,
    Training,
)

frame = pd.DataFrame()
bm25 = BM25.from_docs([{"docno": "d1", "text": "a text"}])
assert_type(bm25, BM25)

cascade = Cascade.from_pretrained("folder", alpha=0.4, training=CascadeTraining(epochs=2))
assert_type(cascade, Cascade)
assert_type(cascade(alpha=(0.6, 0.4, 0, 0)), Cascade)
assert_type(cascade(frame), pd.DataFrame)
assert_type(cascade.fit_candidates(frame, frame), Cascade)
assert_type(cascade.with_training(epochs=3), Cascade)
assert_type(cascade.calibrate(frame), Cascade)
assert_type(cascade.trace(frame), Trace)
cascade.trace(frame).sweep(frame, [AP]).plot()
assert_type(cascade.trace(frame).certify(TopLost(k=5), at_most=0.1), Certificate)
assert_type(cascade(margin=(4.0, 2.0), margin_k=10), Cascade)
cascade[4] % 0.6 >> cascade[12]

assert_type(CrossEncoder.from_pretrained("folder", layers=6).truncate(4), CrossEncoder)
assert_type(SequentialReranker.from_pretrained("folder")(alpha=0.3), SequentialReranker)
assert_type(HierarchicalRanker("PRI", "list").fit(frame, frame), HierarchicalRanker)

cache = DCBERT.from_pretrained("folder").encode([{"docno": "d1", "text": "a text"}], "cache", dtype="int8")
assert_type(cache, DocumentCache)
assert_type(cache.reranker(interaction="late"), CachedRanker)

assert_type(Tanda(cascade, frame).fit_candidates(frame, frame), Tanda)
Training(epochs="three")  # type: ignore[arg-type]
