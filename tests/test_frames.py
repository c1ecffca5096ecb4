"""Frames in and out: blocks, ranks, ties, texts, costs, labels."""

import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from pyterrier_cascade import frames


def test_blocks_are_found_in_interleaved_rows(results):
    blocks = frames.Blocks.of(results)
    assert blocks.qids.tolist() == ["2", "1"]
    assert [rows.tolist() for rows in blocks] == [[0, 2], [1, 3, 4]]
    assert blocks.sums(np.array([1, 10, 2, 20, 30])).tolist() == [3, 60, 3, 60, 60]


def test_blocks_of_an_empty_frame():
    blocks = frames.Blocks.of(pd.DataFrame({"qid": []}))
    assert len(blocks) == 0 and list(blocks) == []


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_missing_qid_is_an_error(results, missing):
    results["qid"] = ["2", "1", missing, "1", "1"]
    with pytest.raises(ValueError, match=re.escape("qid is missing in row 2 of 5; every row needs a query id")):
        frames.Blocks.of(results)


@pytest.mark.parametrize("dtype", [object, "category"])
def test_two_queries_under_one_qid_are_an_error(results, dtype):
    results["query"] = pd.Series(["who", "what ship", "who", "what", "when " * 40], index=results.index, dtype=dtype)
    message = (
        "1 of 2 qids have more than one query, the first is '1': 'what ship' in row 1, 'what' in row 3; give each "
        "query a qid of its own"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        frames.Blocks.of(results)


def test_one_query_that_is_missing_is_one_query(results):
    results["query"] = [None, "what", np.nan, "what", "what"]
    assert len(frames.Blocks.of(results)) == 2
    results["query"] = [None, "what", "", "what", pd.NA]
    with pytest.raises(ValueError, match="the first is '1': 'what' in row 1, '' in row 4; give each query a qid"):
        frames.Blocks.of(results)


def test_ranked_returns_the_whole_frame(results):
    before = results.copy()
    out = frames.ranked(
        results, frames.Blocks.of(results), np.array([1.0, 0.5, 3.0, 0.5, 2.0]), exit_layer=np.arange(5)
    )
    assert_frame_equal(results, before)
    expected = pd.DataFrame(
        {
            "qid": ["2", "2", "1", "1", "1"],
            "query": ["who founded the town"] * 2 + ["what ship"] * 3,
            "docno": ["d1", "d3", "d4", "d1", "d2"],
            "text": ["nothing", "the town was founded in 1802", "who is it", "a ship", "the ship launched"],
            "extra": [0.3, 0.1, 0.5, 0.2, 0.4],
            "exit_layer": [2, 0, 4, 1, 3],
            "score": [3.0, 1.0, 2.0, 0.5, 0.5],
            "rank": [0, 1, 0, 1, 2],
        }
    )
    assert_frame_equal(out, expected)


def test_columns_keep_their_types(results):
    """Under pandas 3 objects that are all strings are not turned into ``str``, which cannot hold them all."""
    results["text"] = pd.Series(["a", "b", "\ud800 lone", "c", "d"], index=results.index, dtype=object)
    results["note"] = pd.Series(["a", None, "b", None, None], index=results.index, dtype=object)
    results["when"] = pd.Timestamp("2020-01-01", tz="UTC")
    out = frames.ranked(results, frames.Blocks.of(results), np.arange(5.0))
    kept = [name for name in results.columns if name not in ("score", "rank")]
    assert out[kept].dtypes.tolist() == results[kept].dtypes.tolist()
    assert out.set_index("docno")["text"][["d3", "d4"]].tolist() == ["a", "d"] and "\ud800 lone" in set(out["text"])
    assert out["note"].tolist().count(None) == 3


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"rank": [2, 1, 0], "score": [3.0, 2.0, 1.0]}, ["c", "b", "a"]),
        ({"score": [1.0, 3.0, 3.0]}, ["b", "c", "a"]),
        ({"score": [np.nan, 1.0, 2.0]}, ["c", "b", "a"]),
        ({"rank": [np.nan, 1, 0]}, ["c", "b", "a"]),
        ({}, ["a", "b", "c"]),
    ],
    ids=["earlier rank", "else earlier score, then docno", "no score is last", "no rank is last", "else docno"],
)
def test_ties_keep_their_earlier_order(columns, expected):
    """CT-2, X-4."""
    frame = pd.DataFrame({"qid": ["1"] * 3, "docno": ["a", "b", "c"], **columns})
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        shuffled = frame.iloc[order]
        out = frames.ranked(shuffled, frames.Blocks.of(shuffled), np.ones(3))
        assert out["docno"].tolist() == expected
        assert out["rank"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [object, "str", "category"])
