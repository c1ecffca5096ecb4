"""Scores of the monolithic reranker: Hugging Face's own, whatever stands beside a candidate (X-3)."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

from pyterrier_cascade import DCBERT, Cascade, CrossEncoder, HierarchicalRanker, Training
from tests import tiny

TEXTS = [
    "the ship",
    "it was launched in 1802, by nobody at all.",
    "",
    "été 漢字 😀 " * 10,
    "the town " * 40,
    "founded" * 300,
]


def frame(texts=TEXTS, query="who founded the town") -> pd.DataFrame:
    docnos = [f"d{i}" for i in range(len(texts))]
    return pd.DataFrame({"qid": "1", "query": query, "docno": docnos, "text": texts})


def by_docno(out: pd.DataFrame) -> np.ndarray:
    return out.set_index("docno")["score"].sort_index().to_numpy()


def reference(ranker: CrossEncoder, candidates: pd.DataFrame) -> np.ndarray:
    """Hugging Face's own forward pass, a pair at a time."""
    model, scores = ranker.model.loaded, []
    for query, text in zip(candidates["query"], candidates["text"], strict=True):
        # Lists, because a lone empty string would be taken for no second text at all.
        inputs = model.tokenizer(
            [query], [text], truncation="only_second", max_length=model.length_limit, return_tensors="pt"
        )
        with torch.no_grad():
            logits = model.module(**inputs).logits[0]
        scores.append((logits[1] - logits[0] if len(logits) == 2 else logits[0]).item())
    return np.array(scores)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_scores_are_those_of_hugging_face(tmp_path, family, outputs):
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path, family, outputs=outputs))
    got = by_docno(ranker(frame()))
    np.testing.assert_allclose(got, reference(ranker, frame()), atol=1e-5, rtol=0)
    assert np.ptp(got) > 0.01


@pytest.mark.parametrize("budget", [1, 64, 100_000])
def test_scores_do_not_depend_on_batch_mates_or_order(tiny_bert, budget):
    whole = by_docno(CrossEncoder.from_pretrained(tiny_bert)(frame()))
    ranker = CrossEncoder.from_pretrained(tiny_bert, token_budget=budget)
    np.testing.assert_allclose(by_docno(ranker(frame().iloc[::-1])), whole, atol=1e-5, rtol=0)
    alone = [ranker(frame().iloc[[i]])["score"].item() for i in range(len(TEXTS))]
    np.testing.assert_allclose(alone, whole, atol=1e-5, rtol=0)


def test_only_the_document_is_cut(tiny_bert):
    """What lies behind the limit does not count, the query's last word does."""
    ranker = CrossEncoder.from_pretrained(tiny_bert, max_length=32)
    texts = ["the ship was launched in the town " * 9 + tail for tail in ("what", "who")]
    first, second = by_docno(ranker(frame(texts)))
    assert first == pytest.approx(second, abs=1e-6)
    assert by_docno(ranker(frame(texts, "who founded the ship")))[0] != pytest.approx(first, abs=1e-4)


def test_a_query_that_leaves_no_room_is_cut_and_this_is_said(tiny_bert):
    ranker = CrossEncoder.from_pretrained(tiny_bert, max_length=32)
    message = (
        "1 of 1 queries have more than 13 tokens (the longest 40) and are cut, "
        "so that a document fits beside them in max_length=32"
    )
    with pytest.warns(UserWarning, match=re.escape(message)):
        long = ranker(frame(["the ship", "town"], "who " * 40))
    short = ranker(frame(["the ship", "town"], "who " * 13))
    np.testing.assert_allclose(by_docno(long), by_docno(short), atol=1e-6)


def test_passages_are_combined_as_asked(tiny_bert):
    """A long document's score is that of its first passage, the largest, or the mean."""
    settings = {"max_length": 24}
    scores = {
        passages: by_docno(CrossEncoder.from_pretrained(tiny_bert, passages=passages, **settings)(frame()))
        for passages in ("first", "max", "mean")
    }
    ranker = CrossEncoder.from_pretrained(tiny_bert, **settings)
    tokenizer = ranker.model.loaded.tokenizer
    for number, text in enumerate(TEXTS):
        # The overlap is a quarter of the limit.
        inputs = tokenizer(
            ["who founded the town"],
            [text],
            truncation="only_second",
            max_length=24,
            stride=6,
            return_overflowing_tokens=True,
        )
        each = []
        for ids, types in zip(inputs["input_ids"], inputs["token_type_ids"], strict=True):
            with torch.no_grad():
                logits = ranker.model.loaded.module(torch.tensor([ids]), token_type_ids=torch.tensor([types])).logits[0]
            each.append((logits[1] - logits[0]).item())
        assert len(each) == (7 if text == "the town " * 40 else len(each))
        assert [scores[passages][number] for passages in scores] == pytest.approx(
            [each[0], max(each), np.mean(each)], abs=1e-5
        )


def test_passages_cost_what_they_take(tiny_bert):
    """42 tokens beside a query of 4: windows of 24-3-4=17 that advance by 17-6=11, so 1+ceil(25/11)=4; and 1 more."""
    texts = ["the ship", "the ship was launched in the town " * 6]
    out = CrossEncoder.from_pretrained(tiny_bert, max_length=24, passages="max")(frame(texts))
    assert out["q_cost"].tolist() == [2 * (4 + 1)] * 2


