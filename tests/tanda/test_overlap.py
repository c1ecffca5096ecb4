"""Test questions in a transfer set."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_cascade import FineTune, Tanda
from pyterrier_cascade.tanda.overlap import common_questions, normalised, refuse_overlap
from tests.tanda.lists import TRANSFER


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What  SHIP 3?", "what ship 3"),
        ("  who's\tthere ", "who s there"),
        ("Straße?", "strasse"),
        ("?!", ""),
        ("", ""),
    ],
)
def test_spelling_does_not_count(question, expected):
    assert normalised(question) == expected


def test_common_questions_have_the_spelling_of_the_test():
    transfer = pd.DataFrame({"query": ["what ship", "who", "What ship?", "when"]})
    test = pd.DataFrame({"query": ["What Ship", "when", "why"]})
    assert common_questions(transfer, test) == {
        "what ship": "What Ship", "What ship?": "What Ship", "when": "when",
    }  # fmt: skip


def test_the_error_shows_three_questions():
    test = pd.DataFrame({"query": ["a", "b", "c", "d", "e"]})
    with pytest.raises(ValueError, match=r"the transfer set asks 4 of the 5 test questions: 'a', 'b', 'c', \.\."):
        refuse_overlap(test.iloc[:4], test)
    refuse_overlap(pd.DataFrame({"query": ["f"]}), test)


def test_a_transfer_set_that_gives_the_test_away(ranker):
    test = pd.DataFrame({"query": ["What  SHIP 3?", "what town 3", "who"]})
    asked = TRANSFER["query"].unique()
    n = len({"what ship 3", "what town 3"} & set(asked))
    assert n == 1
    with pytest.raises(ValueError, match=r"the transfer set asks 1 of the 3 test questions: '[Ww]hat"):
        Tanda(ranker, TRANSFER, test=test)
    for on in ("transfer", "union"):
        with pytest.raises(ValueError, match="the transfer set asks 1 of the 3 test questions"):
            FineTune(ranker, on, TRANSFER, test=test)
        FineTune(ranker, on, TRANSFER, test=test, allow_overlap=True)
    Tanda(ranker, TRANSFER, test=test, allow_overlap=True)
    facts = pt.get_dataset("as2:facts/test")
    asked = TRANSFER.assign(query=facts.get_topics()["query"].iloc[0])
    with pytest.raises(ValueError, match="the transfer set asks 1 of the"):
        Tanda(ranker, asked, test=facts)
    with pytest.raises(pt.validate.InputValidationError, match="query"):
        Tanda(ranker, TRANSFER, test=test.rename(columns={"query": "question"}))