def test_ranks_that_are_strings_are_numbers(dtype):
    frame = pd.DataFrame({"qid": ["1"] * 3, "docno": ["a", "b", "c"]})
    frame["rank"] = pd.Series(["10", "9", None], dtype=dtype)
    assert frames.numbers(frame, "rank", missing=np.inf).tolist() == [10.0, 9.0, np.inf]
    assert frames.ranked(frame, frames.Blocks.of(frame), np.ones(3))["docno"].tolist() == ["b", "a", "c"]
    frame["rank"] = pd.Series(["10", "ninth", None], dtype=dtype)
    with pytest.raises(ValueError, match=r"^'rank' must hold numbers, but row 1 holds 'ninth'$"):
        frames.ranked(frame, frames.Blocks.of(frame), np.ones(3))


def test_a_nan_score_is_an_error_that_names_the_candidate(results):
    scores = np.array([1.0, np.nan, 3.0, 0.5, np.nan])
    message = "2 of 5 scores are NaN, the first for qid '1', docno 'd1'; the model's weights are broken"
    with pytest.raises(ValueError, match=re.escape(message)):
        frames.ranked(results, frames.Blocks.of(results), scores)


def test_texts_are_told_apart_whatever_they_hold():
    texts = ["b\ud800b", "b\ud800", "", "b\ud800b", "a", "\U0001f600", "\ud800b"]
    codes, different = frames.distinct(texts)
    assert codes.tolist() == [0, 1, 2, 0, 3, 4, 5]
    assert different == [texts[i] for i in (0, 1, 2, 4, 5, 6)]
    assert frames.distinct([])[0].shape == (0,)


def test_missing_texts_are_empty_and_counted(results):
    results["text"] = ["a", None, np.nan, pd.NA, "b"]
    with pytest.warns(UserWarning, match=re.escape("3 of 5 rows have no 'text'; they are scored as an empty text")):
        assert frames.texts(results, "text") == ["a", "", "", "", "b"]


@pytest.mark.parametrize("dtype", [object, "str", "category"])
def test_missing_texts_of_any_type(results, dtype):
    results["text"] = pd.Series(["a", None, "b", None, "a"], index=results.index, dtype=dtype)
    filled, n_missing = frames.filled(results, "text")
    assert (filled.tolist(), n_missing) == (["a", "", "b", "", "a"], 2)


def test_messages_stay_short_whatever_the_ids(results):
    results["docno"] = "d" * 5_000_000
    with pytest.raises(ValueError, match="3 of 5 scores are NaN, the first for qid '2', docno 'ddd") as seen:
        frames.ranked(results, frames.Blocks.of(results), np.array([np.nan, 1.0, np.nan, 1.0, np.nan]))
    assert len(str(seen.value)) < 250


def test_a_text_that_is_no_text_is_an_error(results):
    results["text"] = pd.Series(["a", "b", 3.5, "c", "d"], dtype=object).to_numpy()
    with pytest.raises(ValueError, match=re.escape("'text' must hold strings, but row 2 holds 3.5 (float)")):
        frames.texts(results, "text")


def test_costs_add_up_over_stages(results):
    """CT-33: what was spent before counts, and so does what was dropped meanwhile."""
    blocks = frames.Blocks.of(results)
    first = frames.charged(results, blocks, 4, 12, np.ones(5), np.array([10, 20, 30, 40, 50]))
    assert first["q_cost"].tolist() == [8, 12, 8, 12, 12]
    assert first["q_cost_full"].tolist() == [24, 36, 24, 36, 36]
    assert first["q_token_cost"].tolist() == [160, 440, 160, 440, 440]
    assert first["q_token_cost_full"].tolist() == [480, 1320, 480, 1320, 1320]
    kept = results.assign(**first).iloc[[0, 1, 3]]
    alone = frames.charged(kept, frames.Blocks.of(kept), 12, 12, np.ones(3), np.array([10, 20, 40]))
    assert alone["q_cost"].tolist() == [12, 24, 24]
    second = frames.in_all(kept, alone, None)
    assert second["q_cost"].tolist() == [8 + 12, 12 + 24, 12 + 24]
    assert second["q_cost_full"].tolist() == [24, 36, 36]
    assert second["q_token_cost"].tolist() == [160 + 120, 440 + 720, 440 + 720]
    assert second["q_token_cost_full"].tolist() == [480, 1320, 1320]


