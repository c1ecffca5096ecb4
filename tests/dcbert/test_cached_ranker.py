import shutil

import numpy as np
import pyterrier as pt
import pytest
import torch

from pyterrier_cascade import DCBERT, DocumentCache
from pyterrier_cascade.checkpoint import Checkpoint
from pyterrier_cascade.dcbert import inference
from pyterrier_cascade.model import TrainedOn
from pyterrier_cascade.store import dtypes
from tests import tiny
from tests.dcbert.results import assert_same_scores, by_pair


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


@pytest.mark.parametrize("variant", ["one_way", "linear", "lstm"])
def test_variants_rank_from_the_cache(bare, corpus, candidates, tmp_path, variant):
    fresh = DCBERT.from_pretrained(bare, variant=variant)
    assert f"variant={variant!r}" in repr(fresh) and eval(repr(fresh)) == fresh
    fresh.model.loaded.mark_trained(TrainedOn(1, 2, 1, "-"))
    cache = fresh.encode(corpus, tmp_path / "fresh cache")
    assert cache.meta["parts"] == {"variant": variant} and cache.maker.model.loaded.module.config.variant == variant
    fresh.save_pretrained(tmp_path / variant)
    saved = DCBERT.from_pretrained(tmp_path / variant)
    assert saved.model.loaded.describe()["variant"] == variant
    cached = saved.encode(corpus, tmp_path / "saved cache").reranker()(candidates)
    assert_same_scores(cached, saved(candidates), 1e-3)


def test_copies_of_a_reranker_share_the_weights(dcbert, corpus, candidates, tmp_path, monkeypatch):
    reranker = dcbert.encode(corpus, tmp_path / "cache").reranker()
    reranker(candidates)
    weights = reranker.dcbert().model
    monkeypatch.setattr(Checkpoint, "__init__", None)
    for copy in (reranker(verbose=True), reranker(interaction="late"), reranker.cache.reranker(missing="drop")):
        copy(candidates)
        assert copy.dcbert().model is weights


def test_weights_are_hashed_once_and_again_when_they_changed(dcbert, corpus, candidates, tmp_path, monkeypatch):
    cache, hashed = dcbert.encode(corpus, tmp_path / "cache"), []
    weights = inference.of_weights
    monkeypatch.setattr(inference, "of_weights", lambda one: (hashed.append(1), weights(one))[1])
    for _ in range(2):
        DocumentCache(cache.path).reranker(dcbert)(candidates)
    assert hashed == []
    with torch.no_grad():
        dcbert.model.loaded.module.encoder_of("document").embeddings.word_embeddings.weight[0, 0] += 1
    with pytest.raises(ValueError, match="whose states would mean something else"):
        DocumentCache(cache.path).reranker(dcbert)(candidates)
    assert hashed == [1]
