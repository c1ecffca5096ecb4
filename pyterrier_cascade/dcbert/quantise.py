"""Token states as the cache stores them: fp16, or int8 with a scale per token."""

import numpy as np

DTYPES = {"fp16": np.dtype("<f2"), "int8": np.dtype("i1")}
LARGEST = {"fp16": 65504.0, "int8": float(np.finfo(np.float32).max)}
LEVELS = 127


def check_dtype(dtype: str) -> None:
    """Raises unless the cache can store states so."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r}; use 'fp16' or 'int8'")


def unstorable(states: np.ndarray, dtype: str) -> int | None:
    """Returns the first token with a NaN or a number beyond what the dtype holds, if there is one.

    Args:
        states: ``(n_tokens, width)``.
        dtype: ``"fp16"`` or ``"int8"``.
    """
    fits = np.abs(states).max(axis=1, initial=0) <= LARGEST[dtype]
    return None if fits.all() else int(np.argmin(fits))


def quantise(states: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns states as they are stored, and for int8 the scale of each token ``(n_tokens,)``.

    A token's scale is its largest absolute value over 127, so no value is further off than half of it.

    Args:
        states: ``(n_tokens, width)`` in float32.
        dtype: ``"fp16"`` or ``"int8"``.
    """
    if dtype == "fp16":
        return states.astype(DTYPES[dtype]), None
    scales = (np.abs(states).max(axis=1, initial=0) / LEVELS).astype("<f4")
    levels = np.divide(states, scales[:, None], out=np.zeros_like(states), where=scales[:, None] > 0)
    return np.rint(levels).clip(-LEVELS, LEVELS).astype(DTYPES[dtype]), scales


def restore(states: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    """Returns stored states in float32, ``(n_tokens, width)``."""
    states = states.astype(np.float32)
    return states if scales is None else states * scales[:, None]
