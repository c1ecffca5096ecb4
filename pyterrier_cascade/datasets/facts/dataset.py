"""``as2:facts``: questions about an invented world, generated from a seed."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import pandas as pd

from pyterrier_cascade.datasets.collection import LabelledCollection, Split
from pyterrier_cascade.datasets.modes import Mode


@dataclass(frozen=True)
class GeneratedFacts(LabelledCollection):
    """Invented facts: the same seed gives the same data everywhere, and nothing is downloaded.

    Labels are 0 and 1. Candidates have one column more than those of other data sets: ``relation``, the kind of fact
    that the question asks for.

    Args:
        seed: The seed of the generator; without it that of the data set that everyone uses.
    """

    seed: int | None = None

    name = "facts"
    licence = "MIT, as this package"
    notes = "generated; all people, places and things are invented"
    default_modes: ClassVar = {"train": Mode.RAW, "dev": Mode.RAW, "test": Mode.RAW}

    def split(self, name: str) -> Split:
        """Returns one split."""
        pairs = self._generated().pairs[name]
        return Split(pairs[["qid", "query"]].drop_duplicates("qid", ignore_index=True), pairs)

    def documents(self) -> pd.DataFrame:
        """Returns all sentences."""
        return _documents(self)

    def _generated(self):
        # Imported here because the word lists are long and the other data sets do without them.
        from pyterrier_cascade.datasets.facts import generator

        return generator.generate(generator.DEFAULT_SEED if self.seed is None else self.seed)


@lru_cache(maxsize=2)
def _documents(collection: GeneratedFacts) -> pd.DataFrame:
    return collection._generated().corpus.set_index("docno")[["text"]]
