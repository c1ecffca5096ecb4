"""Measures of cost and survival (CT-30, CT-32 to CT-35), by hand and on the results of rankers."""

import warnings

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP, RR

from pyterrier_cascade import CrossEncoder, RelativeCost, RelativeTokenCost, Survival, frames
from tests import tiny
from tests.drawn_heads import DrawnHeads
from tests.lists import candidates

QRELS = pd.DataFrame({"qid": ["1", "2"], "docno": ["a", "d"], "label": [1, 2]})


@pytest.fixture
def results():
    """Query 1 ran 6 of 12 layers over two documents; query 2 ran all of them; nobody judged query 3."""
    rows = [("1", "a", 6, 12.0, 24.0), ("1", "b", 6, 12.0, 24.0), ("2", "c", 12, 36.0, 36.0), ("2", "d", 4, 36.0, 36.0)]
    frame = pd.DataFrame(
        [*rows, ("3", "e", 2, 1.0, 8.0)], columns=["qid", "docno", "exit_layer", "q_cost", "q_cost_full"]
    )
    frame["q_token_cost"], frame["q_token_cost_full"] = frame["q_cost"] / 2, frame["q_cost_full"]
    return frame.assign(score=1.0)


def per_query(measure, run, qrels=QRELS):
    found = ir_measures.iter_calc([measure], pt.model.to_ir_measures(qrels), pt.model.to_ir_measures(run))
    return {metric.query_id: metric.value for metric in found}


def test_costs_by_hand(results):
    assert per_query(RelativeCost, results) == {"1": 0.5, "2": 1.0}
    assert per_query(RelativeTokenCost, results) == {"1": 0.25, "2": 0.5}


@pytest.mark.parametrize(
    ("measure", "names"),
    [(RelativeCost, ("q_cost", "q_cost_full")), (RelativeTokenCost, ("q_token_cost", "q_token_cost_full"))],
    ids=str,
)
@pytest.mark.parametrize(
    ("spent", "full", "expected"),
    [
        ([1.0, 3.0, 9.0], [4.0, 4.0, 4.0], 0.5),
        ([1.0, np.nan, 9.0], [4.0, np.nan, 4.0], 0.125),
        ([1.0, np.nan, 9.0], [4.0, 4.0, 4.0], np.nan),
        ([np.nan] * 3, [0.0] * 3, np.nan),
    ],
    ids=["counted", "a-query-of-the-retriever", "unknown-for-a-query", "unknown"],
)
def test_the_mean_of_the_costs(measure, names, spent, full, expected):
    """The mean over the judged queries 1 and 2; the cost is 0 where none is stated, NaN where it is unknown."""
    run = pd.DataFrame({"qid": ["1", "2", "3"], "docno": "d", "score": 1.0, names[0]: spent, names[1]: full})
    assert pt.Evaluate(run, QRELS, [measure])[str(measure)] == pytest.approx(expected, nan_ok=True)


def test_a_retriever_costs_nothing(results):
    plain = results[["qid", "docno", "score"]]
    assert per_query(RelativeCost, plain) == {"1": 0, "2": 0}
    assert pt.Evaluate(plain, QRELS, [RelativeCost])["RelativeCost"] == 0


@pytest.mark.parametrize(("layer", "alive"), [(2, {"1": 1, "2": 1}), (6, {"1": 1, "2": 0}), (7, {"1": 0, "2": 0})])
def test_survival_by_hand(results, layer, alive):
    assert per_query(Survival @ layer, results) == alive


def test_a_dropped_positive_does_not_survive(results):
    assert per_query(Survival @ 2, results[results["docno"] != "a"]) == {"1": 0, "2": 1}


@pytest.mark.parametrize(
    ("measure", "name"),
    [(RelativeCost, "RelativeCost"), (RelativeTokenCost, "RelativeTokenCost"), (Survival @ 12, "Survival@12")],
)
def test_names_of_the_columns(measure, name):
    assert str(measure) == name


def test_relative_costs_of_the_paper():
    """CT-32 to CT-35, in percent of the full encoder; with so many candidates, rounding makes no difference."""
    docnos = [f"d{i}" for i in range(10_000)]
    frame = pd.DataFrame({"qid": "1", "query": "q", "docno": docnos, "text": "t"})
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["d0"], "label": [1]})

    def cost(ranker, measure=RelativeCost):
        return round(100 * pt.Evaluate(ranker(frame), qrels, [measure])[str(measure)], 1)

    cascade, sequential = DrawnHeads(), DrawnHeads(reuses_encodings=False)
    ours, theirs = ([cost(ranker(alpha=alpha)) for alpha in (0.3, 0.4, 0.5)] for ranker in (cascade, sequential))
    assert ours == [cost(cascade(alpha=alpha), RelativeTokenCost) for alpha in (0.3, 0.4, 0.5)] == [62.9, 55.1, 49.0]
    assert [round(value - 100) for value in ours] == [-37, -45, -51]
    assert [cost(cascade(alpha=alpha)) for alpha in (0.1, 0.6)] == [84.9, 44.2]
    # Printed as +53, which is cut off, +18, and -10, which is a slip.
    assert theirs == [153.6, 118.3, 91.7]
    assert [round(two / one, 2) for one, two in zip(ours, theirs, strict=True)] == [2.44, 2.15, 1.87]
    # Printed as -67, -50, -33, and -20, which is a slip.
    assert [round(cost(cascade(plan=(layer,))) - 100, 1) for layer in (4, 6, 8, 10)] == [-66.7, -50, -33.3, -16.7]


