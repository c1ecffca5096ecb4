import hypothesis.strategies as st
import pandas as pd
import pytest
from hypothesis import given
from pandas.testing import assert_frame_equal

from pyterrier_cascade.datasets import Mode
from pyterrier_cascade.datasets.modes import keep_questions

MODES = [Mode.RAW, Mode.NO_ALL_MINUS, Mode.CLEAN]
PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 1)), max_size=30).map(
    lambda rows: pd.DataFrame(rows, columns=["qid", "label"]).astype({"qid": str, "label": int})
)


@pytest.mark.parametrize(
    "mode, kept",
    [("raw", ["both", "plus", "both", "minus"]), ("no_all_minus", ["both", "plus", "both"]), ("clean", ["both"] * 2)],
)
def test_what_each_mode_keeps(mode, kept):
    pairs = pd.DataFrame({"qid": ["both", "plus", "both", "minus"], "label": [0, 1, 1, 0]})
    result = keep_questions(pairs, mode)
    assert result["qid"].tolist() == kept
    assert result.index.tolist() == list(range(len(kept)))


@given(PAIRS)
def test_modes_are_idempotent_and_nested(pairs):
    for i, mode in enumerate(MODES):
        once = keep_questions(pairs, mode)
        assert_frame_equal(keep_questions(once, mode), once)
        for wider in MODES[:i]:
            assert_frame_equal(keep_questions(keep_questions(pairs, wider), mode), once)


@given(PAIRS)
def test_kept_questions_keep_all_their_rows_in_order(pairs):
    for mode in MODES:
        result = keep_questions(pairs, mode)
        expected = pairs[pairs["qid"].isin(result["qid"])].reset_index(drop=True)
        assert_frame_equal(result, expected)


def test_unknown_mode():
    with pytest.raises(ValueError, match="mode must be one of raw, no_all_minus, clean, not 'tidy'"):
        keep_questions(pd.DataFrame({"qid": [], "label": []}), "tidy")
