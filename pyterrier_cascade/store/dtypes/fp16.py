"""Half precision: 11 significant bits, exact enough for every score."""

import numpy as np

from pyterrier_cascade.store.dtypes.base import StateDtype


class Fp16(StateDtype):
    """Stores states in float16."""

    name, stored, largest = "fp16", np.dtype("<f2"), 65504.0

    def pack(self, states: np.ndarray) -> tuple[np.ndarray, None]:
        """Returns the states in float16, and no scales."""
        return states.astype(self.stored), None
