"""A cascade over long documents: each is several inputs, with one score at each head, and one fate."""

import numpy as np
import pandas as pd
import pytest
import torch
from ir_measures import AP
from pandas.testing import assert_frame_equal

from pyterrier_cascade import Cascade, CrossEncoder, RelativeTokenCost
from pyterrier_cascade import frames as frames_of
from tests import tiny
from tests.lists import WORDS, candidates

LENGTH = 24
LAYERS = (2, 3, 4, 5, 6)


def long_candidates(sizes=(9, 4), seed: int = 0) -> pd.DataFrame:
    """One to seven passages a document at :data:`LENGTH` tokens."""
    frame = candidates(sizes, seed=seed)
    rng = np.random.default_rng(seed)
    return frame.assign(text=[" ".join(rng.choice(WORDS, rng.integers(2, 70))) for _ in range(len(frame))])


def passages_of(cascade, query: str, text: str) -> list[list[int]]:
    """The inputs of a document; the overlap is a quarter of the limit."""
    tokenizer = cascade.model.loaded.tokenizer
    settings = {"max_length": LENGTH, "stride": LENGTH // 4, "return_overflowing_tokens": True}
    found = tokenizer([query], [text], truncation="only_second", **settings)
    return list(zip(found["input_ids"], found["token_type_ids"], strict=True))


@torch.no_grad()
def scores_by_hand(cascade, frame: pd.DataFrame, combine) -> pd.DataFrame:
    """The model's own forward pass over each passage alone; a column for each head, and inputs and tokens."""
    module, rows = cascade.model.loaded.module, []
    for query, text in zip(frame["query"], frame["text"], strict=True):
        inputs = passages_of(cascade, query, text)
        each = [
            [
                (logits[0, 1] - logits[0, 0]).item()
                for logits in module(
                    input_ids=torch.tensor([ids]),
                    token_type_ids=torch.tensor([types]),
                    attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                )
            ]
            for ids, types in inputs
        ]
        rows.append([*combine(np.array(each)), len(inputs), sum(len(ids) for ids, _ in inputs)])
    keys = [frame["qid"].to_numpy(), frame["docno"].to_numpy()]
    return pd.DataFrame(rows, columns=[*LAYERS, "inputs", "tokens"], index=pd.MultiIndex.from_arrays(keys))


COMBINE = {"first": lambda each: each[0], "max": lambda each: each.max(0), "mean": lambda each: each.mean(0)}


@pytest.mark.parametrize("passages", COMBINE)
def test_each_heads_scores_by_hand(cascade, passages):
    frame = long_candidates()
    expected = scores_by_hand(cascade, frame, COMBINE[passages])
    assert set(expected["inputs"]) >= {1, 2, 5}
    ranker = cascade(max_length=LENGTH, passages=passages)
    for layer in LAYERS:
        got = ranker(plan=(layer,))(frame).set_index(["qid", "docno"])["score"]
        np.testing.assert_allclose(got, expected.loc[got.index, layer], atol=1e-4)


@pytest.mark.parametrize("passages", ["max", "mean"])
def test_who_goes_on_and_what_it_costs_by_hand(cascade, passages):
    frame = long_candidates((12, 5, 1))
    scores = scores_by_hand(cascade, frame, COMBINE[passages])
    out = cascade(max_length=LENGTH, passages=passages, counts=(8, 5, 3, 2))(frame).set_index(["qid", "docno"])
    for qid in ("q0", "q1", "q2"):
        mine = scores.loc[[qid]]
        alive, exits = mine, {}
        for layer, count in zip(LAYERS, (8, 5, 3, 2, 99), strict=True):
            exits |= dict.fromkeys(alive.index, layer)
            alive = alive.sort_values(layer, ascending=False).head(count)
        exits = pd.Series(exits).loc[mine.index]
        assert out.loc[mine.index, "exit_layer"].tolist() == exits.tolist()
        first = out.loc[qid].iloc[0]
        assert first["q_cost"] == (exits * mine["inputs"]).sum() and first["q_cost_full"] == 6 * mine["inputs"].sum()
        assert first["q_token_cost"] == (exits * mine["tokens"]).sum()
        assert first["q_token_cost_full"] == 6 * mine["tokens"].sum()


def test_a_trace_says_what_the_model_says(cascade, tmp_path):
    ranker, frame = cascade(max_length=LENGTH, passages="max"), long_candidates((12, 5, 1, 7))
    trace = ranker.trace(frame, str(tmp_path / "trace"))
    assert trace.inputs.max() > 4 and trace.inputs.dtype == np.int32
    columns = [name for name in trace.results().columns if name != "score"]
    some = [
        {"alpha": 0.5},
        {"counts": (6, 4, 3, 1), "exited": "drop"},
        {"alpha": 0.3, "batch_size": 5},
        {"margin": 1.0},
    ]
    for settings in some:
        assert_frame_equal(trace.results(**settings)[columns], ranker(**settings)(frame)[columns])
    qrels = frame[["qid", "docno"]].assign(label=(frame["rank"] == 1).astype(int).to_numpy())
    found = trace.sweep(qrels, [AP, RelativeTokenCost], alphas=[0.0, 0.5]).frame
    for _, row in found.iterrows():
        out = ranker(alpha=row["alpha"])(frame)
        # The questions with judgements, each with the same weight.
        costs = out.groupby("qid")[["q_cost", "q_cost_full", "q_token_cost", "q_token_cost_full"]].first()
        assert row["RelativeCost"] == pytest.approx((costs["q_cost"] / costs["q_cost_full"]).mean())
        assert row["RelativeTokenCost"] == pytest.approx((costs["q_token_cost"] / costs["q_token_cost_full"]).mean())
    with pytest.raises(ValueError, match="whose weights or settings are not those of"):
        ranker(passages="mean").trace(frame, str(tmp_path / "trace"))


def test_stages_are_the_cascade_with_drop(cascade):
    ranker, frame = cascade(max_length=LENGTH, passages="mean"), long_candidates((12, 5, 1))
    stages = ranker[2] % 0.6 >> ranker[3] % 0.6 >> ranker[4] % 0.6 >> ranker[5] % 0.6 >> ranker[6]
    assert_frame_equal(stages(frame), ranker(alpha=0.4, exited="drop")(frame))


def test_the_first_passage_is_the_default_and_cuts_the_rest_off(cascade):
    frame = long_candidates()
    assert cascade.passages == "first"
    out = cascade(max_length=LENGTH, alpha=0.4)(frame)
    assert_frame_equal(cascade(max_length=LENGTH, passages="first", alpha=0.4)(frame), out)
    assert out.groupby("qid")["q_cost_full"].first().to_dict() == {"q0": 9 * 6, "q1": 4 * 6}


def test_a_converted_cross_encoder_scores_as_before(tmp_path):
    source = CrossEncoder.from_pretrained(tiny.save(tmp_path, layers=4), max_length=LENGTH, passages="max")
    cascade, frame = Cascade.from_cross_encoder(source), long_candidates()
    assert cascade.passages == "max"
    got, expected = (ranker(frame)[["qid", "docno", "score", "q_cost_full", "q_token_cost_full"]]
                     for ranker in (cascade(plan=(4,)), source))  # fmt: skip
    assert_frame_equal(got, expected, atol=1e-5, rtol=0)


def test_training_reads_the_first_passage_and_development_all_of_them(saved, monkeypatch):
    cascade = Cascade.from_pretrained(saved, max_length=LENGTH, passages="max").with_training(
        epochs=1, precision="fp32"
    )
    frame, dev = (long_candidates((8, 8), seed).assign(label=lambda f: (f["rank"] < 3).astype(int)) for seed in (0, 1))
    asked, tokenize = [], Cascade._tokenize
    monkeypatch.setattr(
        Cascade,
        "_tokenize",
        lambda self, queries, texts, passages=False: (asked.append(passages), tokenize(self, queries, texts, passages))[
            1
        ],
    )
    cascade.fit_candidates(frame, dev)
    assert asked[:2] == [False, True]
    measured = cascade.history.dropna(subset="dev_map").iloc[-1]
    for layer in LAYERS:
        out = cascade(plan=(layer,))(dev)
        expected = frames_of.mean_average_precision(out, out["score"].to_numpy(), dev[["qid", "docno", "label"]])
        assert measured[f"dev_map_{layer}"] == pytest.approx(expected)


def test_another_way_is_refused():
    with pytest.raises(ValueError, match="passages must be one of first, max, mean, not 'last'"):
        Cascade.from_pretrained("nowhere/to-be-found", passages="last")
