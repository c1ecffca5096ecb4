"""The hierarchical ranker as a transformer."""

import json
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from pandas.testing import assert_frame_equal
from pyterrier.testing import transformer_test_class

from pyterrier_cascade import (
    BM25,
    CrossEncoder,
    HierarchicalArchitecture,
    HierarchicalRanker,
    HierarchicalTraining,
    RelativeCost,
    RelativeTokenCost,
    Training,
)
from pyterrier_cascade.frames import mean_average_precision
from tests.hierarchical.questions import DEV, SMALL, TEST, TRAIN, ranker, vector_file

pytestmark = pytest.mark.filterwarnings("ignore:.* is fresh")


def _ranker() -> HierarchicalRanker:
    return HierarchicalRanker("RI", "pair", vectors="nowhere.txt", training=HierarchicalTraining(epochs=2))


TestContract = transformer_test_class(_ranker)


@pytest.fixture(scope="module")
def fitted() -> HierarchicalRanker:
    return ranker().fit_candidates(TRAIN, DEV)


def test_the_result_is_the_whole_frame(fitted, results):
    before = results.copy()
    out = fitted(results)
    assert_frame_equal(results, before)
    costs = ["q_cost", "q_cost_full", "q_token_cost", "q_token_cost_full", "q_full_layers", "q_layer_size"]
    assert list(out.columns) == ["qid", "query", "docno", "text", "extra", *costs, "score", "rank"]
    assert out["qid"].tolist() == ["2", "2", "1", "1", "1"] and out["rank"].tolist() == [0, 1, 0, 1, 2]
    empty = _ranker()(results.iloc[:0])
    assert list(empty.columns) == list(out.columns) and empty.dtypes["score"] == out.dtypes["score"]


