"""Seeded random choices."""

import random
from collections.abc import Sequence


class Dice:
    """Seeded choices that are the same on every Python version.

    They use ``Random.random()`` only, because Python promises the same sequence for that method alone.

    Args:
        seed: A whole number.
    """

    def __init__(self, seed: int):
        self._random = random.Random(seed).random

    def below(self, n: int) -> int:
        """Returns a whole number from 0 to n - 1."""
        return int(self._random() * n)

    def between(self, low: int, high: int) -> int:
        """Returns a whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """Returns True with this probability."""
        return self._random() < probability

    def pick(self, items: Sequence):
        """Returns one of the items."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence, n: int) -> list:
        """Returns at most n of the items, in random order."""
        items = list(items)
        n = min(n, len(items))
        for i in range(n):
            j = i + self.below(len(items) - i)
            items[i], items[j] = items[j], items[i]
        return items[:n]

    def shuffle(self, items: Sequence) -> list:
        """Returns the items in random order, as a new list."""
        return self.sample(items, len(items))