def test_costs_of_stages_of_two_models_are_layers_of_the_last(results):
    """Six layers of size 5 over all of a query's candidates, then twelve of size 20 over one of them.

    Query 1 has three candidates: 3 x 6 x 5 / 20 + 12 = 16.5 of 3 x 12 layers. Query 2 has two.
    """
    tokens = np.array([10, 20, 30, 40, 50])
    small = frames.charged(results, frames.Blocks.of(results), 6, 6, np.ones(5), tokens)
    first = results.assign(**frames.in_all(results, small, (6, 5)))
    assert first["q_full_layers"].unique().tolist() == [6] and first["q_layer_size"].unique().tolist() == [5]
    kept = first.iloc[[0, 1]]
    large = frames.charged(kept, frames.Blocks.of(kept), 12, 12, np.ones(2), tokens[:2])
    second = frames.in_all(kept, large, (12, 20))
    assert second["q_cost"].tolist() == [2 * 6 / 4 + 12, 3 * 6 / 4 + 12]
    assert second["q_cost_full"].tolist() == [2 * 12, 3 * 12]
    assert second["q_token_cost"].tolist() == [40 * 6 / 4 + 10 * 12, 110 * 6 / 4 + 20 * 12]
    assert second["q_token_cost_full"].tolist() == [40 * 12, 110 * 12]
    assert second["q_full_layers"].tolist() == [12, 12] and second["q_layer_size"].tolist() == [20, 20]
    # The other way round, the whole is the small model over all candidates.
    back = first.assign(**{name: values[[0, 1, 0, 1, 1]] for name, values in second.items()})
    third = frames.in_all(back, small, (6, 5))
    assert third["q_cost"][1] == 16.5 * 4 + 3 * 6 and third["q_cost_full"][1] == 3 * 6


def test_costs_that_rows_do_not_state(results):
    """Rows of a retriever beside rows of a ranker: they cost nothing, and unknown costs stay unknown."""
    stated = results.assign(q_cost=[6.0, np.nan, np.nan, 1, 2], q_cost_full=[24.0, np.nan, 24, 36, 36])
    stated = stated.assign(q_token_cost=stated["q_cost"], q_token_cost_full=stated["q_cost_full"])
    own = frames.charged(results, frames.Blocks.of(results), 4, 12, np.ones(5), np.ones(5))
    found = frames.in_all(stated, own, (12, 7))
    assert found["q_cost"].tolist() == pytest.approx([8 + 6, 12, np.nan, 13, 14], nan_ok=True)
    assert found["q_cost_full"].tolist() == [24, 36, 24, 36, 36]


