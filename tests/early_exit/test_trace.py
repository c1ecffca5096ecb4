"""From a trace any cascade follows without the model, as the model would say it (CT-61)."""

import dataclasses
import json
import os
import pickle
import re
import shutil
import warnings

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP, RR, Judged, P, R, Success, nDCG
from pandas.testing import assert_frame_equal

from pyterrier_cascade import (
    Cascade,
    CrossEncoder,
    RelativeCost,
    RelativeTokenCost,
    SequentialReranker,
    Survival,
    Trace,
)
from pyterrier_cascade.early_exit.trace_part import text_hashes
from pyterrier_cascade.store.publish import Damaged, DiskFull, publishing_file
from tests import tiny
from tests.lists import candidates
from tests.store.made_up import started

SIZES = [14, 1, 9, 30, 5]
COLUMNS = ["qid", "query", "docno", "exit_layer", "q_cost", "q_cost_full", "q_token_cost", "q_token_cost_full",
           "q_full_layers", "q_layer_size", "score", "rank"]  # fmt: skip


@pytest.fixture
def frame():
    return candidates(SIZES)


@pytest.fixture
def trace(cascade, frame):
    return cascade.trace(frame)


def qrels_of(frame: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Some positives of two grades, one that was not retrieved, a question that is not asked, one not judged (q4)."""
    rng = np.random.default_rng(seed)
    rows = frame[["qid", "docno"]].assign(label=rng.choice([0, 0, 0, 1, 2], len(frame)))
    more = pd.DataFrame({"qid": ["q0", "elsewhere", "q1"], "docno": ["gone", "gone", "nothing"], "label": [1, 1, 0]})
    return pd.concat([rows[~rows["qid"].isin(["q1", "q4"])], more], ignore_index=True)


def drawn(rng, n_layers: int = 5) -> dict:
    """Settings of a cascade at random."""
    plan = tuple(np.sort(rng.choice([2, 3, 4, 5, 6], rng.integers(1, 6), replace=False)).tolist())
    found = {
        "plan": plan,
        "rounding": str(rng.choice(["floor", "nearest"])),
        "exited": str(rng.choice(["below", "drop"])),
    }
    if rng.random() < 0.3:
        found["batch_size"] = int(rng.integers(1, 12))
    kind = rng.random()
    if kind < 0.2:
        margins = [0.0, 0.05, 0.5, 2.0]
        each = rng.random() < 0.5
        found["margin"] = rng.choice(margins, len(plan) - 1).tolist() if each else float(rng.choice(margins))
        found["margin_k"] = int(rng.integers(1, 8))
    elif kind < 0.3:
        found["alpha"] = float(rng.choice([0.0, 0.1, 0.3, 0.29, 0.5, 0.9]))
    elif kind < 0.7:
        found["alpha"] = tuple(rng.choice([0.0, 0.1, 0.3, 0.29, 0.5, 0.9], len(plan) - 1).tolist())
    else:
        found["counts"] = tuple(sorted(rng.integers(1, 20, len(plan) - 1).tolist(), reverse=True))
    return found


@pytest.mark.parametrize("ties", [False, True])
def test_it_says_what_the_model_says(cascade, ties):
    frame = candidates(SIZES, ties=ties)
    trace, rng = cascade.trace(frame), np.random.default_rng(1)
    for _ in range(40):
        settings = drawn(rng)
        live = cascade(**settings)(frame)
        assert list(trace.results(**settings).columns) == COLUMNS
        assert_frame_equal(trace.results(**settings), live[COLUMNS], atol=2e-6, rtol=0)


def test_a_sequential_reranker_has_a_trace(tmp_path, frame):
    models = [CrossEncoder.from_pretrained(tiny.save(tmp_path / str(n), layers=n, seed=n)) for n in (2, 3, 4)]
    sequential = SequentialReranker(models)
    trace = sequential.trace(frame)
    for alpha in (0.0, 0.4, (0.9, 0.1)):
        assert_frame_equal(trace.results(alpha), sequential(alpha=alpha)(frame)[COLUMNS], atol=2e-6, rtol=0)
    found = trace.sweep(qrels_of(frame), [RelativeCost, RelativeTokenCost], alphas=[0.4]).frame
    run, judged = pt.model.to_ir_measures(trace.results(0.4)), pt.model.to_ir_measures(qrels_of(frame))
    expected = ir_measures.calc_aggregate([RelativeCost, RelativeTokenCost], judged, run)
    for measure, value in expected.items():
        assert found[str(measure)].item() == pytest.approx(value) and value > 1


MEASURES = [AP, AP @ 3, RR, RR @ 2, P @ 1, P @ 5, R @ 5, Success @ 3, nDCG, nDCG @ 10, RelativeCost, RelativeTokenCost,
            Survival @ 3, Survival @ 6, AP(rel=2), Judged @ 10]  # fmt: skip


@pytest.mark.parametrize("exited", ["below", "drop"])
@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("plan", [None, (2, 4, 6), (5,)])
def test_a_sweep_measures_what_ir_measures_does(trace, frame, exited, batch_size, plan):
    qrels, rng = qrels_of(frame), np.random.default_rng(2)
    n_drops = 4 if plan is None else len(plan) - 1
    alphas = [tuple(rng.choice([0.0, 0.1, 0.35, 0.6, 0.9], n_drops).tolist()) for _ in range(8)] + [0.3]
    how = {"plan": plan, "batch_size": batch_size, "exited": exited}
    sweep = trace.sweep(qrels, MEASURES, alphas, **how)
    assert sweep.frame["alpha"].tolist() == alphas and len(sweep) == 9
    judged = pt.model.to_ir_measures(qrels)
    for alpha, row in [*zip(alphas, sweep.frame.to_dict("records"), strict=True), (0.0, sweep.full)]:
        run = pt.model.to_ir_measures(trace.results(alpha, **how))
        expected = ir_measures.calc_aggregate(MEASURES, judged, run)
        assert {str(m): row[str(m)] for m in MEASURES} == pytest.approx(
            {str(m): expected[m] for m in MEASURES}, abs=1e-9
        )


def test_a_sweep_of_settings_of_any_kind(trace, frame):
    """Margins, counts, plans and batches in one table, as ir-measures measures each."""
    qrels, rng = qrels_of(frame), np.random.default_rng(3)
    settings = [drawn(rng) for _ in range(40)]
    assert sum("margin" in one for one in settings) > 3
    sweep = trace.sweep(qrels, MEASURES, settings=settings)
    assert sweep.frame["settings"].tolist() == settings and sweep.full["settings"] == {"alpha": 0.0}
    judged = pt.model.to_ir_measures(qrels)
    for one, row in zip(settings, sweep.frame.to_dict("records"), strict=True):
        expected = ir_measures.calc_aggregate(MEASURES, judged, pt.model.to_ir_measures(trace.results(**one)))
        assert {str(m): row[str(m)] for m in MEASURES} == pytest.approx(
            {str(m): expected[m] for m in MEASURES}, abs=1e-9
        )
    assert sweep.best(max_cost=0.9)["settings"] in settings


def test_a_plot_of_settings_marks_no_alpha(trace, frame):
    pytest.importorskip("matplotlib").use("Agg")
    ax = trace.sweep(qrels_of(frame), [AP], settings=[{"margin": 1.0}, {"counts": (5, 4, 3, 2)}]).plot()
    assert len(ax.collections[0].get_offsets()) == 2 and not ax.texts


def test_costs_are_relative_to_the_whole_encoder(encoder, frame):
    """Also where no head reads its last layer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = Cascade.from_pretrained(encoder, layers=(2, 4)).trace(frame)
    qrels, measures = qrels_of(frame), [RelativeCost, RelativeTokenCost]
    sweep = trace.sweep(qrels, measures, [0.5])
    for alpha, row in ((0.0, sweep.full), (0.5, sweep.frame.iloc[0])):
        run = pt.model.to_ir_measures(trace.results(alpha))
        expected = ir_measures.calc_aggregate(measures, pt.model.to_ir_measures(qrels), run)
        assert {measure: row[str(measure)] for measure in measures} == pytest.approx(expected)
    # Four of the five judged questions are in the trace.
    assert sweep.full["RelativeCost"] == pytest.approx(4 / 6 * 4 / 5)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_sweep_breaks_ties_as_the_cascade_does(trace, frame, batch_size):
    """CT-2: by the head before, here with few different scores, so that many are equal at one head only."""
    (part,) = trace._parts
    scores = np.random.default_rng(5).integers(0, 3, part.scores.shape).astype(np.float32)
    trace._parts[0] = dataclasses.replace(part, scores=scores)
    trace._forget()
    qrels, alphas = qrels_of(frame), [0.0, 0.3, (0.5, 0.1, 0.6, 0.2), (0.0, 0.9, 0.0, 0.5)]
    found = trace.sweep(qrels, [AP, RR, nDCG @ 10], alphas, batch_size=batch_size).frame
    for alpha, row in zip(alphas, found.to_dict("records"), strict=True):
        run = pt.model.to_ir_measures(trace.results(alpha, batch_size=batch_size))
        expected = ir_measures.calc_aggregate([AP, RR, nDCG @ 10], pt.model.to_ir_measures(qrels), run)
        assert {measure: row[str(measure)] for measure in expected} == pytest.approx(expected, abs=1e-9)


def test_the_grid_of_the_paper(trace, frame):
    """CT-61: 1,296 settings; CT-35: their ends."""
    sweep = trace.sweep(qrels_of(frame), ["AP"])
    assert_frame_equal(trace.sweep(qrels_of(frame), AP).frame, sweep.frame)
    assert len(sweep) == 1296 and sweep.frame["alpha"].iloc[[0, -1]].tolist() == [(0.1,) * 4, (0.6,) * 4]


def test_a_sweep_in_parts_is_the_same(trace, frame, monkeypatch):
    qrels = qrels_of(frame)
    whole = trace.sweep(qrels, [AP, nDCG @ 5, RelativeTokenCost]).frame
    monkeypatch.setattr("pyterrier_cascade.early_exit.grid.CELLS", 1296 * 12)
    assert_frame_equal(trace.sweep(qrels, [AP, nDCG @ 5, RelativeTokenCost]).frame, whole)


def test_choosing(trace, frame):
    sweep = trace.sweep(qrels_of(frame), [AP, RR])
    front = sweep.pareto()
    assert front["RelativeCost"].is_monotonic_increasing and front["AP"].is_monotonic_increasing
    assert front["RelativeCost"].is_unique and front["AP"].is_unique
    for _, row in front.iterrows():
        rivals = sweep.frame[sweep.frame["RelativeCost"] <= row["RelativeCost"]]
        assert row["AP"] == rivals["AP"].max()
    within = sweep.best(max_cost=0.6)
    assert within["AP"] == sweep.frame.loc[sweep.frame["RelativeCost"] <= 0.6, "AP"].max()
    enough = sweep.best(max_loss=0.02, measure=RR)
    good = sweep.frame[sweep.frame["RR"] >= sweep.full["RR"] - 0.02]
    assert enough["RelativeCost"] == good["RelativeCost"].min()
    with pytest.raises(ValueError, match="give either max_cost or max_loss, not max_cost=None and max_loss=None"):
        sweep.best()
    with pytest.raises(ValueError, match=re.escape("no setting costs 0.1 or less; the cheapest costs 0")):
        sweep.best(max_cost=0.1)
    with pytest.raises(ValueError, match="no setting loses -2 of AP or less; the best loses"):
        sweep.best(max_loss=-2)
    with pytest.raises(ValueError, match="P@1 was not measured; there are AP, RR, RelativeCost"):
        sweep.best(max_cost=0.5, measure=P @ 1)


def test_on_disk_it_is_the_same_and_small(cascade, frame, trace, tmp_path):
    kept = cascade.trace(frame, tmp_path / "trace")
    assert_frame_equal(kept.results(0.4), trace.results(0.4))
    loaded = pt.Artifact.load(str(tmp_path / "trace"))
    assert isinstance(loaded, Trace) and len(loaded) == sum(SIZES)
    assert_frame_equal(loaded.results(0.4), trace.results(0.4))
    data = pickle.dumps(loaded)
    assert len(data) < 3_000
    assert_frame_equal(pickle.loads(data).results(0.4), trace.results(0.4))
    assert_frame_equal(pickle.loads(pickle.dumps(trace)).results(0.4), trace.results(0.4))
    trace.save(tmp_path / "saved")
    assert_frame_equal(Trace(tmp_path / "saved").results(0.4), kept.results(0.4))
    with pytest.raises(FileExistsError, match="exists; give another path, or delete it"):
        kept.save(tmp_path / "saved")
    assert repr(Trace(tmp_path / "saved")).endswith("5 questions, 59 candidates, heads at layers (2, 3, 4, 5, 6)>")
    more = pd.concat([frame, candidates([3]).assign(qid="later")])
    assert len(cascade.trace(more, tmp_path / "saved")) == sum(SIZES) + 3


def test_it_goes_on_where_it_stood(cascade, frame, tmp_path, monkeypatch):
    monkeypatch.setattr("pyterrier_cascade.early_exit.trace.ROWS", 10)
    judge, asked = Cascade.head_scores, []

    def dies(self, part, *args, **kwargs):
        asked.append(len(part))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return judge(self, part, *args, **kwargs)

    monkeypatch.setattr(Cascade, "head_scores", dies)
    with pytest.raises(KeyboardInterrupt):
        cascade.trace(frame, tmp_path / "trace")
    (tmp_path / "trace" / ".tmp-0123456789ab-part-00002").mkdir()
    half = Trace(tmp_path / "trace")
    assert 0 < len(half) < sum(SIZES)
    asked.extend([0] * 3)
    whole = cascade.trace(frame, tmp_path / "trace")
    assert [path.name for path in (tmp_path / "trace").glob(".*")] == [".lock"]
    assert sum(asked[6:]) == sum(SIZES) - len(half)
    assert_frame_equal(whole.results(0.4), cascade.trace(frame).results(0.4), atol=2e-6, rtol=0)
    n_asked = len(asked)
    assert len(cascade.trace(frame, tmp_path / "trace")) == sum(SIZES) and len(asked) == n_asked + 0


def test_a_trace_that_was_killed_while_it_began_goes_on(cascade, frame, trace, tmp_path):
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / ".tmp-0123456789ab-pt_meta.json").write_text("{")
    kept = cascade.trace(frame, tmp_path / "trace")
    assert_frame_equal(kept.results(0.4), trace.results(0.4))
    assert [path.name for path in (tmp_path / "trace").glob(".*")] == [".lock"]


