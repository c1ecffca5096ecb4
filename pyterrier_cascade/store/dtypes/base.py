"""The contract of a dtype: how the store keeps the states of tokens."""

from abc import ABC, abstractmethod

import numpy as np


class StateDtype(ABC):
    """A way to store token states. A state is the stored number times the scale of its token, if there are scales.

    A new dtype is a subclass in a file of its own, and one line in ``store/dtypes/__init__.py``.

    Attributes:
        name: The name that users give, such as ``"fp16"``.
        stored: The type of a stored number.
        has_scales: Whether each token has a scale, a float32.
        largest: The largest absolute value that it can store.
    """

    name: str
    stored: np.dtype
    has_scales: bool = False
    largest: float

    @abstractmethod
    def pack(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns the stored numbers ``(n_tokens, width)`` and the scales ``(n_tokens,)``, None without scales.

        Args:
            states: ``(n_tokens, width)`` in float32.
        """

    @property
    def scale_bytes(self) -> int:
        """The bytes of a token's scale."""
        return 4 if self.has_scales else 0

    def first_misfit(self, states: np.ndarray) -> int | None:
        """Returns the first token that holds a NaN or a number beyond :attr:`largest`; None if there is none.

        Args:
            states: ``(n_tokens, width)``.
        """
        fits = np.abs(states).max(axis=1, initial=0) <= self.largest
        return None if fits.all() else int(np.argmin(fits))


def unpack(stored: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    """Returns the states that stored numbers stand for, in float32 ``(n_tokens, width)``.

    Args:
        stored: ``(n_tokens, width)``.
        scales: ``(n_tokens,)``, or None for a dtype without scales.
    """
    states = stored.astype(np.float32)
    return states if scales is None else states * scales[:, None]