def test_labels_come_from_the_qrels(results):
    qrels = pd.DataFrame({"qid": ["1", "2", "2", "2"], "docno": ["d1", "d3", "d9", "d1"], "label": [2, 0, 1, 1]})
    labelled = frames.labelled(results, qrels)
    assert labelled["label"].tolist() == [0, 2, 1, 0, 0]
    assert frames.binary(labelled, "training")["label"].tolist() == [0, 1, 1, 0, 0]
    assert frames.binary(labelled, "training", relevant_from=2)["label"].tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("labels", "relevant_from", "message"),
    [
        (
            [0, 1, 1, 0, 0],
            2,
            "no positive among the 5 candidates of the dev data: no label is 2 or more; are these the",
        ),
        ([3, 1, 1, 2, 1], 1, "all 5 candidates of the dev data are positive; it needs negatives too"),
        ([0, 1, 0.5, 0, 0], 1, "labels of the dev data must be whole numbers, but 1 are not, first 0.5"),
        ([0, 1, None, 0, 0], 1, "labels of the dev data must be whole numbers, but 1 are not, first nan"),
        ([0, 1, "yes", 0, 0], 1, "labels of the dev data must be whole numbers, but one is 'yes'"),
    ],
)
def test_labels_that_teach_nothing(results, labels, relevant_from, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        frames.binary(results.assign(label=labels), "dev", relevant_from)


def test_qrels_of_other_types_are_an_error(results):
    qrels = pd.DataFrame({"qid": [1, 2], "docno": ["d1", "d3"], "label": [1, 1]})
    message = "results and qrels have no qid in common: the first are '2' (str) and 1 (int)"
    with pytest.raises(ValueError, match=re.escape(message)):
        frames.labelled(results, qrels)


@pytest.mark.parametrize("label", [0.5, np.nan])
def test_labels_of_qrels_are_whole_numbers(results, label):
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d1", "d3"], "label": [1, label]})
    message = f"labels of qrels must be whole numbers, but 1 are not, first {label}"
    with pytest.raises(ValueError, match=re.escape(message)):
        frames.labelled(results, qrels)


@pytest.mark.parametrize(
    ("qids", "docnos", "labels"),
    [([1, 1, 2], [7, 8, 7], [0.0, 1.0, 1.0]), (["1", "1", 2], ["\ud800", 8, 7], [0, 1, 1])],
)
def test_ids_and_labels_of_other_types_are_measured(qids, docnos, labels):
    """1/2 for the first question, 1 for the second."""
    candidates = pd.DataFrame({"qid": qids, "docno": docnos}, dtype=object).infer_objects()
    found = frames.mean_average_precision(candidates, np.array([2.0, 1.0, 5.0]), candidates.assign(label=labels))
    assert found == 0.75


def test_data_are_known_again_by_ids_texts_and_labels(results):
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["d1"], "label": [1]})
    known = frames.digest([results, qrels], "text")
    assert known == frames.digest([results.copy(), qrels.assign(iteration=0)], "text")
    backwards = [{name: results[name].to_numpy()[::-1]} for name in ("qid", "query", "docno", "text")]
    digests = {frames.digest([results.assign(**other), qrels], "text") for other in backwards}
    digests |= {frames.digest([results, qrels.assign(label=0)], "text"), frames.digest([results, qrels], "extra")}
    digests |= {frames.digest([results.assign(teacher=1), qrels], "text"), frames.digest([results, qrels], "text", 32)}
    assert len(digests) == 8 and known not in digests
    assert frames.digest([None, qrels], "text") is None


def test_map_is_over_questions_with_a_positive():
    """X-1; 1/2 for the question with its positive at rank 2, and nothing for the one without."""
    candidates = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["a", "b", "a"]})
    qrels = candidates.assign(label=[0, 1, 0])
    assert frames.mean_average_precision(candidates, np.array([2.0, 1.0, 5.0]), qrels) == 0.5


def test_two_columns_of_one_name_are_an_error(results):
    twice = pd.concat([results, results[["extra"]]], axis=1)
    with pytest.raises(ValueError, match="the frame has more than one column named extra; drop or rename them first"):
        frames.validate(twice, context=pt.Transformer.identity())


@st.composite
def shuffled_results(draw):
    qids = draw(st.lists(st.sampled_from(["1", "2", "3"]), min_size=1, max_size=20))
    n = len(qids)
    frame = pd.DataFrame(
        {
            "qid": qids,
            "docno": [f"d{i}" for i in draw(st.permutations(range(n)))],
            "score": draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=n, max_size=n)),
            "note": draw(st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=n, max_size=n)),
        },
        index=draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)),
    )
    new = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=n, max_size=n))
    return frame, np.array(new), draw(st.permutations(range(n)))


@given(shuffled_results())
def test_ranks_do_not_depend_on_the_order_of_rows(case):
    frame, new, order = case
    out = frames.ranked(frame, frames.Blocks.of(frame), new)
    moved = frame.iloc[list(order)]
    again = frames.ranked(moved, frames.Blocks.of(moved), new[list(order)])
    by = ["qid", "rank"]
    assert_frame_equal(out.sort_values(by, ignore_index=True), again.sort_values(by, ignore_index=True))
    assert len(out) == len(frame) and out.index.equals(pd.RangeIndex(len(frame)))
    for _, block in out.groupby("qid"):
        assert block["rank"].tolist() == list(range(len(block)))
        assert block["score"].is_monotonic_decreasing


def test_success_is_a_share_of_the_questions_with_a_positive():
    candidates = pd.DataFrame({"qid": ["1", "1", "2", "2", "3"], "docno": ["a", "b", "a", "b", "a"]})
    qrels = pd.DataFrame({"qid": ["1", "2", "3"], "docno": ["b", "b", "a"], "label": [1, 1, 0]})
    scores = np.array([2.0, 1.0, 1.0, 2.0, 1.0])
    # The third question has no positive; the first has its own in the second place.
    assert frames.success(candidates, scores, qrels, 1) == 0.5
    assert frames.success(candidates, scores, qrels, 2) == 1
