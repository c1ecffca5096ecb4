"""Questions that a transfer set and a test set have in common."""

import re

import pandas as pd
import pyterrier as pt


def normalised(question: str) -> str:
    """Returns a question in lower case, without punctuation, and with single spaces between its words."""
    return " ".join(re.findall(r"\w+", question.casefold()))


def common_questions(transfer: pd.DataFrame, test: pd.DataFrame) -> dict[str, str]:
    """Returns the questions of a transfer set that the test set asks too, each with the spelling of the test set.

    Args:
        transfer: A frame with ``query``.
        test: A frame with ``query``.
    """
    asked = {normalised(query): query for query in dict.fromkeys(test["query"])}
    found = {query: asked.get(normalised(query)) for query in dict.fromkeys(transfer["query"])}
    return {query: spelling for query, spelling in found.items() if spelling is not None}


def refuse_overlap(transfer: pd.DataFrame, test) -> None:
    """Raises a ValueError if the transfer set asks questions of the test set, because training would see the answers.

    Args:
        transfer: A frame with ``query``.
        test: A frame with ``query``, or a dataset with ``get_topics``.
    """
    test = test.get_topics() if hasattr(test, "get_topics") else test
    pt.validate.columns(test, includes=["query"])
    common = sorted(set(common_questions(transfer, test).values()))
    if common:
        n_asked = test["query"].map(normalised).nunique()
        shown = ", ".join(map(repr, common[:3])) + (", ..." if len(common) > 3 else "")
        raise ValueError(
            f"the transfer set asks {len(common)} of the {n_asked} test questions: {shown}; "
            "take them out, or allow it with allow_overlap=True"
        )
