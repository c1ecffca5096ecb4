"""A cascade as a pipeline of stages: unfused and compiled are the same."""

import itertools
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP
from pandas.testing import assert_frame_equal
from pyterrier.testing import transformer_test_class

from pyterrier_cascade import Cascade, CrossEncoder, FractionCutoff, RelativeCost, SequentialReranker
from pyterrier_cascade.early_exit.stage import FusedStages, Stage
from tests import tiny
from tests.lists import candidates

NOTHING = pt.apply.generic(lambda frame: frame, transform_outputs=lambda columns: columns)
"""A transformer in front, behind which PyTerrier joins stages by itself and does not fuse them."""

COSTS = ["q_cost", "q_cost_full", "q_token_cost", "q_token_cost_full"]


def _stage():
    return Cascade.from_pretrained("nowhere/to-be-found")[4]


TestContract = transformer_test_class(_stage)
TestFused = transformer_test_class(lambda: _stage() % 0.5)


def same(one: pd.DataFrame, two: pd.DataFrame) -> None:
    """Costs are sums of whole numbers and are equal."""
    assert_frame_equal(one[COSTS], two[COSTS], check_exact=True)
    assert_frame_equal(one.drop(columns=COSTS), two.drop(columns=COSTS), check_exact=False, atol=2e-6, rtol=0)


def test_compiled_it_is_one(cascade):
    pipeline = NOTHING >> cascade[2] % 0.6 >> cascade[3] % 5 % np.int64(4) >> cascade[6]
    assert [type(part) for part in pipeline][1:] == [FusedStages, FusedStages, Stage]
    fused = (cascade[2] % 0.6 >> cascade[3] % 5 % np.int64(4) >> cascade[6]).compile()
    assert isinstance(fused, FusedStages) and len(fused.parts) == 6
    frame = candidates([20, 3, 1, 8])
    same(pipeline(frame), fused(frame))
    out = fused(frame)
    assert out.groupby("qid").size().to_dict() == {"q0": 4, "q1": 2, "q2": 1, "q3": 4}
    assert out["exit_layer"].unique().tolist() == [6]
    # 20 run 2 layers, 12 one more, 4 the other three.
    assert out.loc[out["qid"] == "q0", "q_cost"].unique().tolist() == [20 * 2 + 12 + 4 * 3]
    assert out.loc[out["qid"] == "q0", "q_cost_full"].unique().tolist() == [20 * 6]


def test_joined_they_are_one(cascade):
    pipeline = cascade[2] % 0.6 >> cascade[3] % 5 % np.int64(4) >> (cascade[4] >> pt.RankCutoff(3) >> cascade[6])
    assert isinstance(pipeline, FusedStages) and len(pipeline.parts) == 8
    compiled = (NOTHING >> cascade[2] % 0.6 >> cascade[3] % 5 % 4 >> cascade[4] % 3 >> cascade[6]).compile()
    assert isinstance(compiled, pt.Compose) and compiled[1] == pipeline
    assert isinstance(cascade[2] % 0.6 >> OTHERS[0], pt.Compose)
    assert isinstance(cascade[2] % 0.6 >> cascade(max_length=32)[6], pt.Compose)


