"""One deadline for a pipeline, by a clock that goes on by a known time for each transformer, layer and token."""

import pickle
import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from pandas.testing import assert_frame_equal
from pyterrier.testing import transformer_test_class

from pyterrier_cascade import Cascade, OneClock
from pyterrier_cascade.early_exit import deadline
from tests.early_exit.test_deadline import came_to, spent, warm
from tests.lists import candidates

TestContract = transformer_test_class(lambda: OneClock(Cascade.from_pretrained("nowhere/to-be-found", deadline_ms=200)))


def slow(clock, ms: float, keeps: int | None = None) -> pt.Transformer:
    """A transformer that takes so many milliseconds for a question."""

    def work(frame: pd.DataFrame) -> pd.DataFrame:
        clock.now += ms / 1000 * frame["qid"].nunique()
        return frame if keeps is None else frame[frame["rank"] < keeps]

    return pt.apply.generic(work)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_what_stands_before_the_cascade_takes_of_its_time(cascade, clock, share):
    frame = candidates([60])
    warm(cascade, frame)
    full, _ = spent(clock, cascade, frame)
    before, given = share * 0.9 * full, 0.9 * full
    pipeline = slow(clock, before / 2) >> slow(clock, before / 2) >> cascade(deadline_ms=given)
    late, _ = spent(clock, pipeline, frame)
    assert late > 1.2 * given
    in_time, out = spent(clock, OneClock(pipeline), frame)
    assert 0.8 * given < in_time <= given
    # What is left decides, whoever took the rest.
    left, alone = spent(clock, cascade(deadline_ms=given - before), frame)
    assert left == pytest.approx(in_time - before, rel=0.15)
    assert came_to(out) == pytest.approx(came_to(alone), abs=4)
    assert sorted(out["docno"]) == sorted(frame["docno"])


def test_each_question_has_a_clock_of_its_own(cascade, clock):
    frame = candidates([40, 4, 40])
    warm(cascade, frame)
    full, _ = spent(clock, cascade, frame[frame["qid"] == "q0"])
    pipeline = slow(clock, 0.3 * full) >> cascade(deadline_ms=0.8 * full)
    alone = [spent(clock, OneClock(pipeline), block)[0] for _, block in frame.groupby("qid")]
    ms, out = spent(clock, OneClock(pipeline), frame)
    assert max(alone) <= 0.8 * full and ms == pytest.approx(sum(alone), rel=0.1)
    assert out["qid"].unique().tolist() == frame["qid"].unique().tolist()
    assert out.index.tolist() == list(range(84))
    exits = out.groupby("qid")["exit_layer"].agg(["min", "max"])
    assert exits.loc["q1"].tolist() == [6, 6] and exits.loc["q0", "min"] < 6 == exits.loc["q0", "max"]


def test_several_deadlines_count_from_one_moment(cascade, saved, clock):
    frame = candidates([60])
    other = Cascade.from_pretrained(saved)
    warm(cascade, frame)
    warm(other, frame)
    full, _ = spent(clock, cascade, frame)
    first, moments = cascade(plan=(2, 3), deadline_ms=0.5 * full), []
    watch = pt.apply.generic(lambda one: (moments.append(clock.now), one)[1])
    pipeline = OneClock(watch >> first % 20 >> watch >> other(deadline_ms=0.9 * full))
    ms, out = spent(clock, pipeline, frame)
    assert len(out) == 20 and moments[1] - moments[0] <= 0.5 * full / 1000 and ms <= 0.9 * full


def test_with_time_enough_it_is_the_pipeline(cascade, clock):
    frame = candidates([12, 1, 7])
    pipeline = slow(clock, 5) % 6 >> cascade(deadline_ms=1e6)
    assert_frame_equal(OneClock(pipeline)(frame), pipeline(frame))
    compiled = OneClock(pipeline).compile()
    assert_frame_equal(compiled(frame), pipeline(frame))
    assert compiled == OneClock(pipeline.compile())


def test_a_clock_in_a_clock_is_the_outer_one(cascade, clock):
    frame = candidates([60])
    warm(cascade, frame)
    full, _ = spent(clock, cascade, frame)
    timed = cascade(deadline_ms=0.8 * full)
    both = OneClock(slow(clock, 0.4 * full) >> OneClock(timed))
    assert spent(clock, both, frame)[0] <= 0.8 * full


def test_loading_and_measuring_are_no_part_of_the_time(saved, clock):
    frame = candidates([40])
    full, _ = spent(clock, Cascade.from_pretrained(saved), frame)
    ranker = Cascade.from_pretrained(saved, deadline_ms=0.9 * full)
    pipeline = OneClock(slow(clock, 0.2 * full) >> ranker)
    (first, out), (later, _) = spent(clock, pipeline, frame), spent(clock, pipeline, frame)
    assert first > later and later <= 0.9 * full
    assert 40 == came_to(out)[0] > came_to(out)[1] > 1


