"""Candidates by the clock, which here goes on by a known time for each layer, token and character."""

import re

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from pyterrier.testing import transformer_test_class

from pyterrier_cascade import Cascade
from pyterrier_cascade.early_exit import deadline
from tests.lists import candidates

LAYERS = (2, 3, 4, 5, 6)
COSTS = ["q_cost", "q_cost_full", "q_token_cost", "q_token_cost_full", "q_full_layers", "q_layer_size"]

TestContract = transformer_test_class(lambda: Cascade.from_pretrained("nowhere/to-be-found", deadline_ms=200))


def warm(cascade: Cascade, frame) -> None:
    """Measures the pace, so that the clock counts nothing else afterwards."""
    cascade(deadline_ms=1e6)(frame)


def came_to(out) -> list[int]:
    """How many candidates came to each head."""
    return [int((out["exit_layer"] >= layer).sum()) for layer in LAYERS]


def spent(clock, ranker: Cascade, frame):
    """The milliseconds that a result took, and the result."""
    before = clock.now
    out = ranker(frame)
    return 1000 * (clock.now - before), out


def test_with_time_enough_nothing_is_dropped(cascade, clock):
    frame = candidates([12, 1, 7])
    assert_frame_equal(cascade(deadline_ms=1e6)(frame), cascade(frame))


@pytest.mark.parametrize("share", [0.6, 0.7, 0.8, 0.9])
def test_the_best_go_on_and_all_fits(cascade, clock, share):
    """What comes back is what ``counts`` with hindsight gives."""
    frame = candidates([60])
    warm(cascade, frame)
    full, _ = spent(clock, cascade, frame)
    ms, out = spent(clock, cascade(deadline_ms=share * full), frame)
    n, *counts = came_to(out)
    assert n == 60 > counts[0] > counts[-1] > 0
    assert 0.85 * share * full < ms <= share * full
    assert_frame_equal(out, cascade(counts=counts)(frame))
    # The same share of the candidates goes on at every head, as far as whole candidates and tokens allow.
    shares = np.divide(counts, [n, *counts[:-1]])
    assert shares == pytest.approx(shares[0], abs=0.2)


def test_equal_scores_keep_their_order(cascade, clock):
    """CT-2: all texts are the same."""
    frame = candidates([30]).assign(text="the ship")
    warm(cascade, frame)
    full, _ = spent(clock, cascade, frame)
    out = cascade(deadline_ms=0.6 * full)(frame)
    assert out["docno"].tolist() == [f"d0-{rank}" for rank in range(30)]
    assert 6 in set(out["exit_layer"]) and 2 in set(out["exit_layer"])


def test_where_the_time_is_short_the_last_ones_are_not_read(cascade, clock):
    frame = candidates([60])
    warm(cascade, frame)
    full, _ = spent(clock, cascade, frame)
    ms, out = spent(clock, cascade(deadline_ms=0.2 * full), frame)
    n, *counts = came_to(out)
    assert 0 < n < 60 and counts[0] > 0
    assert 0.8 * 0.2 * full < ms <= 0.2 * full
    unread = out[out["exit_layer"] == 0]
    assert unread["docno"].tolist() == [f"d0-{rank}" for rank in range(n, 60)]
    assert unread["rank"].tolist() == list(range(n, 60))
    assert (np.diff(out["score"].to_numpy(np.float32)) < 0).all()
    read = cascade(counts=[max(1, count) for count in counts])(frame[frame["rank"] < n])
    assert out["docno"].tolist()[:n] == read["docno"].tolist()


def test_costs_count_the_layers_that_were_run(cascade, clock):
    frame = candidates([60])
    warm(cascade, frame)
    full, whole = spent(clock, cascade, frame)
    out = cascade(deadline_ms=0.2 * full)(frame)
    assert out["q_cost"].unique().tolist() == [out["exit_layer"].sum()]
    assert out["q_cost_full"].unique().tolist() == [60 * 6]
    tokens = dict(zip(frame["docno"], cascade.trace(frame.sort_values("rank")).tokens[frame["rank"]], strict=True))
    ran = sum(tokens[docno] * layer for docno, layer in zip(out["docno"], out["exit_layer"], strict=True))
    assert out["q_token_cost"].unique().tolist() == [ran]
    # The tokens of what was not read are estimated from its characters.
    assert out["q_token_cost_full"].iloc[0] == pytest.approx(whole["q_token_cost_full"].iloc[0], rel=0.1)


