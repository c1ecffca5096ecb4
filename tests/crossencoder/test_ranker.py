"""The monolithic reranker as a transformer."""

import json
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
import transformers
from ir_measures import AP
from pandas.testing import assert_frame_equal
from pyterrier.testing import transformer_test_class

from pyterrier_cascade import (
    DCBERT,
    Cascade,
    CrossEncoder,
    HierarchicalRanker,
    RelativeCost,
    SequentialReranker,
    Training,
    frames,
)
from tests import tiny


def _ranker() -> CrossEncoder:
    return CrossEncoder.from_pretrained("nowhere/to-be-found", passages="max", training=Training(epochs=2))


TestContract = transformer_test_class(_ranker)


def test_the_result_is_the_whole_frame(tiny_bert, results):
    before = results.copy()
    out = CrossEncoder.from_pretrained(tiny_bert)(results)
    assert_frame_equal(results, before)
    assert list(out.columns) == [
        "qid", "query", "docno", "text", "extra", "exit_layer", "q_cost", "q_cost_full", "q_token_cost",
        "q_token_cost_full", "q_full_layers", "q_layer_size", "score", "rank",
    ]  # fmt: skip
    assert out["qid"].tolist() == ["2", "2", "1", "1", "1"] and out["rank"].tolist() == [0, 1, 0, 1, 2]
    assert out["q_cost"].tolist() == [4, 4, 6, 6, 6] and out["exit_layer"].tolist() == [2] * 5
    texts = dict(zip(results["docno"] + results["qid"], results["text"], strict=True))
    assert [texts[key] for key in out["docno"] + out["qid"]] == out["text"].tolist()


def test_an_empty_frame_gives_the_same_columns_and_loads_nothing(tiny_bert, results):
    full = CrossEncoder.from_pretrained(tiny_bert)(results)
    empty = _ranker()(results.iloc[:0])
    assert list(empty.columns) == list(full.columns) and len(empty) == 0
    new = ["exit_layer", *frames.COST_COLUMNS, "score", "rank"]
    assert empty[new].dtypes.tolist() == full[new].dtypes.tolist()


def test_a_frame_without_text_names_the_loaders(results):
    message = (
        "The retriever returned no 'text'; put a text loader before this transformer: "
        "`retriever >> pt.text.get_text(dataset_or_index) >> ...`, or use pyterrier_cascade.BM25, which returns it."
    )
    with pytest.raises(pt.validate.InputValidationError, match=re.escape(message)):
        _ranker()(results.drop(columns="text"))


