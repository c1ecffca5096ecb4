"""Questions that two sets have in common."""

import re

import pandas as pd
import pyterrier as pt


def normal(question: str) -> str:
    """Returns a question without case, punctuation and doubled blanks."""
    return " ".join(re.findall(r"\w+", question.casefold()))


def shared(transfer: pd.DataFrame, test: pd.DataFrame) -> dict[str, str]:
    """Returns the questions of a transfer set that the test asks too, each with the test's spelling.

    Args:
        transfer: A frame with ``query``.
        test: Likewise.
    """
    asked = {normal(query): query for query in dict.fromkeys(test["query"])}
    found = {query: asked.get(normal(query)) for query in dict.fromkeys(transfer["query"])}
    return {query: spelling for query, spelling in found.items() if spelling is not None}


def refuse_overlap(transfer: pd.DataFrame, test) -> None:
    """Raises where a transfer set asks a question of the test set, which it would give away.

    Args:
        transfer: A frame with ``query``.
        test: Likewise, or a dataset with ``get_topics``.
    """
    test = test.get_topics() if hasattr(test, "get_topics") else test
    pt.validate.columns(test, includes=["query"])
    both = sorted(set(shared(transfer, test).values()))
    if both:
        n_asked = test["query"].map(normal).nunique()
        shown = ", ".join(map(repr, both[:3])) + (", ..." if len(both) > 3 else "")
        raise ValueError(
            f"the transfer set asks {len(both)} of the {n_asked} test questions: {shown}; "
            "take them out, or allow it with allow_overlap=True"
        )
