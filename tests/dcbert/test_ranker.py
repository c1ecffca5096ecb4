import pickle

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_cascade import BM25, DCBERT, DocumentCache, RelativeCost, RelativeTokenCost
from pyterrier_cascade.dcbert import ranker as rankers_module
from pyterrier_cascade.model import TrainedOn
from tests.dcbert.results import assert_same_scores, by_pair

COSTS = ["q_cost", "q_cost_full", "q_token_cost", "q_token_cost_full"]


def test_long_documents(dcbert, candidates):
    long = candidates[candidates["docno"] == "long"]
    parts = dcbert(document_length=12)
    first, best, mean = (by_pair(parts(passages=name)(long)) for name in ("first", "max", "mean"))
    assert (best >= first).all() and (best > mean).all()
    cut = long.assign(text=[" ".join(text.split()[:10]) for text in long["text"]])
    pd.testing.assert_series_equal(by_pair(parts(cut)), first, check_exact=False, atol=1e-5, rtol=0)


def test_costs(dcbert, corpus, candidates, tmp_path):
    one = candidates[candidates["qid"] == "a"].head(4)
    n_query = len(dcbert.model.loaded.tokenizer("who founded the town")["input_ids"])
    n_tokens = sum(len(dcbert.model.loaded.tokenizer(text)["input_ids"]) for text in one["text"])
    cache = dcbert.encode(corpus, tmp_path / "cache")
    # Three layers for the query, two joint ones for each candidate, and from texts three for each document.
    expected = {
        "cached": (3 + 2 * 4, 3 * n_query + 2 * (4 * n_query + n_tokens)),
        "from texts": (3 + 5 * 4, 3 * n_query + 2 * (4 * n_query + n_tokens) + 3 * n_tokens),
        "late": (3, 3 * n_query),
    }
    rankers = {"cached": cache.reranker(), "from texts": dcbert, "late": cache.reranker(interaction="late")}
    for name, ranker in rankers.items():
        found = ranker(one)[COSTS].drop_duplicates()
        layers, tokens = expected[name]
        np.testing.assert_allclose(found.to_numpy(), [[layers, 3 * 4, tokens, 3 * (4 * n_query + n_tokens)]])


def test_in_an_experiment(dcbert, corpus, candidates, tmp_path):
    cache, bm25 = dcbert.encode(corpus, tmp_path / "cache"), BM25.from_docs(corpus)
    topics = candidates[["qid", "query"]].drop_duplicates()
    qrels = pd.DataFrame({"qid": ["a", "b"], "docno": ["d1", "d2"], "label": [1, 1]})
    systems = {
        "texts": bm25 >> dcbert,
        "cache": bm25 >> cache.reranker(),
        "late": bm25 >> cache.reranker(interaction="late"),
    }
    found = pt.Experiment(
        list(systems.values()), topics, qrels, ["map", RelativeCost, RelativeTokenCost], names=list(systems)
    )
    assert found["map"].notna().all() and found.loc[0, "map"] == pytest.approx(found.loc[1, "map"])
    costs = found["RelativeCost"]
    assert costs[0] > costs[1] > costs[2] > 0


@pytest.mark.parametrize("query_length", [509, 510, 512])
def test_a_question_leaves_room_for_documents(bare, candidates, query_length):
    limit = DCBERT.from_pretrained(bare).model.loaded.length_limit
    length = query_length - 512 + limit
    message = (
        f"query_length={length} and document_length={limit - length} are {limit} tokens, but .* positions for {limit}; "
    )
    with pytest.raises(ValueError, match=message + "a document needs 4 or more"):
        DCBERT.from_pretrained(bare, query_length=length, interaction="late")(candidates)


def test_untrained_layers_are_said(bare, candidates):
    fresh = DCBERT.from_pretrained(bare)
    with pytest.warns(
        UserWarning, match="train them with fit\\(\\) before scores mean anything, or use interaction='late'"
    ):
        fresh(candidates)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh(interaction="late")(candidates)


