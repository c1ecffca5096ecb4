"""Questions that two sets have in common."""

import re

import pandas as pd
import pyterrier as pt


def normal(question: str) -> str:
    """Returns a question without case, punctuation and doubled blanks."""
    return " ".join(re.findall(r"\w+", question.casefold()))


def refuse_overlap(transfer: pd.DataFrame, test) -> None:
    """Raises where a transfer set asks a question of the test set, which it would give away.

    Args:
        transfer: A frame with ``query``.
        test: Likewise, or a dataset with ``get_topics``.
    """
    test = test.get_topics() if hasattr(test, "get_topics") else test
    pt.validate.columns(test, includes=["query"])
    asked = {normal(query): query for query in test["query"].unique()}
    shared = sorted({asked[key] for key in map(normal, transfer["query"].unique()) if key in asked})
    if shared:
        shown = ", ".join(map(repr, shared[:3])) + (", ..." if len(shared) > 3 else "")
        raise ValueError(
            f"the transfer set asks {len(shared)} of the {len(asked)} test questions: {shown}; "
            "take them out, or allow it with allow_overlap=True"
        )
