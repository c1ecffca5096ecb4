"""Checks of settings that several places need; each error says what was wrong, the value seen and what to do."""

import difflib
import functools
import inspect
import math
import reprlib
import sys
import warnings
from collections.abc import Collection, Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np


def check_choices(**choices: tuple[object, Collection[str]]) -> None:
    """Raises unless each value is among the known ones; ``name=(value, known)``."""
    for name, (value, known) in choices.items():
        if value not in known:
            raise ValueError(
                f"{name} must be one of {', '.join(map(str, known))}, not {shown(value)}{did_you_mean(value, known)}"
            )


def check_names(given: Iterable[str], known: Collection[str], owner: str) -> None:
    """Raises a TypeError for the first name that is not a known setting, with the nearest one.

    Args:
        given: The names that somebody wrote.
        known: The names that exist.
        owner: What has the settings, such as ``"Cascade"``.
    """
    for name in given:
        if name not in known:
            raise TypeError(
                f"{owner} has no setting {shown(name)}{did_you_mean(name, known)}; its settings are {', '.join(known)}"
            )


def did_you_mean(name: object, known: Collection[str]) -> str:
    """Returns ``" (did you mean 'alpha'?)"`` where a known name is close to a given one, else an empty text."""
    near = difflib.get_close_matches(name, list(known), n=1) if isinstance(name, str) else []
    return f" (did you mean {near[0]!r}?)" if near else ""


class KnownSettings:
    """Gives a class errors that name the nearest setting where a keyword of its constructor is misspelt."""

    def __new__(cls, *args: Any, **settings: Any):
        """Returns the new object, or raises for a name that the constructor does not take."""
        check_names(settings, cls.setting_names(), cls.__name__)
        return super().__new__(cls)

    @classmethod
    def setting_names(cls) -> list[str]:
        """Returns the names that the constructor takes."""
        return list(_constructor_arguments(cls))


@functools.cache
def _constructor_arguments(cls: type) -> tuple[str, ...]:
    """Returns the names that a constructor takes; kept, because a sweep makes a policy for each of its settings."""
    return tuple(inspect.signature(cls.__init__).parameters)[1:]


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line of the user's own code, however deep inside this package and PyTerrier the warning arises."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_library(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in ("pyterrier_cascade", "pyterrier", "contextlib")


_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = 80


def shown(value: object) -> str:
    """Returns the ``repr`` of a user's value for a message, without its middle where it is longer than 80 characters.

    Ids, texts and labels may be of any length, and a line of an error must stay readable.
    """
    return _shortened.repr(value)


def is_count(value: object, least: int = 1) -> bool:
    """Returns whether a value is a whole number that is not below the least one; ``True`` is no number."""
    return isinstance(value, Integral) and not isinstance(value, bool) and bool(value >= least)


def is_number(value: object, least: float = -math.inf, most: float = math.inf, above: float = -math.inf) -> bool:
    """Returns whether a value is a finite number within bounds; ``True``, NaN and a text are no numbers.

    Args:
        value: The value.
        least: The least number that it may be.
        most: The greatest number that it may be.
        above: A number that it must exceed.
    """
    number = isinstance(value, Real) and not isinstance(value, bool)
    # A comparison with infinity, because math.isfinite fails for whole numbers that no float can hold.
    return number and bool(-math.inf < value < math.inf and least <= value <= most and value > above)


def check_scores(scores: np.ndarray, name: str, precision: str) -> None:
    """Raises where scores are NaN or infinite; in fp16 they are so where a model needs numbers above 65,504.

    Args:
        scores: The scores, of any shape.
        name: Their name in the error, such as ``"scores after layer 4"``.
        precision: The precision that they were computed in.
    """
    n_broken = int(scores.size - np.isfinite(scores).sum())
    if n_broken:
        reason = "the model's weights are broken (a diverged training?)"
        if precision == "fp16":
            reason = (
                "fp16 holds no number above 65,504, and some models need larger ones: use precision='bf16' or 'fp32'; "
                f"if that changes nothing, {reason}"
            )
        raise ValueError(f"{n_broken} of {scores.size} {name} are NaN or infinite; {reason}")


def listed(names: Sequence[object], noun: str) -> str:
    """Returns the first five of some names for an error, such as ``"docno 'x'"`` or ``"2 docnos ('x', 'y')"``."""
    first = ", ".join(map(shown, names[:5])) + ", ..." * (len(names) > 5)
    return f"{noun} {first}" if len(names) == 1 else f"{len(names)} {noun}s ({first})"