def test_values(dcbert, corpus, candidates, saved, tmp_path):
    cache = dcbert.encode(corpus, tmp_path / "cache")
    for ranker in (dcbert, cache.reranker(), cache.reranker(dcbert, interaction="late", missing="drop")):
        again = pickle.loads(pickle.dumps(ranker))
        assert again == ranker and hash(again) == hash(ranker) and repr(again) == repr(ranker)
        assert len(pickle.dumps(ranker)) < 3_000
        assert_same_scores(again(candidates), ranker(candidates), 1e-6)
        assert eval(repr(ranker)) == ranker
        empty = ranker(candidates.head(0))
        assert list(empty.columns) == list(ranker(candidates).columns) and not len(empty)
    assert cache.reranker() != cache.reranker(interaction="late")
    assert isinstance(pt.Artifact.load(str(tmp_path / "cache")), DocumentCache)


def test_input_is_kept(dcbert, candidates):
    before = candidates.copy()
    found = dcbert(candidates.assign(extra=range(len(candidates))))
    pd.testing.assert_frame_equal(candidates, before)
    assert len(found) == len(candidates) and {"extra", "text", *COSTS} <= set(found.columns)
    assert found.groupby("qid")["rank"].apply(list).map(lambda ranks: ranks == sorted(ranks)).all()


def test_a_long_query_is_cut_and_said(dcbert, candidates):
    long = candidates.assign(query="the town " * 20)
    with pytest.warns(UserWarning, match="1 of 1 queries have more than 8 tokens and are cut; set query_length"):
        found = dcbert(query_length=8)(long)
    assert_same_scores(found, dcbert(query_length=8)(candidates.assign(query="the town the town the town")), 1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interaction": "linear"}, "interaction must be one of joint, late, not 'linear'"),
        ({"passages": "sum"}, "passages must be one of first, max, mean, not 'sum'"),
        ({"precision": "int8"}, "precision must be one of auto, fp32, bf16, fp16, not 'int8'"),
        ({"query_length": 2}, "query_length=2 leaves no room for a word; use 4 tokens or more"),
        ({"variant": "gru"}, "variant must be one of transformer, one_way, linear, lstm, not 'gru'"),
        ({"head": "sum"}, "head must be one of late, compare, paper, not 'sum'"),
        ({"joint_layers": 0}, "joint_layers must be at least 1, not 0"),
        ({"training": 3}, r"training must be DCBertTraining\(...\), not 3"),
    ],
)
def test_bad_settings(bare, settings, message):
    with pytest.raises(ValueError, match=message):
        DCBERT.from_pretrained(bare, **settings)


def test_texts_that_do_not_fit_into_the_positions(saved, candidates):
    with pytest.raises(ValueError, match="query_length=64 and document_length=500 are 564 tokens"):
        DCBERT.from_pretrained(saved, document_length=500)(candidates)


def test_unsaved_weights_make_no_cache(bare, candidates, corpus, tmp_path):
    ranker = DCBERT.from_pretrained(bare)
    ranker.model.mark_fitted([], TrainedOn(1, 2, 1, ""))
    with pytest.raises(ValueError, match="call save_pretrained\\(folder\\), then encode"):
        ranker.encode(corpus, tmp_path / "cache")


def test_queries_are_tokenised_once(dcbert, monkeypatch):
    tokenised, tokenize = [], rankers_module.tokenize_texts
    monkeypatch.setattr(
        rankers_module, "tokenize_texts", lambda *args, **more: tokenised.append(1) or tokenize(*args, **more)
    )
    pairs = dcbert(query_length=8).tokenized(["the town", "the ship"], "question")
    assert len(tokenised) == 1 and pairs.owner.tolist() == [0, 1]
    with pytest.warns(UserWarning, match="1 of 3 queries have more than 8 tokens and are cut; set query_length"):
        cut = dcbert(query_length=8).tokenized(["the town", "the ship " * 20, "of"], "question")
    assert len(tokenised) == 2 and cut.owner.tolist() == [0, 1, 2] and cut.lengths[1] == 8
    ids = dcbert.model.loaded.tokenizer("the ship the ship the ship")["input_ids"]
    assert cut.columns["input_ids"][cut.starts[1] :][:8].tolist() == ids
