"""Which questions of a labelled answer-selection set count (X-1)."""

from enum import Enum

import pandas as pd

from pyterrier_cascade.checks import check_choices


class Mode(str, Enum):
    """The three nested readings of one set of questions, each a subset of the one before.

    ``RAW`` keeps every question, ``NO_ALL_MINUS`` those with a correct candidate, ``CLEAN`` those with a correct and
    a wrong one. A question whose candidates are all correct scores AP = RR = 1 whatever the ranking, so results in
    ``NO_ALL_MINUS`` are never below those in ``CLEAN``: state the mode with every result. In ``RAW`` a question without
    a correct candidate counts as zero, so measure MAP and MRR in one of the other two (X-1).
    """

    RAW = "raw"
    NO_ALL_MINUS = "no_all_minus"
    CLEAN = "clean"

    @classmethod
    def _missing_(cls, value):
        check_choices(mode=(value, [mode.value for mode in cls]))


def keep_questions(pairs: pd.DataFrame, mode: Mode | str) -> pd.DataFrame:
    """Returns the rows of the questions that ``mode`` keeps, in their order.

    Args:
        pairs: A frame with ``qid`` and ``label``; a label above 0 is correct.
        mode: The reading, a :class:`Mode` or its value.
    """
    mode = Mode(mode)
    if mode is Mode.RAW:
        return pairs
    labels = pairs.groupby("qid", sort=False)["label"]
    keep = labels.transform("max") > 0
    if mode is Mode.CLEAN:
        keep &= labels.transform("min") <= 0
    return pairs[keep].reset_index(drop=True)
