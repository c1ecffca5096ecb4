"""``as2:facts``: our own generated questions, behind the same door as the others."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import pandas as pd

from pyterrier_cascade.datasets.collection import LabelledCollection, Split
from pyterrier_cascade.datasets.modes import Mode


@dataclass(frozen=True)
class GeneratedFacts(LabelledCollection):
    """Invented facts, generated from a seed: the same seed gives the same data everywhere.

    Candidates carry one column more than those of other data sets: ``relation``, what the question asks for.

    Args:
        seed: The seed of the generator, without it that of the data set that everyone uses.
    """

    seed: int | None = None

    name = "facts"
    licence = "MIT, as this package"
    notes = "generated; all people, places and things are invented"
    default_modes: ClassVar = {"train": Mode.RAW, "dev": Mode.RAW, "test": Mode.RAW}

    def split(self, name: str) -> Split:
        """Returns one split."""
        pairs = _generate(self.seed).pairs[name]
        return Split(pairs[["qid", "query"]].drop_duplicates("qid", ignore_index=True), pairs)

    def documents(self) -> pd.DataFrame:
        """Returns all sentences."""
        return _documents(self.seed)


def _generate(seed: int | None):
    from pyterrier_cascade.datasets import facts

    return facts.generate(facts.DEFAULT if seed is None else seed)


@lru_cache(maxsize=2)
def _documents(seed: int | None) -> pd.DataFrame:
    return _generate(seed).corpus.set_index("docno")[["text"]]