def test_stages_that_were_joined_when_their_models_were_equal(saved):
    one, two = Cascade.from_pretrained(saved), Cascade.from_pretrained(saved)
    pipeline = one[2] % 5 >> two[6]
    assert isinstance(pipeline, FusedStages) and len(pipeline(candidates([9]))) == 5
    two.model.fitted = "0123456789"
    message = (
        f"stages of two models in one pipeline: layer 2 of {saved!r}, then layer 6 of {saved!r} fitted to 01234567;"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        pipeline(candidates([9]))


def test_stages_are_the_cascade_with_drop(cascade):
    frame = candidates([20, 3, 1, 8])
    stages = cascade[2] % 0.6 >> cascade[3] % 0.6 >> cascade[4] % 0.6 >> cascade[5] % 0.6 >> cascade[6]
    assert_frame_equal(stages.compile()(frame), cascade(alpha=0.4, exited="drop")(frame))


CUT = st.one_of(st.sampled_from([0.6, 0.5, 0.29, 0.01, 0.99]), st.integers(1, 12))


@settings(max_examples=60)
@given(st.data())
def test_any_mix_of_stages_compiles_to_the_same(shared_cascade, data):
    cascade = shared_cascade
    steps = []
    for layer in sorted(data.draw(st.sets(st.sampled_from([2, 3, 4, 5, 6]), min_size=1))):
        steps.append(cascade[layer])
        for kept in data.draw(st.lists(CUT, max_size=2)):
            steps.append(pt.RankCutoff(kept) if isinstance(kept, int) else FractionCutoff(kept))
        if data.draw(st.integers(0, 3)) == 0:
            steps.append(data.draw(st.sampled_from(OTHERS)))
    before = data.draw(st.sampled_from([[], [pt.RankCutoff(7)], [FractionCutoff(0.5)]]))
    after = data.draw(st.sampled_from([[], [OTHERS[0]], [pt.RankCutoff(3)]]))
    pipeline = data.draw(st.sampled_from([NOTHING, pt.Transformer.identity()]))
    for step in [*before, *steps, *after]:
        pipeline = pipeline >> step
    sizes = data.draw(st.lists(st.integers(1, 14), min_size=1, max_size=4))
    frame = candidates(sizes, seed=data.draw(st.integers(0, 9)), ties=data.draw(st.booleans()))
    compiled = pipeline.compile()
    same(pipeline(frame), compiled(frame))
    n_neighbours = sum(1 for one, two in itertools.pairwise(steps) if one not in OTHERS and two not in OTHERS)
    parts = list(compiled) if isinstance(compiled, pt.Compose) else [compiled]
    n_fused = sum(len(part.parts) - 1 for part in parts if isinstance(part, FusedStages))
    if not (after and isinstance(after[0], pt.RankCutoff)):
        assert n_fused == n_neighbours


OTHERS = [
    pt.apply.generic(lambda frame: frame.assign(seen=1), transform_outputs=lambda columns: [*columns, "seen"]),
    pt.apply.generic(lambda frame: frame[frame["docno"].str[-1] != "0"], transform_outputs=lambda columns: columns),
]


@pytest.fixture(scope="module")
def shared_cascade(saved):
    return Cascade.from_pretrained(saved)


def test_what_is_between_stays_and_the_rest_is_fused(cascade):
    pipeline = cascade[2] % 5 >> OTHERS[0] >> cascade[4] % 3 >> cascade[6]
    parts = list(pipeline.compile())
    assert [type(part).__name__ for part in parts] == ["FusedStages", "ApplyGenericTransformer", "FusedStages"]
    assert [len(part.parts) for part in (parts[0], parts[2])] == [2, 3]


def test_settings_stay_live_in_a_compiled_pipeline(saved):
    cascade, frame = Cascade.from_pretrained(saved), candidates([20])
    cut = FractionCutoff(0.5)
    fused = (cascade[2] >> cut >> cascade[6]).compile()
    assert len(fused(frame)) == 10
    cut.fraction = 0.25
    assert len(fused(frame)) == 5


def test_a_grid_search_over_a_compiled_pipeline_sees_the_values(saved):
    frame = candidates([20, 20])
    cascade = Cascade.from_pretrained(saved)(exited="drop")
    best = cascade(frame).groupby("qid").nth(0)[["qid", "docno"]].assign(label=1)
    pipeline = (pt.Transformer.from_df(frame) >> cascade).compile()
    topics = frame[["qid", "query"]].drop_duplicates()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value, how = pt.GridSearch(
            pipeline,
            {cascade: {"alpha": [0.0, 0.4, 0.8]}},
            topics,
            best,
            "map",
            return_type="best_setting",
            verbose=False,
        )
    assert value == 1 and how == [(cascade, "alpha", 0.0)] and cascade.alpha == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scan = pt.GridScan(pipeline, {cascade: {"alpha": [0.0, 0.8]}}, topics, best, [AP, RelativeCost], verbose=False)
    costs = dict(zip(scan.iloc[:, 1], scan["RelativeCost"], strict=True))
    assert costs[0.0] == 1 and costs[0.8] == pytest.approx((2 * 20 + 4 + 1 + 1 + 1) / 120)


def test_linear_and_tree_plans_agree(cascade):
    frame = candidates([20, 9, 3])
    source = pt.Transformer.from_df(frame)
    topics = frame[["qid", "query"]].drop_duplicates()
    qrels = pd.DataFrame({"qid": ["q0", "q1", "q2"], "docno": ["d0-3", "d1-5", "d2-0"], "label": [1, 1, 1]})
    systems = {
        "a": source >> cascade[2] % 0.6 >> cascade[4],
        "b": source >> cascade[2] % 0.6 >> cascade[6] % 2,
        "c": source >> cascade(alpha=0.3),
        "d": source >> cascade(alpha=0.3) >> cascade[6],
        "e": (source >> cascade[2] % 0.6 >> cascade[6] % 2).compile(),
    }
    systems["d"] = source >> cascade(alpha=0.3) % 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        linear, tree = (
            pt.Experiment(systems, topics, qrels, [AP, RelativeCost], plan=plan).set_index("name").sort_index(axis=1)
            for plan in ("linear", "tree")
        )
    assert_frame_equal(linear, tree)
    assert linear.loc["e", "AP"] == linear.loc["b", "AP"]


def test_stages_are_values(saved):
    one, two = Cascade.from_pretrained(saved), Cascade.from_pretrained(saved)
    assert one[4] == two[4] and hash(one[4]) == hash(two[4]) and one[4] != one[5]
    assert one[4] != one(precision="bf16")[4]
    fused = (one[2] % 0.5 >> one[4]).compile()
    assert fused == (two[2] % 0.5 >> two[4]).compile() and hash(fused) == hash((two[2] % 0.5 >> two[4]).compile())
    assert repr(one[4]) == f"Cascade.from_pretrained({saved!r})[4]"
    assert eval(repr(one[4])) == one[4] and eval(repr(FractionCutoff(0.5))) == FractionCutoff(0.5)
    assert pickle.loads(pickle.dumps(fused)) == fused
    assert repr(fused) == f"({one[2]!r} >> FractionCutoff(0.5) >> {one[4]!r})"


def test_a_fraction_anywhere():
    frame = candidates([7, 1, 4])
    out = FractionCutoff(0.5)(frame)
    assert out.groupby("qid").size().to_dict() == {"q0": 4, "q1": 1, "q2": 2}
    assert (out.groupby("qid")["rank"].max() == out.groupby("qid").size() - 1).all()
    assert out["docno"].tolist() == [docno for docno in frame["docno"] if docno in set(out["docno"])]
    assert len(FractionCutoff(0.5)(frame.iloc[:0])) == 0


def test_cutoffs_behind_a_whole_cascade(cascade):
    frame = candidates([7, 1, 4])
    assert repr(cascade % 0.5) == f"({cascade} >> FractionCutoff(0.5))"
    out = cascade(frame)
    assert_frame_equal((cascade % 0.5)(frame), FractionCutoff(0.5)(out))
    assert_frame_equal((cascade % np.int64(3))(frame), out[out["rank"] < 3].reset_index(drop=True))
    with pytest.raises(ValueError, match=re.escape("cutoff 1.5: give how many candidates to keep")):
        cascade % 1.5


def test_other_settings_of_the_same_weights_are_not_fused(cascade):
    pipeline = (cascade[2] % 5 >> cascade(max_length=32)[6]).compile()
    assert [type(part).__name__ for part in pipeline] == ["FusedStages", "Stage"]


def test_two_models_are_refused(saved, encoder, tmp_path):
    one, two = Cascade.from_pretrained(saved), Cascade.from_pretrained(encoder)
    message = re.escape(
        f"stages of two models in one pipeline: layer 2 of {saved!r}, then layer 6 of {encoder!r}; "
        "take all stages of one, or rerank by the second model as a whole"
    )
    for first in (one[2] % 5, one[2]):
        with pytest.raises(ValueError, match=message):
            first >> two[6]
        pipeline = NOTHING >> first >> two[6]
        with pytest.raises(ValueError, match=message):
            pipeline.compile()
        with pytest.raises(ValueError, match=message):
            pipeline(candidates([9]))


@pytest.mark.parametrize("layers", [(6, 4), (4, 4)])
def test_stages_that_go_down_are_refused(cascade, layers):
    pipeline = NOTHING >> cascade[layers[0]] % 5 >> cascade[layers[1]]
    message = re.escape(f"stages must go up, but layer 4 follows layer {layers[0]}; order them by their layers")
    with pytest.raises(ValueError, match=message):
        cascade[layers[0]] % 5 >> cascade[layers[1]]
    with pytest.raises(ValueError, match=message):
        pipeline.compile()
    with pytest.raises(ValueError, match=message):
        pipeline(candidates([9]))


def test_what_fused_stages_return_goes_on_behind_the_last_of_them(cascade):
    out = (cascade[2] % 5 >> cascade[5]).compile()(candidates([9]))
    assert cascade[6](out)["exit_layer"].tolist() == [6] * 5
    with pytest.raises(ValueError, match="stages must go up, but layer 4 follows layer 5; order them"):
        cascade[4](out)


def test_stages_round_as_their_ranker_does(cascade):
    """CT-25: 45 of 63 at alpha=.3 with the floor, 44 with the nearest."""
    frame = candidates([63])
    nearest = cascade(rounding="nearest")
    whole = nearest(plan=(2, 6), alpha=0.3, exited="drop")(frame)
    stages = nearest[2] % 0.7 >> nearest[6]
    assert len(whole) == len(stages(frame)) == len(stages.compile()(frame)) == 44
    assert len((cascade[2] % 0.7 >> cascade[6])(frame)) == 45
    assert eval(repr(FractionCutoff(0.7, rounding="nearest"))) == FractionCutoff(0.7, "nearest") != FractionCutoff(0.7)


def test_stages_refuse_batches(cascade):
    ranker = cascade(batch_size=5)
    message = re.escape("batch_size=5 has no meaning for stages, whose cutoffs see all of a query's candidates; use")
    with pytest.raises(ValueError, match=message):
        ranker[2]
    ranker.batch_size = None
    pipeline = ranker[2] % 3 >> ranker[6]
    ranker.batch_size = 5
    with pytest.raises(ValueError, match=message):
        pipeline(candidates([9]))


def test_a_stage_that_is_not_there(cascade):
    with pytest.raises(ValueError, match=re.escape("has heads at layers (2, 3, 4, 5, 6)")):
        cascade[7](candidates([3]))
    for layer in (0, -1, 2.5, slice(2, 4), "4"):
        with pytest.raises(ValueError, match=re.escape(f"there is no stage {layer!r}: give the number of a layer")):
            cascade[layer]


@pytest.mark.parametrize("kept", [0, -3, 0.0, 1.0, 1.5, "3"])
def test_cutoffs_that_cannot_be(cascade, kept):
    with pytest.raises(ValueError, match=re.escape(f"cutoff {kept!r}: give how many candidates to keep")):
        cascade[2] % kept
    with pytest.raises(ValueError, match=re.escape(f"{kept!r}")):
        FractionCutoff(kept)


def test_a_sequential_reranker_has_stages_too(tmp_path):
    models = [CrossEncoder.from_pretrained(tiny.save(tmp_path / str(n), layers=n, seed=n)) for n in (2, 4)]
    sequential = SequentialReranker(models)
    fused = sequential[2] % 0.5 >> sequential[4]
    assert isinstance(fused, FusedStages)
    frame = candidates([12, 5])
    out = fused(frame)
    same((NOTHING >> sequential[2] % 0.5 >> sequential[4])(frame), out)
    # Every model reads its candidates from the text.
    assert out.groupby("qid")["q_cost"].first().to_dict() == {"q0": 12 * 2 + 6 * 4, "q1": 5 * 2 + 3 * 4}
