"""Stages hand states over: no layer is run twice, and whatever happens to the frame between them, scores are right."""

import copy
import gc
import json
import pickle
import re
import threading
import warnings
import weakref

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from ir_measures import AP
from pandas.testing import assert_frame_equal

from pyterrier_cascade import Cascade, RelativeCost, RelativeTokenCost
from pyterrier_cascade.early_exit import handover
from pyterrier_cascade.early_exit.handover import Mark
from pyterrier_cascade.early_exit.stage import MARK
from pyterrier_cascade.encoder.executor import Executor
from tests.lists import candidates

SIZES = [20, 3, 1, 8]
NOTHING = pt.apply.generic(lambda frame: frame, transform_outputs=lambda columns: columns)


def plain(cascade) -> pt.Compose:
    return NOTHING >> cascade[2] % 0.6 >> cascade[4] % 4 >> cascade[6]


@pytest.fixture
def ran(monkeypatch):
    """A function that returns how many tokens went through each layer since it was called last."""
    seen, lock, run = {}, threading.Lock(), Executor.run

    def spied(self, spans, pairs, rows, states):
        with lock:
            for span in spans:
                for layer in range(self.heads[span - 1].layer if span else 0, self.heads[span].layer):
                    seen[layer + 1] = seen.get(layer + 1, 0) + int(pairs.lengths[rows].sum())
        return run(self, spans, pairs, rows, states)

    def since() -> dict:
        found = dict(sorted(seen.items()))
        seen.clear()
        return found

    monkeypatch.setattr(Executor, "run", spied)
    return since


def same(one: pd.DataFrame, two: pd.DataFrame, without=()) -> None:
    assert_frame_equal(one.drop(columns=list(without)), two.drop(columns=list(without)), atol=1e-5, rtol=0)


def states_of(frame: pd.DataFrame) -> handover.LeftStates | None:
    return frame.attrs[MARK].left


@pytest.mark.parametrize("engine", ["torch", pytest.param("openvino", marks=pytest.mark.slow)])
@pytest.mark.parametrize("passages", ["first", "max"])
def test_a_plain_pipeline_runs_what_the_compiled_one_runs(cascade, ran, engine, passages):
    """Rows, scores, costs and the tokens that went through each layer."""
    cascade = cascade(engine=engine, max_length=24, passages=passages)
    frame, pipeline = candidates(SIZES), plain(cascade)
    expected = pipeline.compile()(frame)
    in_one = ran()
    got = pipeline(frame)
    assert_frame_equal(got, expected, check_exact=True)
    assert ran() == in_one and in_one[1] == in_one[2] > in_one[3] == in_one[4] > in_one[5] == in_one[6]
    assert states_of(got) is None


def test_nothing_is_tokenised_again(cascade, monkeypatch):
    pipeline, frame = plain(cascade), candidates(SIZES)
    asked, tokenize = [], Cascade._tokenize
    monkeypatch.setattr(
        Cascade,
        "_tokenize",
        lambda self, queries, texts, passages=False: (
            asked.append(len(texts)),
            tokenize(self, queries, texts, passages),
        )[1],
    )
    pipeline(frame)
    assert asked == [sum(SIZES)]


def test_a_stage_leaves_the_states_of_its_survivors(cascade):
    frame = candidates(SIZES)
    out = (cascade[2] % 0.6)(frame)
    lengths = cascade._tokenize(*cascade._texts(out)).lengths
    assert states_of(out).n_bytes == lengths.sum() * 32 * 4 and states_of(out).n_left_out == 0
    assert out.attrs == {MARK: (repr(cascade.model), 2)}
    assert states_of(cascade[6](frame)) is None


def test_slabs_and_waves(cascade, monkeypatch, ran):
    """Many pieces of states, in other waves at the next stage."""
    from pyterrier_cascade.cascade import ranker
    from pyterrier_cascade.encoder import engine

    monkeypatch.setattr(ranker, "ROWS", 15)
    monkeypatch.setattr(engine, "WAVE_BYTES", 32 * 4 * 150)
    frame, pipeline = candidates([9, 4, 12, 1, 7, 7, 3], seed=3), plain(cascade)
    expected = pipeline.compile()(frame)
    in_one = ran()
    same(pipeline(frame), expected)
    assert ran() == in_one