def test_a_score_depends_on_its_pair_alone(fitted):
    """Of the list level too, which is trained through a softmax over the candidates."""
    whole = fitted(TEST).set_index(["qid", "docno"])["score"]
    for frame in (TEST.iloc[::-1], TEST.iloc[::3], TEST.iloc[[7]]):
        part = fitted(frame).set_index(["qid", "docno"])["score"]
        np.testing.assert_allclose(part, whole[part.index], rtol=0, atol=1e-5)
    again = fitted(token_budget=20)(TEST).set_index(["qid", "docno"])["score"]
    np.testing.assert_allclose(again, whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize("text", ["", None, "xyzzy plugh", "\U0001f600", "?", "ship " * 3_000])
def test_any_text_has_a_score(fitted, text):
    frame = pd.DataFrame(
        {"qid": ["1", "2"], "query": [text or "", "ship"], "docno": ["a", "b"], "text": [text, "ship"]}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = fitted(frame)
    assert np.isfinite(out["score"]).all()


def test_a_missing_text_causes_a_warning(fitted):
    frame = pd.DataFrame({"qid": ["1"], "query": ["ship"], "docno": ["a"], "text": [None]})
    with pytest.warns(UserWarning, match="1 of 1 rows have no 'text'; they are scored as an empty text"):
        missing = fitted(frame)
    assert missing["score"].tolist() == fitted(frame.assign(text=""))["score"].tolist()


def test_many_candidates_and_a_long_question(fitted):
    long = fitted(TEST.assign(query="what of the ship " * 100))
    assert np.isfinite(long["score"]).all()
    frame = pd.concat([TEST] * 20, ignore_index=True)
    frame = frame.assign(qid="1", docno=[str(row) for row in range(len(frame))], query="what of the ship " * 25)
    assert len(fitted(frame)) == 2_000
    alone = fitted(frame.iloc[[1_234]])
    out = fitted(frame).set_index("docno")["score"]
    assert out["1234"] == pytest.approx(alone["score"].item(), abs=1e-5)


def test_a_fresh_ranker_warns(results):
    with pytest.warns(
        UserWarning, match=re.escape("PRI(list) is fresh and knows no words: train it with fit() before")
    ):
        HierarchicalRanker()(results)


def test_pickles_are_small_and_equal(fitted, tmp_path):
    fresh = _ranker()
    assert pickle.loads(pickle.dumps(fresh)) == fresh and len(pickle.dumps(fresh)) < 2_000
    carried = pickle.loads(pickle.dumps(fitted))
    assert carried == fitted and carried != ranker()
    assert_frame_equal(carried(TEST), fitted(TEST))


def test_saved_and_loaded_it_is_the_same_ranker(tmp_path):
    learner = ranker(vectors=vector_file(tmp_path)).fit_candidates(TRAIN, DEV)
    assert repr(learner).startswith("<HierarchicalRanker 'fresh' fitted to ")
    out = learner(TEST)
    carried = pickle.loads(pickle.dumps(learner))
    assert_frame_equal(carried(TEST), out)
    folder = str(tmp_path / "saved")
    carried.save_pretrained(folder)
    learner.save_pretrained(folder)
    again = HierarchicalRanker.from_pretrained(folder, training=learner.training)
    assert again == learner and len(pickle.dumps(learner)) < 3_000
    assert eval(repr(again)) == again
    assert_frame_equal(again(TEST), out)
    assert again.model.loaded.untrained is None
    files = {"README.md", "config.json", "model.safetensors", "vocab.txt"}
    assert {path.name for path in (tmp_path / "saved").iterdir()} == files
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert (config["scheme"], config["level"], config["trained_on"]["questions"]) == ("PRI", "list", 40)
    assert config["architecture"]["embedding_width"] == 12
    assert_frame_equal(learner.loaded_from(folder)(TEST), out)


def test_a_ranker_saved_before_its_training_warns(tmp_path, results):
    _ranker().save_pretrained(str(tmp_path))
    with pytest.warns(UserWarning, match="was saved before it was trained: train it with fit"):
        HierarchicalRanker.from_pretrained(str(tmp_path))(results)


def test_a_path_of_vectors_is_its_name(tmp_path):
    assert repr(HierarchicalRanker(vectors=tmp_path)) == f"HierarchicalRanker('PRI', 'list', vectors={str(tmp_path)!r})"


def test_names_can_be_typed_back_in():
    for one, shown in [
        (HierarchicalRanker(), "HierarchicalRanker('PRI', 'list')"),
        (_ranker(), "HierarchicalRanker('RI', 'pair', vectors='nowhere.txt', training=HierarchicalTraining(epochs=2))"),
        (
            HierarchicalRanker(architecture=HierarchicalArchitecture(width=100, k_max=(10, 5)), precision="bf16"),
            None,
        ),
    ]:
        assert shown is None or repr(one) == shown
        assert eval(repr(one)) == one and hash(eval(repr(one))) == hash(one)
    assert HierarchicalRanker() != HierarchicalRanker("RI") != HierarchicalRanker("RI", "pair")


def test_rows_of_experiments_have_short_names(fitted, tmp_path):
    assert str(_ranker()(precision="bf16")) == "HierarchicalRanker('RI', 'pair', precision='bf16')"
    assert str(fitted) == "HierarchicalRanker('PRI', 'list', trained)"
    folder = tmp_path / "saved"
    fitted.apart().save_pretrained(str(folder))
    assert str(HierarchicalRanker.from_pretrained(str(folder))) == "HierarchicalRanker('saved')"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: HierarchicalRanker(shceme="RI"),
            r"no setting 'shceme' \(did you mean 'scheme'",
        ),
        (lambda: HierarchicalArchitecture(chanels=3), r"no setting 'chanels' \(did you mean 'channels'"),
        (lambda: HierarchicalTraining(margn=1), r"no setting 'margn' \(did you mean 'margin'"),
        (lambda: HierarchicalRanker()(verbos=True), r"no setting 'verbos' \(did you mean 'verbose'"),
    ],
    ids=["ranker", "architecture", "training", "copy"],
)
def test_misspelt_settings(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_copies_share_the_weights(fitted):
    copy = fitted(precision="bf16", verbose=False)
    assert copy.model is fitted.model and copy != fitted
    message = "scheme and level cannot be changed, because the weights were made with another value; make a new Hier"
    with pytest.raises(ValueError, match=re.escape(message)):
        fitted(scheme="RI", level="pair")


def test_the_schematic_draws_without_a_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("drawing looked for documentation online")

    monkeypatch.setattr(pt.documentation, "url_for_class", refuse)
    assert "HierarchicalRanker" in pt.schematic.draw(_ranker() >> _ranker())


def test_in_a_pipeline_the_qrels_give_the_labels(fitted):
    results = pd.concat([TRAIN, DEV]).drop(columns="label")
    topics, qrels = ([frame[columns].drop_duplicates() for frame in (TRAIN, DEV)]
                     for columns in (["qid", "query"], ["qid", "docno", "label"]))  # fmt: skip
    pipeline = pt.Transformer.from_df(results) >> ranker()
    pipeline.fit(topics[0], qrels[0], topics[1], qrels[1])
    np.testing.assert_allclose(pipeline[1](TEST)["score"], fitted(TEST)["score"])


def test_bm25_comes_before_it(fitted):
    bm25 = BM25.from_docs([{"docno": "d1", "text": "the ship was sold"}, {"docno": "d2", "text": "a ship"}])
    out = (bm25 >> fitted)(pd.DataFrame({"qid": ["1"], "query": ["ship"]}))
    assert out["rank"].tolist() == list(range(len(out)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheme": "PRI", "level": "pair"}, "there is no PRI(pair); use one of CA(point), "),
        ({"precision": "int8"}, "precision must be one of auto, fp32, bf16, fp16, not 'int8'"),
        ({"token_budget": 0}, "token_budget must be a whole number from 1, or None, not 0"),
        ({"training": Training()}, "training must be HierarchicalTraining(...), not Training()"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        HierarchicalRanker(**settings)


def test_a_missing_file_of_vectors():
    with pytest.raises(FileNotFoundError, match=r"there is no file 'nowhere\.txt' of word vectors"):
        _ranker().fit_candidates(TRAIN, DEV)


SIZE = sum(kernel * 16 * 8 for kernel in (1, 2, 3, 4, 5)) * 3
"""The multiply-adds of the CNN for a word: five sizes of kernels, from 16 to 8 channels, of the three levels of PRI."""


def test_relative_cost_counts_the_cnn_as_a_layer(fitted):
    out = fitted(TEST)
    words = (TEST["query"] + " " + TEST["text"]).str.split().str.len().groupby(TEST["qid"]).sum()
    assert out["q_full_layers"].unique().tolist() == [1] and out["q_layer_size"].unique().tolist() == [SIZE]
    assert (out["q_cost"] == 5).all() and (out["q_cost_full"] == 5).all()
    assert out.groupby("qid")["q_token_cost"].first().to_dict() == words.to_dict()
    # A level that reads no other has a CNN of its own alone.
    assert ranker("CA", "list").full_model() == ranker("MTL", "list").full_model() == (1, SIZE // 3)


def test_it_counts_in_a_pipeline_by_its_multiply_adds(fitted, tiny_bert):
    """A layer of 32, with 64 inside, has 4 x 32 x 32 + 2 x 32 x 64 = 8,192 of them for a token."""
    out = (fitted % 3 >> CrossEncoder.from_pretrained(tiny_bert))(TEST)
    assert out["q_cost"].unique().tolist() == [5 * SIZE / 8192 + 3 * 2]
    assert out["q_cost_full"].unique().tolist() == [5 * 2]
    found = pt.Evaluate(out, TEST[["qid", "docno", "label"]], [RelativeCost, RelativeTokenCost])
    assert found["RelativeCost"] == pytest.approx(0.9515625) and found["RelativeTokenCost"] > 0


def test_attention_names_the_words(fitted):
    to_answer, to_question = fitted.attention("What became of the ship?", "This ship.")
    assert to_answer.index.tolist() == ["what", "became", "of", "the", "ship", "?"]
    assert to_answer.columns.tolist() == to_question.index.tolist() == ["this", "ship", "."]
    np.testing.assert_allclose(to_answer.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(to_question.sum(axis=1), 1, rtol=1e-5)
    assert fitted.attention("", "ship")[0].shape == (1, 1)


def test_words_of_the_file_that_training_did_not_see(tmp_path):
    """They have the vectors of the file; without frequent words they have none (HR-8)."""
    path = vector_file(tmp_path)
    frame = pd.DataFrame({"qid": "1", "query": "ship", "docno": ["a", "b"], "text": ["rare", "xyzzy"]})
    for frequent, differ in ((100, True), (0, False)):
        learner = ranker(
            architecture=HierarchicalArchitecture(12, 8, 4, hidden=4, frequent_words=frequent), vectors=path
        )
        scores = learner.fit_candidates(TRAIN)(frame).set_index("docno")["score"]
        assert (scores["a"] != scores["b"]) == differ
        n_known = sum(word in ("the", "of", ".") for word in learner.model.loaded.module.vectors.numbers) + 8
        assert len(learner.model.loaded.module.vectors.tuned) == n_known + 1
    assert SMALL.embedding_width != 12


def test_it_learns_the_questions(fitted):
    out = fitted(TEST)
    qrels = TEST[["qid", "docno", "label"]]
    assert mean_average_precision(out, out["score"].to_numpy(), qrels) > 0.9
