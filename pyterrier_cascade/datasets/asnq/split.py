"""Halving ASNQ's dev part into dev and test (CT-37)."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pyterrier_cascade.datasets.asnq.lines import numbered_lines

SPLITS = ("train", "dev", "test")


def read_question_lists(folder: str | Path) -> dict[str, frozenset[str]]:
    """Returns the questions of each split from ``unique.train``, ``unique.dev`` and ``unique.test``, plain or gzipped.

    The Cascade Transformer's lists have 57,242, 1,336 and 1,336 questions.

    Raises:
        FileNotFoundError: If one of the three is missing.
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
        FileNotFoundError: If the folder has none.
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
    """Returns a seeded 50/50 split into ``dev`` and ``test``; of an odd number, dev has one more.

    It depends on the set of keys and on the seed alone, not on their order or the machine.
    """
    drawn = draw(keys, seed)
    middle = (len(drawn) + 1) // 2
    return {"dev": frozenset(drawn[:middle]), "test": frozenset(drawn[middle:])}


def draw(keys: Iterable[str], seed: int) -> list[str]:
    """Returns the distinct keys in a random order that is the same for the same seed everywhere."""
    return sorted(set(keys), key=lambda key: (priority(seed, key), key))


def priority(seed: int, *parts: str) -> bytes:
    """Returns a pseudo-random value of a key; the smaller come first.

    A hash and not a generator: it does not change with the order of the keys or when some are added.
    """
    return hashlib.blake2b("\t".join((str(seed), *parts)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