def test_bf16_is_near(tiny_bert):
    exact = by_docno(CrossEncoder.from_pretrained(tiny_bert)(frame()))
    near = by_docno(CrossEncoder.from_pretrained(tiny_bert, precision="bf16")(frame()))
    assert 0 < np.abs(near - exact).max() < 0.05


def test_a_truncated_model_runs_the_first_layers_only(tmp_path):
    """CT-6: E; L_1..L_rho and a head; CT-34: half the layers, half the cost."""
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path, layers=4, outputs=None))
    half = ranker.truncate(layers=2)
    model = half.model.loaded
    assert model.layers == 2 and len(model.module.bert.encoder.layer) == 2
    with torch.no_grad():
        inputs = model.tokenizer(["who"], ["the ship"], return_tensors="pt")
        whole = ranker.model.loaded.module.bert(**inputs, output_hidden_states=True).hidden_states[2]
        torch.testing.assert_close(model.module.bert(**inputs).last_hidden_state, whole)
    with pytest.warns(UserWarning, match="is fresh"):
        out = half(frame())
    assert out["exit_layer"].tolist() == [2] * 6
    assert (out["q_cost"] / out["q_cost_full"]).tolist() == [0.5] * 6


@pytest.mark.parametrize(("layers", "cost"), [(4, 66.7), (6, 50), (8, 33.3), (10, 16.7)])
def test_what_truncation_saves(tmp_path, layers, cost):
    """CT-34, with 16.7 for the 20 that is printed."""
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path, layers=12)).truncate(layers=layers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = ranker(frame())
    for kind in ("", "token_"):
        assert (100 - 100 * out[f"q_{kind}cost"] / out[f"q_{kind}cost_full"]).round(1).unique().tolist() == [cost]


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_can_be_truncated(tmp_path, family):
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path, family, layers=3)).truncate(layers=1)
    with pytest.warns(UserWarning, match="was trained on layer 3 and now reads layer 1"):
        assert len(ranker(frame())) == 6


def test_a_short_encoder_has_a_short_default(tmp_path):
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path, max_position_embeddings=40))
    np.testing.assert_allclose(by_docno(ranker(frame())), reference(ranker, frame()), atol=1e-5, rtol=0)
    assert ranker._tokenize(*ranker._texts(frame())).lengths[4] == 40


def hf_scores(folder: str, candidates: pd.DataFrame, length: int) -> tuple[np.ndarray, list[int]]:
    """The scores of Hugging Face's own classes, and the tokens of each pair."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    scores, lengths = [], []
    for query, text in zip(candidates["query"], candidates["text"], strict=True):
        inputs = tokenizer([query], [text], truncation="only_second", max_length=length, return_tensors="pt")
        with torch.no_grad():
            scores.append(np.diff(model(**inputs).logits[0]).item())
        lengths.append(inputs["input_ids"].shape[1])
    return np.array(scores), lengths


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_a_tokenizers_own_limit_is_a_default(tmp_path, family, caplog):
    """A checkpoint saved with 128 has positions for 512, and reads 256 where it is asked to."""
    folder = tiny.limit_tokenizer(tiny.save(tmp_path / "saved", family), 128)
    candidates = frame(["the ship", "what town " * 300, "who is it " * 300])
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for asked, length in ((None, 128), (256, 256), (512, 512)):
            ranker = CrossEncoder.from_pretrained(folder, max_length=asked)
            found[length] = by_docno(ranker(candidates))
            expected, lengths = hf_scores(folder, candidates, length)
            assert lengths[1:] == [length] * 2 == ranker._tokenize(*ranker._texts(candidates)).lengths[1:].tolist()
            np.testing.assert_allclose(found[length], expected, atol=1e-5, rtol=0)
    assert np.abs(found[256] - found[128])[1:].min() > 1e-3 and not caplog.records
    message = f"max_length=1024, but {folder!r} has positions for 512 tokens"
    with pytest.raises(ValueError, match=re.escape(message)):
        CrossEncoder.from_pretrained(folder, max_length=1024)(candidates)
    # A query may be longer than the number too, and a folder that is saved again keeps it.
    ranker = CrossEncoder.from_pretrained(folder, max_length=512)
    n_words = 200 if family == "bert" else 50
    long = [by_docno(ranker(frame(["the ship"], "who " * n_words + end))) for end in ("town", "ship")]
    assert abs(long[0] - long[1]) > 1e-4
    ranker.save_pretrained(str(tmp_path / "again"))
    again = CrossEncoder.from_pretrained(str(tmp_path / "again"))
    np.testing.assert_allclose(by_docno(again(candidates)), found[128], atol=1e-6)


def test_a_cascade_reads_as_far_as_it_has_positions(tmp_path):
    folder = tiny.limit_tokenizer(tiny.save(tmp_path / "bert", outputs=None), 128)
    lengths = {}
    for asked in (None, 256):
        cascade = Cascade.from_pretrained(folder, layers=[1, 2], max_length=asked)
        lengths[asked] = cascade._tokenize(*cascade._texts(frame(["what town " * 200]))).lengths.tolist()
    assert lengths == {None: [128], 256: [256]} and cascade.model.loaded.describe()["tokens"] == 512


def test_on_real_weights(shared_models):
    """Batched, in length order, with fp16 weights on disk."""
    ranker = CrossEncoder.from_pretrained(str(shared_models / "bert-tiny"))
    np.testing.assert_allclose(by_docno(ranker(frame())), reference(ranker, frame()), atol=1e-5, rtol=0)
    assert next(ranker.model.loaded.module.parameters()).dtype == torch.float32


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_a_head_without_a_dense_layer_is_the_formula_and_stays_it_in_training(tmp_path, family):
    """TA-2: softmax(W_T tanh(x) + B_T) of the encoder's first symbol, before and after training and in Hugging Face."""
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path / "bare", family, outputs=None), dense=False)
    candidates = frame(TEXTS[:4])
    train = candidates.assign(label=[1, 0, 0, 1])
    ranker.with_training(epochs=2, learning_rate=1e-2).fit_candidates(train)
    ranker.save_pretrained(str(tmp_path / "saved"))
    again = CrossEncoder.from_pretrained(str(tmp_path / "saved"))
    again.with_training(epochs=1, learning_rate=1e-2).fit_candidates(train)
    for one in (ranker, again):
        module, tokenizer = one.model.loaded.module, one.model.loaded.tokenizer
        top = getattr(module.classifier, "out_proj", module.classifier)
        inputs = tokenizer(candidates["query"].tolist(), TEXTS[:4], padding=True, return_tensors="pt")
        with torch.no_grad():
            x = module.base_model(**inputs).last_hidden_state[:, 0]
            logits = torch.tanh(x) @ top.weight.T + top.bias
            torch.testing.assert_close(module(**inputs).logits, logits)
        np.testing.assert_allclose(by_docno(one(candidates)), logits[:, 1] - logits[:, 0], atol=1e-5)
    assert (by_docno(again(candidates)) != by_docno(ranker(candidates))).all()