def test_a_trace_in_its_first_moments_goes_on(cascade, frame, trace, tmp_path):
    """Another process holds the lock, or was killed with it, and has written nothing but temporary files."""
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / ".lock").touch()
    with publishing_file(tmp_path / "trace" / "other") as unfinished:
        unfinished.touch()
        kept = cascade.trace(frame, tmp_path / "trace")
    assert_frame_equal(kept.results(0.4), trace.results(0.4))


def test_a_part_that_was_not_listed_is_scored_again(cascade, frame, trace, tmp_path):
    """A process was killed between the part and the list."""
    cascade.trace(frame[frame["qid"] == "q0"], tmp_path / "trace")
    shutil.copytree(tmp_path / "trace" / "part-00000", tmp_path / "trace" / "part-00001")
    assert Trace(tmp_path / "trace").qids.tolist() == ["q0"]
    assert same_ranks(cascade.trace(frame, tmp_path / "trace"), trace)


def same_ranks(one, other) -> bool:
    """Whether traces whose questions stand in any order rank alike."""
    one, other = (trace.results(0.4).set_index(["qid", "docno"])["rank"].sort_index() for trace in (one, other))
    return one.equals(other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_processes_that_record_one_trace_score_each_question_once(cascade, frame, trace, tmp_path, monkeypatch):
    """The second waits for the first, and scores what is still missing."""
    monkeypatch.setattr("pyterrier_cascade.early_exit.trace.ROWS", 1)
    lists = [frame[frame["qid"].isin(qids)] for qids in (["q0", "q1", "q2"], ["q2", "q3", "q4"], ["q4", "q0"])]
    processes = [started(cascade.trace, one, tmp_path / "trace") for one in lists]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    found = Trace(tmp_path / "trace")
    assert sorted(found.qids) == sorted(trace.qids) and len(found) == sum(SIZES) and len(found.parts) == 5
    assert same_ranks(found, trace)


def test_a_trace_that_cannot_be_written_to_is_read(cascade, frame, tmp_path, monkeypatch):
    cascade.trace(frame, tmp_path / "trace")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    (tmp_path / "trace" / ".lock").unlink()
    assert len(cascade.trace(frame, tmp_path / "trace")) == sum(SIZES)
    assert not (tmp_path / "trace" / ".lock").exists()


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_number_and_its_text_are_not_merged(cascade, frame, tmp_path, on_disk):
    mixed = pd.concat([frame.assign(qid=frame["qid"].astype(object)), candidates([3], seed=4).assign(qid=1)])
    mixed.loc[mixed["qid"] == "q1", "qid"] = "1"
    message = "question '1' is there as a text and as a number; give all ids as texts"
    with pytest.raises(ValueError, match=f"^{message}$"):
        cascade.trace(mixed, tmp_path / "trace" if on_disk else None)


def test_texts_with_nul_are_told_apart():
    def hashed(*texts):
        frame = pd.DataFrame({"query": "q", "text": texts})
        return text_hashes(frame, [np.arange(len(frame))], "text").item()

    told = [
        hashed("a\0b"),
        hashed("a", "b"),
        hashed("a", "b", ""),
        hashed("ab"),
        hashed("a\0", "b"),
        hashed("a", "\0b"),
    ]
    assert len(set(told)) == len(told) and hashed("a", "b") == hashed("a", "b")


def test_a_lost_part_is_noticed(cascade, frame, tmp_path, monkeypatch):
    monkeypatch.setattr("pyterrier_cascade.early_exit.trace.ROWS", 1)
    cascade.trace(frame, tmp_path / "trace")
    for lost in ("part-00000", "part-00004"):
        copy = shutil.copytree(tmp_path / "trace", tmp_path / lost)
        shutil.rmtree(copy / lost)
        message = f"{str(copy / lost / 'files.json')!r} is missing or damaged; copy the trace again, or "
        for use in (lambda copy=copy: Trace(copy).results(0.4), lambda copy=copy: cascade.trace(frame, copy)):
            with pytest.raises(Damaged, match=re.escape(message)):
                use()


def test_a_full_disk_is_explained(cascade, frame, trace, tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError("1000 requested and 12 written")

    monkeypatch.setattr(np, "save", full)
    message = f"the disk with {str(tmp_path / 'trace')!r} is full; what was scored is kept: make room, then"
    with pytest.raises(DiskFull, match=re.escape(message)):
        cascade.trace(frame, tmp_path / "trace")
    with pytest.raises(DiskFull, match="saved' is full; nothing was written: make room, then save the trace again"):
        trace.save(tmp_path / "saved")
    monkeypatch.undo()
    assert_frame_equal(cascade.trace(frame, tmp_path / "trace").results(0.4), trace.results(0.4))
    assert len(Trace(trace.save(tmp_path / "saved").path)) == sum(SIZES)


def test_questions_are_added(cascade, frame, tmp_path):
    first = frame[frame["qid"].isin(["q0", "q2"])]
    assert len(cascade.trace(first, tmp_path / "trace")) == 23
    both = cascade.trace(frame, tmp_path / "trace")
    assert len(both) == sum(SIZES)
    expected = cascade(alpha=0.5)(frame).set_index(["qid", "docno"])["rank"]
    found = both.results(0.5).set_index(["qid", "docno"])["rank"]
    assert (found == expected[found.index]).all()
    with pytest.raises(ValueError, match="question 'q3' is in the trace with other candidates; give another path"):
        cascade.trace(frame[frame["docno"] != "d3-7"], tmp_path / "trace")


@pytest.mark.parametrize("column", ["query", "text"])
def test_other_words_have_other_scores(cascade, frame, tmp_path, column):
    cascade.trace(frame, tmp_path / "trace")
    changed = frame.assign(**{column: frame[column] + " town"})
    with pytest.raises(ValueError, match="question 'q3' is in the trace with other words or texts; give another path"):
        cascade.trace(changed, tmp_path / "trace")


def test_a_candidate_counts_once(cascade, frame):
    message = "question 'q2' has candidate 'd2-1' more than once; a trace needs each once"
    with pytest.raises(ValueError, match=message):
        cascade.trace(pd.concat([frame, frame[frame["docno"] == "d2-1"]]))


def test_numbers_as_ids_are_measured_alike(cascade, frame):
    """Those that ir-measures computes too."""
    measures = [AP, nDCG(dcg="exp-log2") @ 10, Judged @ 5]
    numbered = frame.assign(qid=frame["qid"].str[1:].astype(int), docno=range(len(frame)))
    qrels = numbered[["qid", "docno"]].assign(label=np.arange(len(frame)) % 3)
    found = cascade.trace(numbered).sweep(qrels, measures, [0.3]).frame
    texts = numbered.astype({"qid": str, "docno": str})
    expected = cascade.trace(texts).sweep(qrels.astype({"qid": str, "docno": str}), measures, [0.3]).frame
    assert_frame_equal(found, expected)
    assert found.drop(columns="alpha").gt(0).all(axis=None)


def test_nobody_to_trace(cascade, frame, tmp_path):
    empty = cascade.trace(frame.iloc[:0], tmp_path / "trace")
    assert len(empty) == 0 and list(empty.results(0.4).columns) == COLUMNS and len(empty.results(0.4)) == 0
    with pytest.raises(ValueError, match="the qrels judge none of the 0 questions of the trace"):
        empty.sweep(qrels_of(frame), [AP])
    assert len(cascade.trace(frame, tmp_path / "trace")) == sum(SIZES)
    assert len(cascade.trace(frame.iloc[:0], tmp_path / "trace")) == sum(SIZES)


def test_the_trace_of_another_model_is_refused(cascade, encoder, frame, tmp_path):
    cascade.trace(frame, tmp_path / "trace")
    message = re.escape(f"was made by {cascade!r}, whose weights or settings are not those of")
    with warnings.catch_warnings(), pytest.raises(ValueError, match=message):
        warnings.simplefilter("ignore")
        Cascade.from_pretrained(encoder).trace(frame, tmp_path / "trace")
    with pytest.raises(ValueError, match=message):
        cascade(max_length=16).trace(frame, tmp_path / "trace")
    assert len(cascade(alpha=0.3, token_budget=99).trace(frame, tmp_path / "trace")) == sum(SIZES)


def test_broken_weights_give_no_trace(cascade, frame, tmp_path):
    cascade.model.loaded.module.heads[1][0].weight.data[0] = np.nan
    with pytest.raises(ValueError, match=r"scores after layer \d+ are NaN or infinite; the model's weights are broken"):
        cascade.trace(frame, tmp_path / "trace")
    assert len(Trace(tmp_path / "trace")) == 0


@pytest.mark.parametrize(
    ("names", "measures"),
    [
        ("map", [AP]),
        (["map", "ndcg_cut_10", "P@1"], [AP, nDCG @ 10, P @ 1]),
        (["RelativeCost", "RelativeTokenCost", "Survival@6"], [RelativeCost, RelativeTokenCost, Survival @ 6]),
    ],
)
def test_measures_by_name_as_an_experiment_takes_them(trace, frame, names, measures):
    by_name, given = (trace.sweep(qrels_of(frame), one, alphas=[0.3]) for one in (names, measures))
    assert_frame_equal(by_name.frame, given.frame)


def test_there_is_no_trace(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape("make one with cascade.trace(candidates, path)")):
        Trace(tmp_path / "nothing")


SWEEPS = [
    ({"alphas": [0.1, 1.0]}, "alpha=1.0 is not a fraction"),
    ({"alphas": [(0.1, 0.2)]}, "has 2 values, but 4 heads drop candidates"),
    ({"alphas": []}, "alphas is empty; give at least one setting"),
    ({"alphas": 0.3}, "alphas=0.3: give a list of settings"),
    ({"alphas": [0.3], "settings": [{"alpha": 0.3}]}, "alphas and settings exclude each other; give one of them"),
    ({"settings": []}, "settings is empty; give at least one setting"),
    ({"settings": [{"counts": 3}]}, "counts=3: give whole numbers, one for each head but the last"),
    ({"measures": []}, "give at least one measure"),
    ({"measures": ["mapp"]}, "there is no measure 'mapp'"),
    ({"measures": ["Survival"]}, "the measure 'Survival' needs a cutoff; write, for example, 'Survival@10'"),
    ({"measures": [3]}, "3 (int) is no measure; give a name such as 'AP'"),
    ({"qrels": pd.DataFrame({"qid": ["x"], "docno": ["d"], "label": [1]})}, "the qrels judge none of the 5 questions"),
]


@pytest.mark.parametrize(("given", "message"), SWEEPS, ids=[message[:30] for _, message in SWEEPS])
def test_sweeps_that_cannot_be(trace, frame, given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        trace.sweep(**({"qrels": qrels_of(frame), "measures": [AP]} | given))


def test_bad_input(cascade, trace, frame, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pt_meta.json").write_text(json.dumps({"type": "dense_index", "format": "flex"}))
    with pytest.raises(
        ValueError, match="holds type 'dense_index', format 'flex', version None; this reads cascade_trace"
    ):
        Trace(tmp_path / "other")
    with pytest.raises(ValueError, match=re.escape("plan=(2, 9), but there are heads at layers (2, 3, 4, 5, 6) only")):
        trace.results(plan=(2, 9))
    with pytest.raises(FileExistsError, match="exists and is no trace; give another path"):
        cascade.trace(frame, tmp_path)
    with pytest.raises(pt.validate.InputValidationError, match="returned no 'text'"):
        cascade.trace(frame.drop(columns="text"))


def test_plots(cascade, trace, frame, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from pyterrier_cascade import river

    ax = trace.sweep(qrels_of(frame), [AP]).plot()
    assert ax.get_ylabel() == "AP" and {text.get_text() for text in ax.texts} == {"alpha=0.3", "alpha=0.4", "alpha=0.5"}
    points = ax.collections[0].get_offsets()
    assert len(points) == 1296 and points[:, 0].min() > 40 and points[:, 0].max() < 90
    told = cascade(alpha=0.5).explain(frame)
    ax = river(told, "q3", relevant=["d3-4"])
    assert [text.get_text() for text in ax.texts] == ["30", "15", "8", "4", "2"]
    ends = [line.get_marker() for line in ax.lines if line.get_marker() != "None"]
    assert len(ends) == 30 and ends.count("x") == 28 and ends.count(".") == 2
    ax.figure.savefig(tmp_path / "river.png")
    with pytest.raises(ValueError, match=re.escape("there are 5 questions; give the qid of one, such as")):
        river(told)
    with pytest.raises(ValueError, match="question 'q9' is not among the 5 explained"):
        river(told, "q9")
