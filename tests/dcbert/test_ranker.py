import pickle
import shutil
import threading

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch

from pyterrier_cascade import BM25, DCBERT, DocumentCache, RelativeCost, RelativeTokenCost
from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.dcbert import inference
from pyterrier_cascade.dcbert import ranker as rankers_module
from pyterrier_cascade.encoder.workers import here
from pyterrier_cascade.model import TrainedOn
from pyterrier_cascade.store import dtypes
from pyterrier_cascade.store.shards import Shard
from tests import tiny
from tests.few_docs import DOCS

COSTS = ["q_cost", "q_cost_full", "q_token_cost", "q_token_cost_full"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("dcbert") / "bert", layers=3, outputs=None)


@pytest.fixture(scope="module")
def saved(bare, tmp_path_factory):
    """A DC-BERT that counts as trained."""
    folder = tmp_path_factory.mktemp("dcbert") / "trained"
    ranker = DCBERT.from_pretrained(bare, joint_layers=2)
    ranker.model.loaded.module.config.trained_on = {"questions": 1}
    ranker.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def dcbert(saved):
    return DCBERT.from_pretrained(saved)


@pytest.fixture
def corpus():
    return [*DOCS, {"docno": "long", "text": "the ship launched in the town " * 8}, {"docno": "empty", "text": ""}]


@pytest.fixture
def candidates(corpus):
    """Two interleaved queries over the corpus."""
    rows = [
        {"qid": qid, "query": query, "docno": document["docno"], "text": document["text"], "score": 1.0}
        for document in corpus
        for qid, query in (("b", "what ship launched"), ("a", "who founded the town"))
    ]
    return pd.DataFrame(rows)


def by_pair(results):
    return results.set_index(["qid", "docno"])["score"].sort_index()


def assert_same_scores(one, other, atol):
    pd.testing.assert_series_equal(by_pair(one), by_pair(other), check_exact=False, atol=atol, rtol=0)


@pytest.mark.parametrize("interaction", ["joint", "late"])
@pytest.mark.parametrize(
    "passages", [{}, {"passages": "max", "document_length": 12}, {"passages": "mean", "document_length": 12}]
)
@pytest.mark.parametrize(("dtype", "atol"), [("fp16", 1e-3), ("int8", 0.1)])
def test_from_the_cache_as_from_the_texts(dcbert, corpus, candidates, tmp_path, interaction, passages, dtype, atol):
    dcbert = dcbert(interaction=interaction, **passages)
    cache = dcbert.encode(corpus, tmp_path / "cache", dtype=dtype)
    cached = cache.reranker(interaction=interaction)(candidates.drop(columns="text"))
    assert_same_scores(cached, dcbert(candidates), atol)
    assert cache.n_entries > len(cache) if passages else cache.n_entries == len(cache)


def test_in_fp32_nothing_is_lost(dcbert, corpus, candidates, monkeypatch, tmp_path):
    # DC-11: the same scores to 1e-5, where the cache rounds nothing.
    monkeypatch.setattr(dtypes.DTYPES["fp16"], "stored", np.dtype("<f4"))
    cached = dcbert.encode(corpus, tmp_path / "cache").reranker()(candidates.drop(columns="text"))
    assert_same_scores(cached, dcbert(candidates), 1e-5)


def test_scores_do_not_depend_on_neighbours_or_order(dcbert, candidates):
    whole = by_pair(dcbert(candidates))
    for (qid, docno), score in whole.sample(5, random_state=0).items():
        alone = dcbert(candidates[(candidates["qid"] == qid) & (candidates["docno"] == docno)])
        assert alone["score"].item() == pytest.approx(score, abs=1e-5)
    shuffled = dcbert(candidates.sample(frac=1, random_state=1))
    pd.testing.assert_series_equal(by_pair(shuffled), whole, check_exact=False, atol=1e-5, rtol=0)


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


