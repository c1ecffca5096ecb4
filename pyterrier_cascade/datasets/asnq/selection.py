"""Selecting questions and candidates: halving ASNQ's dev part (CT-37), and sampling its negatives (TA-24)."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade.checks import is_count
from pyterrier_cascade.datasets.asnq.labelling import ANSWER, LABELS, NEGATIVES
from pyterrier_cascade.text_files import numbered_lines

SPLITS = ("train", "dev", "test")
Negatives = tuple[tuple[int, int | None], ...]
NegativesLike = Iterable[int] | Mapping[int, int | None] | Negatives


def read_question_lists(folder: str | Path) -> dict[str, frozenset[str]]:
    """Returns the questions of each split from ``unique.train``, ``unique.dev`` and ``unique.test``, plain or gzipped.

    The Cascade Transformer's lists have 57,242, 1,336 and 1,336 questions.

    Raises:
        FileNotFoundError: If one of the three files is missing.
        ValueError: If a question is in two of them.
    """
    lists = {split: frozenset(line for _, line in numbered_lines(list_path(folder, split))) for split in SPLITS}
    for a, b in (("train", "dev"), ("train", "test"), ("dev", "test")):
        if both := lists[a] & lists[b]:
            raise ValueError(f"{folder}: {min(both)!r} is both in unique.{a} and in unique.{b}; get the lists again")
    return lists


def list_path(folder: str | Path, split: str) -> Path:
    """Returns the file of a split's questions.

    Raises:
        FileNotFoundError: If the folder has no such file.
    """
    folder = Path(folder).expanduser()
    for path in (folder / f"unique.{split}", folder / f"unique.{split}.gz"):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"{folder} has no unique.{split} (or unique.{split}.gz); name the folder of the Cascade Transformer's lists "
        f"(acl2020cascade/data in amazon-science/wqa-cascade-transformers), or none for seeded halves"
    )


def halves(keys: Iterable[str], seed: int) -> dict[str, frozenset[str]]:
    """Returns a seeded 50/50 split into ``dev`` and ``test``; if the number of keys is odd, dev has one more.

    The split depends on the set of keys and on the seed alone, not on the order of the keys or on the machine.
    """
    drawn = draw(keys, seed)
    middle = (len(drawn) + 1) // 2
    return {"dev": frozenset(drawn[:middle]), "test": frozenset(drawn[middle:])}


def draw(keys: Iterable[str], seed: int) -> list[str]:
    """Returns the distinct keys in a random order, which is the same on every machine for the same seed."""
    return sorted(set(keys), key=lambda key: (priority(seed, key), key))


def priority(seed: int, *parts: str) -> bytes:
    """Returns a pseudo-random value by which keys are put in order.

    The value is a hash and does not come from a generator, so it stays the same when the keys come in another order or
    when keys are added.
    """
    return hashlib.blake2b("\t".join((str(seed), *parts)).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def select_negatives(candidates: pd.DataFrame, negatives: NegativesLike, seed: int = 0) -> pd.DataFrame:
    """Returns the answers and the wanted negatives, in their order.

    For each question and label, the sample depends on the seed and on the candidates alone, not on the order of the
    rows or on other questions. A larger sample contains the smaller one with the same seed.

    Args:
        candidates: A frame with ``qid``, ``docno`` and ``asnq_label``.
        negatives: The labels to keep entirely, as in ``(2, 3)``; or the number of negatives with each label that a
            question keeps, as in ``{1: 10, 2: 5, 3: None}``, where None keeps all. Negatives with other labels are
            dropped.
        seed: The seed of the sample.

    Raises:
        ValueError: If ``negatives`` names another label than 1, 2 and 3 or a number below 1, or if the frame has a
            label other than 1 to 4.
    """
    limits = checked_negatives(negatives)
    pt.validate.columns(candidates, includes=["qid", "docno", "asnq_label"])
    if strange := sorted(map(repr, set(candidates["asnq_label"].unique().tolist()) - set(LABELS))):
        raise ValueError(f"asnq_label must be 1, 2, 3 or 4, but there are also {', '.join(strange[:5])}")
    docnos, labels = candidates["docno"].to_numpy(), candidates["asnq_label"].to_numpy()
    positions = [
        rows[selected_positions(qid, docnos[rows], labels[rows], limits, seed)]
        for qid, rows in candidates.groupby("qid", sort=False).indices.items()
    ]
    return candidates.iloc[np.sort(np.concatenate(positions))] if positions else candidates.copy()


def selected_positions(
    qid: str, docnos: Sequence[str], labels: Sequence[int], negatives: Negatives, seed: int
) -> list[int]:
    """Returns the positions of a question's answers and wanted negatives, in their order."""
    limits = {ANSWER: None, **dict(negatives)}
    positions = []
    for label, limit in limits.items():
        of_label = [position for position, other in enumerate(labels) if other == label]
        if limit is not None and limit < len(of_label):
            of_label = nsmallest(limit, of_label, key=lambda position: priority(seed, qid, docnos[position]))
        positions += of_label
    return sorted(positions)


def checked_negatives(negatives: NegativesLike) -> Negatives:
    """Returns the wanted negatives as pairs of label and limit, in the order of the labels.

    Raises:
        ValueError: If a label is not 1, 2 or 3 or is named twice, or a limit is not a positive number.
    """
    items = negatives.items() if isinstance(negatives, Mapping) else negatives
    pairs = [tuple(item) if isinstance(item, tuple | list) else (item, None) for item in items]
    for pair in pairs:
        if len(pair) != 2 or not is_count(pair[0]) or pair[0] not in NEGATIVES:
            raise ValueError(f"negatives={negatives!r}: {pair[0]!r} is not one of the labels 1, 2, 3 of wrong answers")
        if pair[1] is not None and not is_count(pair[1]):
            raise ValueError(f"negatives={negatives!r}: {pair[1]!r} is neither a positive number nor None for all")
    if len({label for label, _ in pairs}) < len(pairs):
        raise ValueError(f"negatives={negatives!r}: a label is named twice")
    return tuple(sorted((int(label), None if limit is None else int(limit)) for label, limit in pairs))
