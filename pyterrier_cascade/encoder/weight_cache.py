"""A cache of objects that are made from weights for inference."""

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch


class WeightCache:
    """A cache of objects that were made from weights. When the weights change in place, the cache is emptied.

    The cache does not see changes through ``tensor.data``: change weights inside ``torch.no_grad()`` instead.

    Args:
        weights: A function that returns the weights.
    """

    def __init__(self, weights: Callable[[], Iterable[torch.Tensor]]):
        self.weights = weights
        self._made, self._stamp, self._lock = {}, None, threading.RLock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns the object of a key, and makes it if the cache does not have it.

        Args:
            key: The key.
            make: The function that makes the object.
        """
        with self._lock:
            # Every change in place, such as a training step, increases a tensor's version, except a change through
            # .data. Inference tensors have no version.
            stamp = [(w.data_ptr(), None if w.is_inference() else w._version) for w in self.weights()]
            if stamp != self._stamp:
                self._made, self._stamp = {}, stamp
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    def forget(self, which: Callable[[Hashable], bool]) -> None:
        """Drops the objects of some keys.

        Args:
            which: A function of a key that returns whether to drop its object.
        """
        with self._lock:
            self._made = {key: value for key, value in self._made.items() if not which(key)}