def test_no_time_left_is_said_once(cascade, clock):
    frame = candidates([5, 3, 2])
    warm(cascade, frame)
    before = clock.now
    wait = pt.apply.generic(
        lambda one: (setattr(clock, "now", clock.now + 0.06 * (one["qid"].iloc[0] != "q1")), one)[1]
    )
    message = (
        r"^2 of 3 questions ran out of time, the first is 'q\d': deadline_ms=50 left no time to score anything in 1 of "
        r"1 queries after 60\.0 ms of the transformers before this one, whose candidates keep the order of the input: "
        r"on this machine the first span, 2 layers, takes \d\.\d ms for the shortest candidate, and tokens and the "
        r"result \d\.\d ms; give more time, a plan with an earlier first head, or a smaller model$"
    )
    with pytest.warns(UserWarning, match=message) as seen:
        out = OneClock(wait >> cascade(deadline_ms=50))(frame)
    assert len(seen) == 1 and seen[0].filename == __file__ and clock.now > before
    for qid, block in out.groupby("qid"):
        if qid != "q1":
            assert block["docno"].tolist() == [f"d{qid[1]}-{rank}" for rank in range(len(block))]
            assert block["exit_layer"].tolist() == [0] * len(block)
    assert (out.loc[out["qid"] == "q1", "exit_layer"] == 6).all()


def test_somebody_must_read_the_clock(cascade):
    frame = candidates([4])
    pipeline = cascade(alpha=0.4)
    message = (
        f"no ranker in {pipeline!r} read the clock: none has deadline_ms, or the one that has it runs in another "
        "process; use cascade(deadline_ms=...), and put OneClock into the pool"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        OneClock(pipeline)(frame)
    assert not deadline.is_started()
    with pytest.raises(
        ValueError, match=re.escape("OneClock(200): give a pipeline that ends with cascade(deadline_ms")
    ):
        OneClock(200)


def test_after_an_error_the_clock_has_stopped(cascade):
    def fails(frame):
        raise RuntimeError("a broken transformer")

    with pytest.raises(RuntimeError, match="a broken transformer"):
        OneClock(pt.apply.generic(fails, transform_outputs=list) >> cascade(deadline_ms=5))(candidates([4]))
    assert not deadline.is_started()


def test_a_question_without_candidates(cascade):
    frame = candidates([4, 6])
    some = pt.apply.generic(lambda one: one[one["qid"] != "q0"])
    out = OneClock(some >> cascade(deadline_ms=1e6))(frame)
    assert_frame_equal(out, cascade(frame[frame["qid"] == "q1"]))
    nobody = pt.apply.generic(lambda one: one.iloc[:0])
    empty = OneClock(nobody >> cascade(deadline_ms=1e6))(frame)
    assert list(empty.columns) == list(out.columns) and len(empty) == 0


def test_it_prints_compares_and_pickles():
    ranker = Cascade.from_pretrained("x", deadline_ms=200)
    clocked = OneClock(ranker)
    assert repr(clocked) == "OneClock(Cascade.from_pretrained('x', deadline_ms=200))"
    assert eval(repr(clocked)) == clocked != OneClock(ranker(deadline_ms=100))
    assert hash(eval(repr(clocked))) == hash(clocked) and pickle.loads(pickle.dumps(clocked)) == clocked
    assert clocked.subtransformers() == {"transformer": ranker}


def test_in_a_pool_the_clock_goes_with_the_pipeline(cascade):
    """Here the workers are threads, which see no clock of another thread, as processes do not."""
    from concurrent.futures import ThreadPoolExecutor

    from pyterrier_cascade.scale.pooled import Pooled

    class Pool:
        def map(self, work, units):
            with ThreadPoolExecutor(2) as threads:
                return list(threads.map(work, units))

    frame = candidates([4, 6])
    timed = cascade(deadline_ms=1e6)
    out = Pooled(OneClock(timed), Pool(), rows_per_block=1)(frame)
    assert_frame_equal(out, cascade(frame))
    with pytest.raises(
        ValueError, match="read the clock: none has deadline_ms, or the one that has it runs in another"
    ):
        OneClock(Pooled(timed, Pool()))(frame)


def test_by_a_real_clock(cascade):
    """No promise of time, which a busy machine breaks, but of rows."""
    frame = candidates([30, 5])
    out = OneClock(pt.apply.doc_score(lambda row: len(row["text"])) % 20 >> cascade(deadline_ms=300))(frame)
    assert out.groupby("qid").size().to_dict() == {"q0": 20, "q1": 5}
    assert np.isfinite(out["score"]).all()
