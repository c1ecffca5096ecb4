"""A front as a cut: behind ``front % k`` only what was kept is read."""

import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from pandas.testing import assert_frame_equal

from pyterrier_cascade import BM25, DCBERT, CrossEncoder, FractionCutoff, HierarchicalRanker, RelativeCost
from pyterrier_cascade.model import TrainedOn
from tests import tiny
from tests.cascades import cascade, encoder, saved  # noqa: F401

K = 4
WORDS = ["the ship was founded", "a town in the sea", "who launched the ship", "the town is old", "when was it"]
CORPUS = [{"docno": f"d{i}", "text": f"{WORDS[i % 5]} {WORDS[i * 7 % 5]} {'ship ' * (i % 3)}"} for i in range(30)]
TOPICS = pd.DataFrame({"qid": ["1", "2", "3"], "query": ["the ship", "who founded the town", "nothing of it"]})


class TextLoader(pt.Transformer):
    """Counts the texts that it reads."""

    def __init__(self):
        self.texts, self.read = {one["docno"]: one["text"] for one in CORPUS}, []

    def transform(self, inp):
        self.read += inp["docno"].tolist()
        return inp.assign(text=inp["docno"].map(self.texts))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thousand")
    dcbert = DCBERT.from_pretrained(tiny.save(folder / "bare", layers=3, outputs=None), joint_layers=1)
    dcbert.model.loaded.mark_trained(TrainedOn(1, 2, 1, "-"))
    dcbert.save_pretrained(folder / "dcbert")
    return dcbert.encode(CORPUS, folder / "documents.dc")


@pytest.fixture
def bm25():
    """A retriever that returns no text."""
    return BM25.from_docs(CORPUS) % 20 >> pt.apply.generic(lambda one: one.drop(columns="text"))


@pytest.mark.parametrize("interaction", ["joint", "late"])
def test_k_texts_of_a_question_are_read(cascade, cache, bm25, interaction):  # noqa: F811
    front, behind, before = cache.reranker(interaction=interaction), TextLoader(), TextLoader()
    out = (bm25 >> front % K >> behind >> cascade(alpha=0.4))(TOPICS)
    n = bm25(TOPICS).groupby("qid").size()
    assert n.max() == 20 and len(behind.read) == len(out) == np.minimum(n, K).sum()
    everything = (bm25 >> before >> front % K >> cascade(alpha=0.4))(TOPICS)
    assert len(before.read) == n.sum()
    assert_frame_equal(out, everything[out.columns])
    # What the front read and dropped is in the cost all the same.
    first = out.drop_duplicates("qid").set_index("qid")
    assert first["q_cost_full"].to_dict() == (6 * n).to_dict()
    qrels = out[["qid", "docno"]].assign(label=1)
    assert pt.Evaluate(out, qrels, [RelativeCost])["RelativeCost"] < 0.5


def test_the_trace_of_the_same_pipeline(cascade, cache, bm25):  # noqa: F811
    """It needs the texts of all candidates once; every cut then follows."""
    front, loader = cache.reranker(), TextLoader()
    trace = cascade.trace((bm25 >> loader)(TOPICS), front=front)
    for k in (1, K, 20, 0.3):
        cut = FractionCutoff(k) if k < 1 else pt.RankCutoff(k)
        out = (bm25 >> front >> cut >> TextLoader() >> cascade(alpha=0.4))(TOPICS)
        found = trace.results(0.4, k=k)
        assert_frame_equal(found, out[found.columns], atol=4e-6, rtol=1e-12)


@pytest.mark.parametrize("make", [
    lambda folder: CrossEncoder.from_pretrained(folder), lambda folder: DCBERT.from_pretrained(folder),
    lambda folder: HierarchicalRanker(),
])  # fmt: skip
def test_every_ranker_takes_a_cut(make, tiny_bert):
    ranker = make(tiny_bert)
    assert (ranker % 5)[1] == (ranker % np.int64(5))[1] == pt.RankCutoff(5)
    assert (ranker % 0.25)[1] == FractionCutoff(0.25)
    for wrong in (0, -1, 1.5, "5", True):
        message = f"cutoff {wrong!r}: give how many candidates to keep (1 or more), or a share between 0 and 1"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            _ = ranker % wrong


def test_a_cached_front_takes_a_cut(cache):
    assert (cache.reranker() % 50)[0] == cache.reranker() and (cache.reranker() % 0.5)[1] == FractionCutoff(0.5)