def test_costs_in_an_experiment(cascade, tmp_path):
    """128 candidates at alpha=.3: 128, 90, 63, 45 and 32 of them reach the heads at 2, 3, 4, 5, 6 of 6 layers."""
    frame = candidates([128, 128])
    tokens = cascade.head_scores(frame, frames.Blocks.of(frame), cascade.plan_now()).tokens
    truncated = CrossEncoder.from_pretrained(tiny.save(tmp_path, layers=6)).truncate(4)
    source = pt.Transformer.from_df(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = pt.Experiment(
            {
                "none": source,
                "full": source >> cascade,
                "cascade": source >> cascade(alpha=0.3),
                "4": source >> truncated,
            },
            frame[["qid", "query"]].drop_duplicates(),
            pd.DataFrame({"qid": ["q0", "q1"], "docno": ["d0-3", "d1-5"], "label": [1, 1]}),
            [AP, RR, RelativeCost, RelativeTokenCost],
        ).set_index("name")
    expected = (2 * 128 + 90 + 63 + 45 + 32) / (6 * 128)
    assert table["RelativeCost"].tolist() == pytest.approx([0, 1, expected, 4 / 6])
    out = cascade(alpha=0.3)(frame)
    assert out["q_token_cost_full"].drop_duplicates().sum() == 6 * tokens.sum()
    assert table.loc["cascade", "RelativeTokenCost"] == pytest.approx(
        (out["q_token_cost"] / out["q_token_cost_full"]).drop_duplicates().mean()
    )
    assert table.loc["4", "RelativeTokenCost"] == pytest.approx(4 / 6)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_size_of_a_layer_by_hand(tmp_path, family):
    """Four maps of 32 x 32 for attention, and two of 32 x 64, or three where they are gated."""
    ranker = CrossEncoder.from_pretrained(tiny.save(tmp_path, family, layers=3))
    size = 4 * 32 * 32 + (3 if family == "modernbert" else 2) * 32 * 64
    assert ranker.full_model() == (3, size) == ranker.truncate(2).full_model()


def test_two_cross_encoders_one_after_the_other(tmp_path):
    """10 candidates by 2 layers, and 3 of them by 4 layers of twice the width: 10 x 2 / 4 + 3 x 4 of 10 x 4 layers."""
    wide = {"hidden_size": 64, "intermediate_size": 128}
    small = CrossEncoder.from_pretrained(tiny.save(tmp_path / "small"))
    large = CrossEncoder.from_pretrained(tiny.save(tmp_path / "large", layers=4, **wide))
    frame = candidates([10])
    qrels = frame[["qid", "docno"]].assign(label=1)

    def cost(ranker) -> float:
        return pt.Evaluate(ranker(frame), qrels, [RelativeCost])["RelativeCost"]

    assert [cost(small), cost(large)] == [1, 1]
    assert cost(small % 3 >> large) == pytest.approx((10 * 2 / 4 + 3 * 4) / (10 * 4))
    # Relative to the last: what it saves, and what it does not.
    assert cost(large % 3 >> small) == pytest.approx((10 * 4 * 4 + 3 * 2) / (10 * 2))
    assert cost(small.truncate(1) % 3 >> small) == pytest.approx((10 * 1 + 3 * 2) / (10 * 2))


def test_a_query_that_nobody_judged_counts_for_no_measure(cascade):
    """An experiment needs a value of every measure for a query, or of none."""
    frame = candidates([20, 20, 20])
    topics = frame[["qid", "query"]].drop_duplicates()
    qrels = pd.DataFrame({"qid": ["q0", "q2"], "docno": ["d0-3", "d2-5"], "label": [1, 1]})
    measures = [AP, RelativeCost, RelativeTokenCost, Survival @ 2]
    systems = {"none": pt.Transformer.from_df(frame), "half": pt.Transformer.from_df(frame) >> cascade(alpha=0.5)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = pt.Experiment(systems, topics, qrels, measures[:3]).set_index("name")
        more = pt.Experiment({"half": systems["half"]}, topics, qrels, measures)
    assert table["RelativeCost"].to_dict() == pytest.approx({"none": 0, "half": (2 * 20 + 10 + 5 + 3 + 2) / 120})
    assert more["Survival@2"].item() == 1 and more["AP"].item() == table.loc["half", "AP"]
    judged = frame[frame["qid"] != "q1"]
    alone = pt.Evaluate(cascade(alpha=0.5)(judged), qrels, [RelativeTokenCost])
    assert table.loc["half", "RelativeTokenCost"] == pytest.approx(alone["RelativeTokenCost"])


def test_survival_of_a_positive(cascade):
    """CT-30."""
    frame = candidates([20, 20, 20])
    out = cascade(alpha=0.5)(frame)
    exits = out.set_index("docno")["exit_layer"]
    first = out[out["exit_layer"] == 2]["docno"].iloc[0]
    last = [out[(out["qid"] == qid) & (out["exit_layer"] == 6)]["docno"].iloc[0] for qid in ("q0", "q1", "q2")]
    gone = {d: q for q, d in zip(out["qid"], out["docno"], strict=True)}[first]
    others = [(q, d) for q, d in zip(("q0", "q1", "q2"), last, strict=True) if q != gone]
    qrels = pd.DataFrame([(gone, first, 1), *((q, d, 1) for q, d in others)], columns=["qid", "docno", "label"])
    assert exits[first] == 2
    found = pt.Evaluate(out, qrels, [Survival @ 2, Survival @ 3, Survival @ 6])
    assert [found[f"Survival@{layer}"] for layer in (2, 3, 6)] == pytest.approx([1, 2 / 3, 2 / 3])
    with pytest.raises(
        ValueError, match="Survival@3 is a measure of cascades, but these results have no column 'exit_"
    ):
        pt.Evaluate(frame, qrels, [Survival @ 3])