def test_experiments_in_batches_and_both_plans(cascade):
    frame = candidates(SIZES)
    systems = {"plain": plain(cascade), "compiled": plain(cascade).compile()}
    systems["shorter"] = NOTHING >> cascade[2] % 0.6 >> cascade[4] % 4
    systems = {name: pt.Transformer.from_df(frame) >> system for name, system in systems.items()}
    qrels = pd.DataFrame({"qid": ["q0", "q1", "q3"], "docno": ["d0-3", "d1-1", "d3-5"], "label": [1, 1, 1]})
    topics = frame[["qid", "query"]].drop_duplicates()
    for options in ({}, {"batch_size": 2}, {"plan": "tree"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = pt.Experiment(systems, topics, qrels, [AP, RelativeCost, RelativeTokenCost], **options)
        found = found.set_index("name")
        assert found.loc["plain"].tolist() == found.loc["compiled"].tolist()
        assert found.loc["shorter", "RelativeCost"] < found.loc["plain", "RelativeCost"] < 0.75


def test_several_threads(cascade):
    pipeline, inputs = plain(cascade), [candidates(SIZES, seed=seed) for seed in range(4)]
    expected, found = [pipeline.compile()(frame) for frame in inputs], {}

    def work(number):
        for _ in range(3):
            found[number] = pipeline(inputs[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        same(found[number], expected[number])


def between(change) -> pt.Transformer:
    return pt.apply.generic(change, transform_outputs=lambda columns: columns)


def other_text(frame):
    return frame.assign(text=frame["text"].where(frame["rank"] != 1, "another text"))


@pytest.mark.parametrize(
    "change",
    [
        other_text,
        lambda frame: frame.assign(query=frame["query"] + " ship"),
        lambda frame: frame.assign(**{name: frame[name].to_numpy()[::-1] for name in ("qid", "query", "text")}),
        lambda frame: frame.sample(frac=1, random_state=1),
        lambda frame: frame.iloc[::2],
        lambda frame: pd.concat([frame, frame.assign(docno=frame["docno"] + "x", rank=frame["rank"] + 50)]),
        lambda frame: frame.assign(qid=frame["qid"] + " again"),
        lambda frame: pickle.loads(pickle.dumps(frame)),
        lambda frame: pd.DataFrame(frame.to_dict("records")),
    ],
    ids=["text", "query", "swapped", "order", "dropped", "twice", "qid", "pickled", "anew"],
)
def test_whatever_happens_between_stages_scores_are_right(cascade, change):
    """The last stage scores what it gets as a stage that gets nothing handed over."""
    frame = candidates(SIZES)
    before = change((cascade[2] % 0.6)(frame))
    expected = (cascade[4] % 4 >> cascade[6])(before.__deepcopy__().pipe(without_mark))
    got = (NOTHING >> cascade[2] % 0.6 >> between(change) >> cascade[4] % 4 >> cascade[6])(frame)
    costs = ("q_cost", "q_token_cost")
    same(got, expected, costs)
    assert (got["q_cost"] <= expected["q_cost"]).all()


def without_mark(frame: pd.DataFrame) -> pd.DataFrame:
    frame.attrs = {}
    return frame


def test_only_what_changed_begins_again(cascade, ran):
    frame = candidates([10])
    first = (cascade[2] % 5)(frame)
    changed = other_text(first)
    ran()
    out = cascade[4](changed)
    seen = ran()
    lengths = cascade._tokenize(*cascade._texts(changed)).lengths
    new = cascade._tokenize([changed["query"].iloc[0]], ["another text"]).lengths[0]
    assert seen == {1: new, 2: new, 3: lengths.sum(), 4: lengths.sum()}
    # Four run two layers more, and the changed one four.
    assert out["q_cost"].unique().tolist() == [10 * 2 + 4 * 2 + 4]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_length": 16},
        {"precision": "bf16"},
        pytest.param({"engine": "openvino"}, marks=pytest.mark.slow),
        {"passages": "max"},
    ],
    ids=["max_length", "precision", "engine", "passages"],
)
def test_other_settings_begin_again(cascade, settings):
    frame = candidates([10])
    first = (cascade[2] % 5)(frame)
    other = cascade(**settings)
    got, expected = other[6](first), other[6](without_mark(copy.copy(first)))
    assert_frame_equal(got, expected, check_exact=True)
    assert got["q_cost"].unique().tolist() == [10 * 2 + 5 * 6]


def test_settings_that_states_do_not_depend_on_go_on(cascade):
    first = (cascade[2] % 5)(candidates([10]))
    assert cascade(alpha=0.5, token_budget=100)[6](first)["q_cost"].unique().tolist() == [10 * 2 + 5 * 4]


def test_weights_that_changed_in_between(saved):
    """In place, under the same name: the states of the old weights are not used."""
    cascade, frame = Cascade.from_pretrained(saved), candidates([10])
    first = (cascade[2] % 5)(frame)
    with torch.no_grad():
        for parameter in cascade.model.loaded.module.parameters():
            parameter.mul_(1.1)
    got, expected = cascade[6](first), cascade[6](without_mark(copy.copy(first)))
    assert_frame_equal(got, expected, check_exact=True)
    assert got["q_cost"].unique().tolist() == [10 * 2 + 5 * 6]


def test_a_fit_in_between(saved):
    """The weights have another name then, so the stage does not follow at all."""
    cascade, frame = Cascade.from_pretrained(saved).with_training(epochs=1), candidates([10, 10])
    first = (cascade[2] % 5)(frame)
    cascade.fit_candidates(frame.assign(label=(frame["rank"] < 3).astype(int)))
    message = re.escape(f"stages of two models in one pipeline: layer 2 of {saved!r}, then layer 6 of {saved!r} fitted")
    with pytest.raises(ValueError, match=message):
        cascade[6](first)


def test_no_room(cascade, monkeypatch, ran):
    """As many as there is room for are handed over, and one warning says how many begin again, and what to do."""
    frame, pipeline = candidates([10, 10]), NOTHING >> cascade[2] % 6 >> cascade[6]
    expected = pipeline.compile()(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        survivors = (cascade[2] % 6)(frame)
    lengths = cascade._tokenize(*cascade._texts(survivors)).lengths
    del survivors
    gc.collect()
    # The first question's five best, and not quite the sixth.
    monkeypatch.setattr(handover, "LIMIT", int(lengths[:6].sum() * 32 * 4 - 1))
    message = (
        "7 of 12 candidates begin again at layer 1, because stages may hand over 0 MB of states; pipeline.compile() "
        "fuses the stages, which then hand nothing over"
    )
    ran()
    with pytest.warns(UserWarning) as warned:
        got = pipeline(frame)
    assert [str(one.message) for one in warned] == [message] and warned[0].filename == __file__
    same(got, expected, ["q_cost", "q_token_cost"])
    assert got.groupby("qid", sort=False)["q_cost"].first().tolist() == [10 * 2 + 5 * 4 + 6, 10 * 2 + 6 * 6]
    assert ran()[1] == lengths[5:].sum() + cascade._tokenize(*cascade._texts(frame)).lengths.sum()


def test_a_stage_without_a_later_one_does_not_warn(cascade, monkeypatch):
    monkeypatch.setattr(handover, "LIMIT", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = (NOTHING >> cascade[2] % 6)(candidates([10]))
    assert states_of(out).n_bytes == 0 and states_of(out).n_left_out == 6


def test_the_limit_holds_for_all_frames_together(cascade, monkeypatch):
    stage, frame = cascade[2] % 5, candidates([10])
    one = stage(frame)
    n_bytes = states_of(one).n_bytes
    monkeypatch.setattr(handover, "LIMIT", n_bytes + 1)
    assert states_of(stage(frame)).n_bytes < n_bytes
    # A stage that goes on from a frame takes the place of its states.
    assert states_of(cascade[4](one)).n_bytes == n_bytes
    del one
    gc.collect()
    assert states_of(stage(frame)).n_bytes == n_bytes


def test_a_long_document_is_left_whole_or_not_at_all(cascade, monkeypatch):
    ranker, frame = cascade(passages="mean", max_length=24), candidates([10])
    inputs, expected = ranker._inputs(*ranker._texts(ranker[2](frame))), ranker[6](frame)
    within = np.flatnonzero(np.diff(inputs.owner) == 0) + 1
    assert len(within) > 2
    for n_inputs in within:
        monkeypatch.setattr(handover, "LIMIT", int(inputs.lengths[:n_inputs].sum() * 32 * 4))
        gc.collect()
        first = ranker[2](frame)
        assert states_of(first).n_left_out == 10 - inputs.owner[n_inputs]
        with pytest.warns(UserWarning, match="begin again at layer 1"):
            same(ranker[6](first), expected, ["q_cost", "q_token_cost"])
        del first


def test_states_go_with_the_frame(cascade):
    out = (cascade[2] % 5)(candidates([10]))
    states = weakref.ref(states_of(out))
    later = out[out["rank"] < 3].reset_index(drop=True)
    assert states_of(later) is states_of(out)
    del out
    gc.collect()
    assert states() is not None
    del later
    gc.collect()
    assert states() is None


def test_the_mark_is_a_tuple_that_copies_share(cascade):
    out = (cascade[2] % 5)(candidates([10]))
    mark = out.attrs[MARK]
    assert isinstance(mark, Mark) and mark == (repr(cascade.model), 2) and mark.left is not None
    assert copy.deepcopy(mark) is copy.copy(mark) is mark and states_of(out.copy()) is mark.left
    again = pickle.loads(pickle.dumps(mark))
    assert again == mark and isinstance(again, Mark) and again.left is None
    assert json.loads(json.dumps(out.attrs)) == {MARK: [repr(cascade.model), 2]}
    # As a Parquet file keeps attributes.
    back = out.copy()
    back.attrs = json.loads(json.dumps(out.attrs))
    same(cascade[6](back), cascade[6](out), ["q_cost", "q_token_cost"])
    with pytest.raises(ValueError, match="stages must go up, but layer 2 follows layer 2"):
        cascade[2](back)


def test_states_of_a_shared_beginning_serve_several_ends(cascade):
    first = (cascade[2] % 5)(candidates([10]))
    expected = cascade[6](first)
    cascade[4](first)
    assert_frame_equal(cascade[6](first), expected, check_exact=True)
    assert np.isfinite(expected["score"]).all()