def test_what_the_cache_lacks(dcbert, corpus, candidates, tmp_path):
    cache = dcbert.encode(corpus[:2], tmp_path / "cache")
    there = {document["docno"] for document in corpus[:2]}
    n_gone = int((~candidates["docno"].isin(there)).sum())
    with pytest.raises(KeyError) as error:
        cache.reranker()(candidates)
    assert error.value.args[0].startswith(f"{n_gone} of {len(candidates)} candidates are not in {cache!r}: 'd3', ")
    assert error.value.args[0].endswith(
        "add them with cache.add(documents), or use missing='encode' (from their text) or missing='drop'"
    )
    with pytest.warns(UserWarning, match=f"{n_gone} of {len(candidates)} candidates are not in .* and are dropped"):
        left = cache.reranker(missing="drop")(candidates.drop(columns="text"))
    assert set(left["docno"]) == there and sorted(left["rank"]) == [0, 0, 1, 1]
    encoded = cache.reranker(missing="encode")(candidates)
    whole = dcbert.encode(corpus, tmp_path / "whole").reranker()(candidates)
    assert_same_scores(encoded, whole, 1e-6)
    # Each question is encoded once, 3 layers; its 2 joint layers count for all, the document's 3 for what was missing.
    n_of_each = len(candidates) // 2
    assert whole["q_cost"].unique().tolist() == [3 + 2 * n_of_each]
    assert encoded["q_cost"].unique().tolist() == [3 + 2 * n_of_each + 3 * (n_of_each - 2)]
    with pytest.raises(pt.validate.InputValidationError, match="put a text loader before"):
        cache.reranker(missing="encode")(candidates.drop(columns="text"))


def test_a_cache_of_another_document_encoder(dcbert, corpus, candidates, bare, tmp_path):
    cache = dcbert.encode(corpus, tmp_path / "cache")
    # Other joint layers on the same encoder may use it.
    other = DCBERT.from_pretrained(bare, head="paper")
    with pytest.warns(UserWarning, match="the joint layers on .* are fresh: train them"):
        assert len(cache.reranker(other)(candidates)) == len(candidates)
    strange = DCBERT.from_pretrained(tiny.save(tmp_path / "strange", layers=3, outputs=None, seed=1))
    with pytest.raises(ValueError, match="whose states would mean something else; encode the corpus with this model"):
        cache.reranker(strange)(candidates)
    renamed = DCBERT.from_pretrained(shutil.copytree(dcbert.model.source, tmp_path / "renamed"))
    words = (tmp_path / "renamed" / "tokenizer.json").read_text()
    (tmp_path / "renamed" / "tokenizer.json").write_text(words.replace('"ship"', '"ships"'))
    with pytest.raises(ValueError, match="whose states would mean something else"):
        cache.reranker(renamed)(candidates)
    with pytest.raises(ValueError, match=r"model must be a DCBERT, such as DCBERT.from_pretrained\(...\), not 'name'"):
        cache.reranker("name")
    with pytest.raises(ValueError, match="has document_length None, this build 9; build with the same settings"):
        dcbert(document_length=9).encode(corpus, tmp_path / "cache")


def test_a_model_that_is_given_keeps_its_settings(dcbert, corpus, candidates, tmp_path):
    """What the states depend on is the cache's; how they are joined, and how long a question may be, the model's."""
    cache = dcbert(passages="max", document_length=12).encode(corpus, tmp_path / "cache")
    given = dcbert(passages="mean", interaction="late", query_length=6, device="cpu", document_length=12)
    assert_same_scores(cache.reranker(given)(candidates), given(candidates), 1e-3)
    made = cache.reranker(given).dcbert()
    assert (made.passages, made.interaction, made.query_length, made.device) == ("mean", "late", 6, "cpu")
    # The first passage alone would mean other documents.
    assert cache.reranker(dcbert).dcbert().passages == "max"
    assert cache.reranker(given, interaction="joint").dcbert().interaction == "joint"


def test_settings_and_weights_may_change_between_calls(dcbert, corpus, candidates, tmp_path):
    cache = dcbert.encode(corpus, tmp_path / "cache")
    reranker = cache.reranker(dcbert)
    joint = reranker(candidates)
    reranker.interaction = "late"
    assert_same_scores(reranker(candidates), cache.reranker(dcbert, interaction="late")(candidates), 1e-6)
    assert not np.allclose(by_pair(reranker(candidates)), by_pair(joint))
    with torch.no_grad():
        dcbert.model.loaded.module.encoder_of("document").embeddings.word_embeddings.weight[0, 0] += 1
    with pytest.raises(ValueError, match="whose states would mean something else"):
        reranker(candidates)


