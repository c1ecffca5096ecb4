import threading

import pandas as pd
import pytest
import torch

from pyterrier_cascade import DCBERT, DocumentCache
from pyterrier_cascade.encoder.workers import calling_thread
from pyterrier_cascade.store.shards import Shard
from tests.dcbert.results import assert_same_scores, by_pair


def test_scores_do_not_depend_on_neighbours_or_order(dcbert, candidates):
    whole = by_pair(dcbert(candidates))
    for (qid, docno), score in whole.sample(5, random_state=0).items():
        alone = dcbert(candidates[(candidates["qid"] == qid) & (candidates["docno"] == docno)])
        assert alone["score"].item() == pytest.approx(score, abs=1e-5)
    shuffled = dcbert(candidates.sample(frac=1, random_state=1))
    pd.testing.assert_series_equal(by_pair(shuffled), whole, check_exact=False, atol=1e-5, rtol=0)


def test_documents_are_encoded_in_slabs(dcbert, corpus, candidates, tmp_path, monkeypatch):
    """The states that are held at once stay within a bound, whatever is ranked."""
    cache = dcbert.encode(corpus[:2], tmp_path / "cache")
    expected, encoded = [dcbert(candidates), cache.reranker(missing="encode")(candidates)], []
    monkeypatch.setattr("pyterrier_cascade.dcbert.ranker.ROOM", 1)
    several = DCBERT.encoded_texts
    monkeypatch.setattr(
        DCBERT, "encoded_texts", lambda self, texts, *more: (encoded.append(len(texts)), several(self, texts, *more))[1]
    )
    found = [dcbert(candidates), cache.reranker(missing="encode")(candidates)]
    assert encoded == [7, 7, 5, 5]
    for one, other in zip(found, expected, strict=True):
        assert_same_scores(one, other, 1e-5)


def test_the_disk_fetches_the_next_documents_meanwhile(dcbert, corpus, candidates, tmp_path, monkeypatch):
    reranker = dcbert.encode(corpus, tmp_path / "cache").reranker()
    expected, before = reranker(candidates), torch.get_num_threads()
    told, both, in_time, expect, read = [], threading.Event(), [], Shard.expect, Shard.read

    def noted(*args):
        told.append(args)
        if len(told) == 2:
            both.set()
        expect(*args)

    # The first question's documents are read when those of the second are on their way.
    monkeypatch.setattr(Shard, "expect", noted)
    monkeypatch.setattr(Shard, "read", lambda *args: (in_time.append(both.wait(10)), read(*args)))
    torch.set_num_threads(1)
    try:
        pd.testing.assert_frame_equal(reranker(candidates), expected, check_exact=False, atol=1e-5)
    finally:
        torch.set_num_threads(before)
    assert in_time == [True, True]


def test_a_part_with_an_unknown_document_is_read_at_once(dcbert, corpus, candidates, tmp_path, monkeypatch):
    cache, reads, begin = dcbert.encode(corpus[:-1], tmp_path / "cache"), [], DocumentCache.begin
    expected = dcbert.encode(corpus, tmp_path / "whole").reranker()(candidates)
    monkeypatch.setattr(
        DocumentCache, "begin", lambda self, entries: reads.append(len(entries)) or begin(self, entries)
    )
    shuffled = candidates.sample(frac=1, random_state=3)
    assert_same_scores(cache.reranker(missing="encode")(shuffled), expected, 1e-5)
    assert sum(reads) == len(candidates) - 2 and len(reads) <= 2 * 2 * 2
    reads.clear()
    monkeypatch.setattr("pyterrier_cascade.dcbert.scoring.workers", calling_thread)
    cache.reranker(missing="encode")(shuffled)
    assert len(reads) <= 4 < sum(reads)
