"""How many pairs have which label, as TANDA's table of ASNQ has it (TA-10)."""

from collections.abc import Mapping

import pandas as pd

from pyterrier_cascade.datasets.asnq.page import LABELS

MEANING = {1: ("no", "no"), 2: ("no", "yes"), 3: ("yes", "no"), 4: ("yes", "yes")}


def label_table(counts: Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """Returns the table of TANDA: a row for each label, then all pairs and the questions; a column for each part.

    Args:
        counts: For each part the number of ``questions`` and of pairs with the labels ``"1"`` to ``"4"``.
    """
    rows = [
        [str(label), *MEANING[label], *(counter.get(str(label), 0) for counter in counts.values())] for label in LABELS
    ]
    rows.append(["pairs", "", "", *(sum(counter.get(str(n), 0) for n in LABELS) for counter in counts.values())])
    rows.append(["questions", "", "", *(counter.get("questions", 0) for counter in counts.values())])
    columns = ["label", "in long answer", "has short answer", *counts]
    return pd.DataFrame(rows, columns=columns).set_index("label")


def count_labels(candidates: pd.DataFrame) -> dict[str, int]:
    """Returns the number of ``questions`` and of pairs with each label of a frame with ``asnq_label``."""
    labels = candidates["asnq_label"].value_counts()
    return {"questions": candidates["qid"].nunique(), **{str(label): int(labels.get(label, 0)) for label in LABELS}}


def printed(table: pd.DataFrame) -> str:
    """Returns the table as text, with the thousands set apart."""
    return table.map(lambda value: value if isinstance(value, str) else f"{value:,}").to_string()
