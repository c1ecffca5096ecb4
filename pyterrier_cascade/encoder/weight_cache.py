"""What is made from weights for inference, and made anew when they have changed."""

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch


class WeightCache:
    """A store of things that were made from weights, and are made anew when these were changed in place.

    Only changes through ``tensor.data`` go unseen: use ``torch.no_grad()`` instead.

    Args:
        weights: Returns the weights.
    """

    def __init__(self, weights: Callable[[], Iterable[torch.Tensor]]):
        self.weights = weights
        self._made, self._stamp, self._lock = {}, None, threading.RLock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns what was made under a key, or makes it.

        Args:
            key: Its name.
            make: Makes it.
        """
        with self._lock:
            # Every change in place, such as a training step, counts a tensor's version up, but for one through .data.
            stamp = [(w.data_ptr(), None if w.is_inference() else w._version) for w in self.weights()]
            if stamp != self._stamp:
                self._made, self._stamp = {}, stamp
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    def forget(self, which: Callable[[Hashable], bool]) -> None:
        """Drops what was made under some keys.

        Args:
            which: Of a key, whether it is one of these.
        """
        with self._lock:
            self._made = {key: value for key, value in self._made.items() if not which(key)}
