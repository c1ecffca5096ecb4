"""Training in one step, on the target, the transfer set, or both (TA-4)."""

import re

import pytest

from pyterrier_cascade import FineTune, Training
from pyterrier_cascade.tanda.baselines import union
from tests.tanda.lists import DEV, TRAIN, TRANSFER


def test_baselines(ranker, trainings):
    """TA-4: on the target, on the transfer set, or on both, whose questions stay apart even where their ids meet."""
    meeting = TRANSFER.assign(qid=TRANSFER["qid"].replace("q1-0", TRAIN["qid"].iloc[0]))
    for on in ("target", "transfer", "union"):
        tuned = FineTune(ranker, on, meeting, rate=1e-5).fit_candidates(TRAIN, DEV)
        assert tuned.history["step"].tolist() == [on]
    (target, settings), (transfer, _), (both, _) = trainings
    assert target.equals(TRAIN) and transfer.equals(meeting) and settings == Training(learning_rate=1e-5, epochs=9)
    assert len(both) == len(TRANSFER) + len(TRAIN) and both["qid"].nunique() == 68
    assert sorted(both["text"]) == sorted([*TRANSFER["text"], *TRAIN["text"]])
    assert list(union(TRANSFER.assign(more=1), TRAIN).columns) == list(TRAIN.columns)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on": "both"}, "on must be one of target, transfer, union, not 'both'"),
        ({"on": "union"}, "on='union' needs a transfer set: give transfer=..."),
        ({"on": "transfer"}, "on='transfer' needs a transfer set: give transfer=..."),
        ({"rate": -1}, "learning_rate must be a number above 0, not -1"),
        ({"epochs": 0}, "epochs must be a whole number and at least 1, not 0"),
    ],
)
def test_baselines_that_cannot_be(ranker, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        FineTune(ranker, **settings)
