"""Choosing among the negatives of ASNQ: fewer of them for a small machine, or only some kinds (TA-24)."""

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade.datasets.asnq.page import ANSWER, LABELS, NEGATIVES
from pyterrier_cascade.datasets.asnq.split import priority

Negatives = tuple[tuple[int, int | None], ...]
Wanted = Iterable[int] | Mapping[int, int | None] | Negatives


def select_negatives(candidates: pd.DataFrame, negatives: Wanted, seed: int = 0) -> pd.DataFrame:
    """Returns the answers and the wanted negatives, in their order.

    For each question and label, a sample depends on the seed and on the candidates alone, not on the order of the
    rows or the other questions; a larger sample with the same seed contains a smaller one.

    Args:
        candidates: A frame with ``qid``, ``docno`` and ``asnq_label``.
        negatives: Labels to keep entirely, as in ``(2, 3)``; or how many of each for a question, None for all, as in
            ``{1: 10, 2: 5, 3: None}``. What is not named is left out.
        seed: Which ones.

    Raises:
        ValueError: If ``negatives`` names another label, or no proper number, or the frame has another label.
    """
    wanted = checked_negatives(negatives)
    pt.validate.columns(candidates, includes=["qid", "docno", "asnq_label"])
    if strange := sorted(map(repr, set(candidates["asnq_label"].unique().tolist()) - set(LABELS))):
        raise ValueError(f"asnq_label must be 1, 2, 3 or 4, but there are also {', '.join(strange[:5])}")
    docnos, labels = candidates["docno"].to_numpy(), candidates["asnq_label"].to_numpy()
    positions = [
        rows[chosen(qid, docnos[rows], labels[rows], wanted, seed)]
        for qid, rows in candidates.groupby("qid", sort=False).indices.items()
    ]
    return candidates.iloc[np.sort(np.concatenate(positions))] if positions else candidates.copy()


def chosen(qid: str, docnos: Sequence[str], labels: Sequence[int], negatives: Negatives, seed: int) -> list[int]:
    """Returns the positions of a question's answers and wanted negatives, in their order."""
    limits = {ANSWER: None, **dict(negatives)}
    positions = []
    for label, limit in limits.items():
        of_label = [position for position, other in enumerate(labels) if other == label]
        if limit is not None and limit < len(of_label):
            of_label = nsmallest(limit, of_label, key=lambda position: priority(seed, qid, docnos[position]))
        positions += of_label
    return sorted(positions)


def checked_negatives(negatives: Wanted) -> Negatives:
    """Returns the wanted negatives as pairs of label and limit, in the order of the labels.

    Raises:
        ValueError: If a label is not 1, 2 or 3, is named twice, or has no positive limit.
    """
    items = negatives.items() if isinstance(negatives, Mapping) else negatives
    pairs = [tuple(item) if isinstance(item, tuple | list) else (item, None) for item in items]
    for pair in pairs:
        if len(pair) != 2 or not _is_count(pair[0]) or pair[0] not in NEGATIVES:
            raise ValueError(f"negatives={negatives!r}: {pair[0]!r} is not one of the labels 1, 2, 3 of wrong answers")
        if pair[1] is not None and not (_is_count(pair[1]) and pair[1] > 0):
            raise ValueError(f"negatives={negatives!r}: {pair[1]!r} is neither a positive number nor None for all")
    if len({label for label, _ in pairs}) < len(pairs):
        raise ValueError(f"negatives={negatives!r}: a label is named twice")
    return tuple(sorted((int(label), None if limit is None else int(limit)) for label, limit in pairs))


def _is_count(value) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
