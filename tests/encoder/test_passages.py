"""The scores of documents over their passages, and a rule that keeps passages together."""

import numpy as np
import pytest

from pyterrier_cascade.encoder.passages import keep_documents, over_passages

STARTS = np.array([0, 2, 3])
SCORES = np.array([1.0, 4.0, -2.0, 0.5, 0.25, 3.0])


@pytest.mark.parametrize(
    ("passages", "expected"), [("first", [1, -2, 0.5]), ("max", [4, -2, 3]), ("mean", [2.5, -2, 1.25])]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_score_of_a_document(passages, expected, dtype):
    found = over_passages(SCORES.astype(dtype), STARTS, passages)
    assert found.tolist() == expected and found.dtype == dtype
    # At several heads; the second document left before the second.
    both = np.stack([SCORES, np.where(np.arange(6) == 2, np.nan, 2 * SCORES)], 1).astype(dtype)
    found = over_passages(both, STARTS, passages)
    np.testing.assert_array_equal(found[:, 0], expected)
    np.testing.assert_array_equal(found[:, 1], [2 * expected[0], np.nan, 2 * expected[2]])


def test_a_rule_sees_documents_and_passages_stay_together():
    owner, seen = np.array([0, 0, 1, 2, 2, 2, 3]), []

    def keep(head, documents, scores):
        seen.append((head, documents.tolist(), scores.tolist()))
        return documents[np.argsort(-scores, kind="stable")][:2]

    rule = keep_documents(keep, owner, "mean")
    rows = rule(0, np.arange(7), np.array([1.0, 3, 0, 5, 6, 7, 1]))
    assert rows.tolist() == [3, 4, 5, 0, 1]
    assert rule(1, rows, np.array([1.0, 2, 3, 2, 2])).tolist() == [3, 4, 5, 0, 1]
    assert seen == [(0, [0, 1, 2, 3], [2, 0, 6, 1]), (1, [2, 0], [2, 2])]
    assert rule(2, rows[:0], np.empty(0)).tolist() == []