def test_no_dense_layer_only_where_one_stands_before_a_tanh(tmp_path):
    trained, electra = tiny.save(tmp_path / "trained"), tiny.save(tmp_path / "electra", "electra", outputs=None)
    for source, message in (
        (trained, f"dense=False, but the head of {trained!r} was trained with a dense layer; give a bare encoder"),
        (
            electra,
            "dense=False is for heads of a dense layer and a tanh (bert, roberta, xlm-roberta, camembert), "
            "not for those of electra",
        ),
    ):
        with pytest.raises(ValueError) as error:
            CrossEncoder.from_pretrained(source, dense=False)(frame())
        assert str(error.value) == message


@pytest.mark.parametrize("passages", ["max", "mean"])
def test_passages_do_not_depend_on_other_queries(tmp_path, passages):
    """X-3: a long query beside it leaves less room, and other overlaps, to its own documents only."""
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path), passages=passages, max_length=64)
    long_text = "ship town who founded launched the in a was what of is " * 20
    few = pd.DataFrame({"qid": ["a", "b"], "query": ["what ship", "what town " * 20], "docno": "d", "text": long_text})
    beside = ranker(few).set_index("qid")["score"]
    for qid, alone in few.groupby("qid"):
        np.testing.assert_allclose(ranker(alone)["score"].item(), beside[qid], atol=1e-5)
    pairs = ranker._tokenize(*ranker._texts(few.iloc[::-1]), passages=True)
    assert (np.diff(pairs.owner) >= 0).all() and set(pairs.owner) == {0, 1} and pairs.lengths.max() == 64


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_least_length(tmp_path, family):
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path, family), max_length=8)
    with pytest.warns(UserWarning, match="queries have more than"):
        assert len(ranker(frame().assign(query="what ship was launched in the town"))) == 6


def test_first_used_in_inference_mode_it_can_be_trained(tmp_path):
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path), training=Training(epochs=1))
    with torch.inference_mode():
        ranker(frame())
    ranker.fit_candidates(frame().assign(label=[1, 0, 0, 1, 0, 0]))


def test_the_callers_generators_are_left_alone(tmp_path, monkeypatch):
    """Also those of a GPU, which torch.manual_seed would seed."""
    folder, seeded = tiny.save(tmp_path, outputs=None), []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    for kind in (CrossEncoder, Cascade, DCBERT):
        assert kind.from_pretrained(folder).model.loaded
    assert HierarchicalRanker().model.loaded and not seeded


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weights_are_fp32_whatever_the_default(tmp_path, dtype):
    folder = tiny.save(tmp_path, outputs=None)
    torch.set_default_dtype(dtype)
    try:
        rankers = [kind.from_pretrained(folder) for kind in (CrossEncoder, Cascade, DCBERT)] + [HierarchicalRanker()]
        for ranker in rankers:
            assert {weight.dtype for weight in ranker.model.loaded.module.parameters()} == {torch.float32}
    finally:
        torch.set_default_dtype(torch.float32)