def test_a_cache_is_read_from_any_folder(saved, corpus, candidates, tmp_path, monkeypatch):
    shutil.copytree(saved, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    expected = DCBERT.from_pretrained("model").encode(corpus, "cache").reranker()(candidates)
    monkeypatch.chdir("/")
    assert_same_scores(DocumentCache(tmp_path / "cache").reranker()(candidates), expected, 1e-6)


def test_a_cache_lets_no_code_run(saved, corpus, tmp_path):
    cache = DCBERT.from_pretrained(saved, trust_remote_code=True).encode(corpus, tmp_path / "cache")
    assert cache.meta["parts"] == {} == cache.reranker().dcbert().model.options


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


@pytest.mark.parametrize("query_length", [509, 510, 512])
def test_a_question_leaves_room_for_documents(bare, candidates, query_length):
    limit = DCBERT.from_pretrained(bare).model.loaded.length_limit
    length = query_length - 512 + limit
    message = (
        f"query_length={length} and document_length={limit - length} are {limit} tokens, but .* positions for {limit}; "
    )
    with pytest.raises(ValueError, match=message + "a document needs 4 or more"):
        DCBERT.from_pretrained(bare, query_length=length, interaction="late")(candidates)


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


def test_weights_are_hashed_once_and_again_when_they_changed(dcbert, corpus, candidates, tmp_path, monkeypatch):
    cache, hashed = dcbert.encode(corpus, tmp_path / "cache"), []
    weights = inference.weights_of
    monkeypatch.setattr(inference, "weights_of", lambda module: (hashed.append(1), weights(module))[1])
    for _ in range(2):
        DocumentCache(cache.path).reranker(dcbert)(candidates)
    assert hashed == []
    with torch.no_grad():
        dcbert.model.loaded.module.encoder_of("document").embeddings.word_embeddings.weight[0, 0] += 1
    with pytest.raises(ValueError, match="whose states would mean something else"):
        DocumentCache(cache.path).reranker(dcbert)(candidates)
    assert hashed == [1]


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
        ({"precision": "int8"}, "precision must be one of fp32, bf16, not 'int8'"),
        ({"query_length": 2}, "query_length=2 leaves no room for a word; use 4 tokens or more"),
        ({"variant": "gru"}, "variant must be one of transformer, linear, lstm, not 'gru'"),
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


@pytest.mark.parametrize("variant", ["linear", "lstm"])
def test_variants_rank_from_the_cache(bare, corpus, candidates, tmp_path, variant):
    fresh = DCBERT.from_pretrained(bare, variant=variant)
    assert f"variant={variant!r}" in repr(fresh) and eval(repr(fresh)) == fresh
    fresh.model.loaded.module.config.trained_on = {"questions": 1}
    cache = fresh.encode(corpus, tmp_path / "fresh cache")
    assert cache.meta["parts"] == {"variant": variant} and cache.maker.model.loaded.module.config.variant == variant
    fresh.save_pretrained(tmp_path / variant)
    saved = DCBERT.from_pretrained(tmp_path / variant)
    assert saved.model.loaded.describe()["variant"] == variant
    cached = saved.encode(corpus, tmp_path / "saved cache").reranker()(candidates)
    assert_same_scores(cached, saved(candidates), 1e-3)


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


def test_copies_of_a_reranker_share_the_weights(dcbert, corpus, candidates, tmp_path, monkeypatch):
    reranker = dcbert.encode(corpus, tmp_path / "cache").reranker()
    reranker(candidates)
    weights = reranker.dcbert().model
    monkeypatch.setattr(Checkpoint, "__init__", None)
    for copy in (reranker(verbose=True), reranker(interaction="late"), reranker.cache.reranker(missing="drop")):
        copy(candidates)
        assert copy.dcbert().model is weights


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
    monkeypatch.setattr("pyterrier_cascade.dcbert.scoring.workers", here)
    cache.reranker(missing="encode")(shuffled)
    assert len(reads) <= 4 < sum(reads)
