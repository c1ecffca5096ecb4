"""Whole numbers from -127 to 127 with a scale for each token: half the disk of fp16."""

import numpy as np

from pyterrier_cascade.store.dtypes.base import StateDtype

LEVELS = 127


class Int8(StateDtype):
    """Stores states in int8. The scale of a token is its largest absolute value over 127.

    So no stored state is further from the original than half a scale.
    """

    name, stored, has_scales, largest = "int8", np.dtype("i1"), True, float(np.finfo(np.float32).max)

    def pack(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the levels ``(n_tokens, width)`` and the scales ``(n_tokens,)``."""
        scales = (np.abs(states).max(axis=1, initial=0) / LEVELS).astype("<f4")
        levels = np.divide(states, scales[:, None], out=np.zeros_like(states), where=scales[:, None] > 0)
        return np.rint(levels).clip(-LEVELS, LEVELS).astype(self.stored), scales