@pytest.mark.parametrize("ms", [0.01, 3, 10, 20, 40, 80, 160, 320, 640])
def test_a_full_ranking_in_time_whatever_the_deadline(cascade, clock, ms):
    frame = candidates([40])
    warm(cascade, frame)
    before = frame.copy()
    with pytest.warns(UserWarning) if ms < 5 else _nothing():
        took, out = spent(clock, cascade(deadline_ms=ms), frame)
    assert_frame_equal(frame, before)
    assert sorted(out["docno"]) == sorted(frame["docno"]) and out["rank"].tolist() == list(range(40))
    assert list(out.columns) == list(cascade(frame).columns)
    assert out.dtypes.tolist() == cascade(frame).dtypes.tolist()
    assert took <= max(ms, 1.01)


class _nothing:
    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None


def test_a_deadline_below_the_first_span_is_said(cascade, clock):
    frame = candidates([5, 3])
    warm(cascade, frame)
    message = (
        r"^deadline_ms=0\.5 left no time to score anything in 2 of 2 queries, whose candidates keep the order of the "
        r"input: on this machine the first span, 2 layers, takes 1\.\d ms for the shortest candidate, and tokens and "
        r"the result 1\.\d ms; give more time, a plan with an earlier first head, or a smaller model$"
    )
    with pytest.warns(UserWarning, match=message) as seen:
        out = cascade(deadline_ms=0.5)(frame)
    assert len(seen) == 1 and seen[0].filename == __file__
    expected = frame.sort_values(["qid", "rank"])
    for qid, block in out.groupby("qid"):
        assert block["docno"].tolist() == expected.loc[expected["qid"] == qid, "docno"].tolist()
    assert out["exit_layer"].unique().tolist() == [0] and out["q_cost"].unique().tolist() == [0]
    assert out["score"].dtype == float and not out["score"].isna().any()


def test_each_query_has_a_deadline_of_its_own(cascade, clock):
    frame = candidates([40, 40, 4])
    warm(cascade, frame)
    full, _ = spent(clock, cascade, frame[frame["qid"] == "q0"])
    ranker = cascade(deadline_ms=0.7 * full)
    alone = [spent(clock, ranker, block)[0] for _, block in frame.groupby("qid")]
    ms, out = spent(clock, ranker, frame)
    assert ms == pytest.approx(sum(alone), rel=0.1) and ms <= 3 * 0.7 * full
    exits = out.groupby("qid")["exit_layer"].agg(["min", "max"])
    assert exits.loc["q2"].tolist() == [6, 6] and exits.loc["q0", "min"] < 6 == exits.loc["q0", "max"]


def test_drop_leaves_those_that_came_furthest(cascade, clock):
    frame = candidates([40, 40])
    warm(cascade, frame)
    for ms in (20, 100):
        below, dropped = (cascade(deadline_ms=ms, exited=exited)(frame) for exited in ("below", "drop"))
        furthest = below.groupby("qid")["exit_layer"].transform("max")
        expected = below[below["exit_layer"] == furthest].reset_index(drop=True)
        assert_frame_equal(dropped[["qid", "docno", "rank"]], expected[["qid", "docno", "rank"]])


def test_a_plan_of_some_heads(cascade, clock):
    frame = candidates([40])
    warm(cascade(plan=(3, 6)), frame)
    full, _ = spent(clock, cascade, frame)
    out = cascade(plan=(3, 6), deadline_ms=0.8 * full)(frame)
    assert set(out["exit_layer"]) == {3, 6}
    alone = cascade(plan=(4,), deadline_ms=0.3 * full)(frame)
    assert set(alone["exit_layer"]) == {0, 4}


def test_the_time_of_a_machine_that_slows_down_is_learned(cascade, clock):
    frame = candidates([60])
    warm(cascade, frame)
    ranker = cascade(deadline_ms=100)
    fast = came_to(ranker(frame))
    clock.per_token *= 3
    times = [spent(clock, ranker, frame)[0] for _ in range(30)]
    # After the first span it is known that fewer can go on, but that span was planned for a faster machine.
    assert times[0] > 105 and max(times[-10:]) <= 100
    slow = came_to(ranker(frame))
    assert sum(slow) < sum(fast) / 2
    clock.per_token /= 3
    for _ in range(30):
        ranker(frame)
    assert sum(came_to(ranker(frame))) == pytest.approx(sum(fast), rel=0.15)


def test_a_machine_that_was_slow_is_tried_again(cascade, clock):
    frame = candidates([30])
    warm(cascade, frame)
    ranker = cascade(deadline_ms=15)
    assert came_to(ranker(frame))[0] > 0
    pace = deadline.pace_of(cascade._executor("torch", "fp32", None))
    pace.speed = 50.0
    with pytest.warns(UserWarning, match="left no time"):
        for _ in range(40):
            out = ranker(frame)
    assert came_to(out)[0] > 0