def test_missing_text_is_said_once_and_counted(tiny_bert, results):
    results["text"] = ["a", None, None, "b", "c"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CrossEncoder.from_pretrained(tiny_bert)(results)
    assert [str(w.message) for w in caught] == ["2 of 5 rows have no 'text'; they are scored as an empty text"]


def test_repr_can_be_typed_back_in():
    ranker = _ranker()(precision="bf16").truncate(layers=4)
    expected = (
        "CrossEncoder.from_pretrained('nowhere/to-be-found', layers=4, passages='max', precision='bf16', "
        "training=Training(epochs=2))"
    )
    assert repr(ranker) == expected
    assert eval(repr(ranker)) == ranker and hash(eval(repr(ranker))) == hash(ranker)


def test_rankers_are_values():
    assert _ranker() == _ranker() and hash(_ranker()) == hash(_ranker())
    others = (_ranker()(max_length=64), CrossEncoder.from_pretrained("elsewhere"), _ranker().truncate(layers=2))
    for other in others:
        assert _ranker() != other
    assert _ranker() != pt.Transformer.identity()


def test_a_copy_with_other_settings_shares_the_weights(tiny_bert):
    ranker = CrossEncoder.from_pretrained(tiny_bert)
    copy = ranker(max_length=64)
    assert copy.max_length == 64 and ranker.max_length is None
    assert copy.model.loaded.module is ranker.model.loaded.module
    with pytest.raises(TypeError, match=re.escape("either candidates or settings (max_length), not both")):
        ranker(pd.DataFrame(), max_length=64)


def test_pickles_are_small_and_score_alike(tiny_bert, results):
    ranker = CrossEncoder.from_pretrained(tiny_bert)
    out = ranker(results)
    data = pickle.dumps(ranker)
    assert len(data) < 2_000
    again = pickle.loads(data)
    assert again == ranker
    assert_frame_equal(again(results), out)


def test_the_schematic_draws_without_a_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("drawing looked for documentation online")

    monkeypatch.setattr(pt.documentation, "url_for_class", refuse)
    assert "nowhere/to-be-found" in pt.schematic.draw(_ranker() >> _ranker())


def test_saved_and_loaded_it_is_the_same_ranker(tiny_bert, results, tmp_path):
    ranker = CrossEncoder.from_pretrained(tiny_bert)
    out = ranker(results)
    ranker.save_pretrained(tmp_path / "saved")
    again = CrossEncoder.from_pretrained(str(tmp_path / "saved"))
    assert again == ranker and (tmp_path / "saved" / "model.safetensors").exists()
    assert_frame_equal(again(results), out)


def test_it_has_a_cost_in_an_experiment(tmp_path, results):
    """CT-34: 3 of 4 layers cost 3/4; a retriever costs none."""
    bm25 = pt.Transformer.from_df(results)
    full = CrossEncoder.from_pretrained(tiny.save(tmp_path, layers=4))
    topics = results[["qid", "query"]].drop_duplicates()
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d1", "d3"], "label": [1, 1]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = pt.Experiment(
            {"bm25": bm25, "full": bm25 >> full, "3 layers": bm25 >> full.truncate(3)},
            topics,
            qrels,
            [AP, RelativeCost],
        )
    assert table["RelativeCost"].tolist() == [0, 1, 0.75]
    assert table["AP"].between(0.3, 1).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"passages": "last"}, "passages must be one of first, max, mean, not 'last'"),
        (
            {"precision": "int3"},
            "precision must be one of auto, fp32, bf16, fp16, int8, mixed with engine='torch', not",
        ),
        ({"max_length": 4}, "max_length=4 leaves no room for a query and a document; use 8 or more"),
    ],
)
def test_bad_settings_are_refused_at_the_door(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CrossEncoder.from_pretrained("anything", **settings)


def test_bad_models_are_refused(tmp_path, results):
    four = CrossEncoder.from_pretrained(tiny.save(tmp_path / "four", outputs=4))
    message = (
        f"{str(tmp_path / 'four')!r} tells 4 classes apart; a reranker needs a head of 1 or 2 outputs: give another "
        "model, or save the encoder alone with transformers' AutoModel and train it"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        four(results)
    deep = CrossEncoder.from_pretrained(tiny.save(tmp_path / "two")).truncate(layers=3)
    with pytest.raises(ValueError, match=re.escape("has 2 layers; use 1 to 2")):
        deep(results)
    with pytest.raises(ValueError, match=re.escape("layers=0, but the encoder")):
        CrossEncoder.from_pretrained(str(tmp_path / "two"), layers=0)(results)
    with pytest.raises(ValueError, match=r"max_length=513, but '.*two' has positions for 512 tokens"):
        CrossEncoder.from_pretrained(str(tmp_path / "two"), max_length=513)(results)
    with pytest.raises(FileNotFoundError, match=re.escape("there is no folder './nowhere'; give one with a config")):
        CrossEncoder.from_pretrained("./nowhere")(results)


def modules(folder: Path, path: str) -> None:
    """Makes a folder one of sentence-transformers, whose encoder is at a path in it."""
    kinds = {"Transformer": path, "Pooling": "1_Pooling"}
    listed = [{"path": where, "type": f"sentence_transformers.models.{kind}"} for kind, where in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')


def test_a_bi_encoder_is_an_encoder_to_be_trained(tmp_path, results):
    folder = tiny.save(tmp_path / "bi", outputs=None)
    modules(tmp_path / "bi", "")
    message = (
        f"{folder!r} is a bi-encoder of sentence-transformers without a classifier, and the head of {folder!r} is "
        "fresh (classifier.bias, classifier.weight): train it with fit() before its scores mean anything"
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        CrossEncoder.from_pretrained(folder)(results)


@pytest.mark.parametrize("cls", [CrossEncoder, Cascade, DCBERT, SequentialReranker, HierarchicalRanker])
def test_a_folder_without_a_configuration(tmp_path, results, cls):
    empty, outer = tmp_path / "empty", tmp_path / "outer"
    empty.mkdir()
    message = f"{str(empty)!r} has no config.json; give a folder that save_pretrained wrote"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(message)}$"):
        cls.from_pretrained(str(empty))(results)
    # The encoder may lie in a folder of sentence-transformers.
    inner = tiny.save(outer / "2_Transformer", outputs=None)
    modules(outer, "2_Transformer")
    message = f"{str(outer)!r} has no config.json; give a folder that save_pretrained wrote, such as {inner!r}"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(message)}$"):
        cls.from_pretrained(str(outer))(results)


def test_a_regression_head_ranks_by_its_raw_score(tmp_path, results):
    """On its own scale, without a sigmoid, whatever the configuration says of the problem."""
    folder = tiny.save(tmp_path, outputs=1)
    module = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    module.config.problem_type = "regression"
    with torch.no_grad():
        module.classifier.weight *= 40
        module.classifier.bias += 100
    module.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(results["query"].tolist(), results["text"].tolist(), padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = module(**inputs).logits[:, 0].numpy()
    assert np.ptp(logits) > 10
    found = results[["qid", "docno"]].merge(CrossEncoder.from_pretrained(folder)(results))["score"]
    np.testing.assert_allclose(found, logits, rtol=1e-5)


def test_a_fresh_head_is_said(tmp_path, results):
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path, outputs=None))
    expected = r"the head of .* is fresh \(classifier.bias, classifier.weight\): train it with fit\(\)"
    with pytest.warns(UserWarning, match=expected):
        out = ranker(results)
    with pytest.warns(UserWarning):
        again = CrossEncoder.from_pretrained(str(tmp_path))(results)
    assert_frame_equal(out, again)
    ranker.save_pretrained(str(tmp_path / "saved"))
    saved = CrossEncoder.from_pretrained(str(tmp_path / "saved"))
    with pytest.warns(
        UserWarning, match=r"the head of .*saved' was saved before it was trained: train it with fit\(\)"
    ):
        assert_frame_equal(saved(results), out)


def test_a_truncated_model_that_was_trained_is_whole(tmp_path, results):
    labelled = results.assign(label=[1, 1, 0, 0, 0])
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path / "full", layers=3, outputs=None), layers=2)
    ranker.fit_candidates(labelled).save_pretrained(str(tmp_path / "two"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_frame_equal(CrossEncoder.from_pretrained(str(tmp_path / "two"), layers=2)(results), ranker(results))
    with pytest.warns(UserWarning, match="was trained on layer 2 and now reads layer 1"):
        CrossEncoder.from_pretrained(str(tmp_path / "two"), layers=1)(results)