def test_loading_and_measuring_are_no_part_of_the_time(saved, clock):
    frame = candidates([40])
    full, _ = spent(clock, Cascade.from_pretrained(saved), frame)
    ranker = Cascade.from_pretrained(saved, deadline_ms=0.7 * full)
    (first, out), (later, _) = spent(clock, ranker, frame), spent(clock, ranker, frame)
    assert first > later and later <= 0.7 * full
    assert 40 == came_to(out)[0] > came_to(out)[1] > 1


@pytest.mark.parametrize("value", [0, -5, float("nan"), float("inf"), True, "200", [200]])
def test_a_deadline_that_is_no_time(value):
    message = re.escape(f"deadline_ms={value!r}: give the milliseconds of a query, above 0, or None")
    with pytest.raises(ValueError, match=message):
        Cascade("x", deadline_ms=value)
    with pytest.raises(ValueError, match=message):
        Cascade("x")(deadline_ms=value)


@pytest.mark.parametrize(
    "other",
    [{"alpha": 0.4}, {"alpha": (0.5, 0)}, {"counts": (5, 2)}, {"margin": 0.0}, {"batch_size": 8}, {"passages": "max"}],
)
def test_a_deadline_excludes_other_rules(other):
    ((name, value),) = other.items()
    message = re.escape(f"deadline_ms=200 and {name}={value!r} exclude each other; give one of them")
    with pytest.raises(ValueError, match=message):
        Cascade("x", deadline_ms=200, **other)
    live = Cascade("x", deadline_ms=200)
    live.set_parameter(name, value)
    with pytest.raises(ValueError, match=message):
        live(candidates([2]))
    assert Cascade("x", deadline_ms=None, **other).deadline_ms is None


def test_it_prints_and_compares_like_any_setting():
    ranker = Cascade.from_pretrained("x")(deadline_ms=200)
    assert repr(ranker) == "Cascade.from_pretrained('x', deadline_ms=200)"
    assert eval(repr(ranker)) == ranker and hash(eval(repr(ranker))) == hash(ranker)
    assert ranker == Cascade.from_pretrained("x", deadline_ms=200.0) != Cascade.from_pretrained("x")


def test_traces_ignore_it_and_stages_refuse_it(cascade):
    frame = candidates([6])
    assert_frame_equal(cascade(deadline_ms=0.01).trace(frame).results(), cascade.trace(frame).results())
    message = "deadline_ms=200 has no meaning for stages, whose cutoffs decide who goes on; use ranker(deadline_ms=..."
    with pytest.raises(ValueError, match=re.escape(message)):
        _ = cascade(deadline_ms=200)[4]
    stage = cascade[4]
    stage.ranker.deadline_ms = 200
    with pytest.raises(ValueError, match=re.escape(message)):
        stage(frame)
    message = "deadline_ms=200 drops other candidates in every run, which explain() cannot show; look at exit_layer in"
    with pytest.raises(ValueError, match=re.escape(message)):
        cascade(deadline_ms=200).explain(frame)


def test_missing_texts_are_counted_once(cascade):
    frame = candidates([3, 3]).assign(text=None)
    with pytest.warns(UserWarning, match="6 of 6 rows have no 'text'") as seen:
        cascade(deadline_ms=1e6)(frame)
    assert len(seen) == 1


@pytest.mark.parametrize("ms", [1, 30, 300])
@pytest.mark.filterwarnings("ignore:deadline_ms=1 left no time")
def test_by_a_real_clock_all_rows_come_back(cascade, ms):
    frame = candidates([30, 1, 12])
    out = cascade(deadline_ms=ms)(frame)
    assert sorted(zip(out["qid"], out["docno"], strict=True)) == sorted(zip(frame["qid"], frame["docno"], strict=True))
    assert set(out["exit_layer"]) <= {0, *LAYERS}
    assert [c for c in out.columns if c not in frame.columns] == ["exit_layer", *COSTS]
    assert out.groupby("qid")["rank"].agg(["min", "max"]).to_numpy().tolist() == [[0, 29], [0, 0], [0, 11]]


@pytest.mark.filterwarnings("ignore:deadline_ms=300 left no time")
@pytest.mark.slow
def test_int8_is_calibrated_on_the_frame(cascade):
    pytest.importorskip("nncf")
    ranker = cascade(engine="openvino", precision="int8", deadline_ms=300)
    with pytest.raises(ValueError, match="int8 needs at least 32 candidates to calibrate on, not 10"):
        ranker(candidates([10]))
    out = ranker(candidates([20, 20]))
    assert len(out) == 40 and ranker.calibrated_on()
    assert len(ranker(candidates([10]))) == 10
