"""Checks of settings that several places need; each error says what was wrong, the value seen and what to do."""

import difflib
from collections.abc import Collection, Iterable
from numbers import Integral


def check_choices(**choices: tuple[object, Collection[str]]) -> None:
    """Raises unless each value is among the known ones; ``name=(value, known)``."""
    for name, (value, known) in choices.items():
        if value not in known:
            raise ValueError(
                f"{name} must be one of {', '.join(map(str, known))}, not {value!r}{did_you_mean(value, known)}"
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
                f"{owner} has no setting {name!r}{did_you_mean(name, known)}; its settings are {', '.join(known)}"
            )


def did_you_mean(name: object, known: Collection[str]) -> str:
    """Returns ``" (did you mean 'alpha'?)"`` where a known name is close to a given one, else an empty text."""
    near = difflib.get_close_matches(name, list(known), n=1) if isinstance(name, str) else []
    return f" (did you mean {near[0]!r}?)" if near else ""


def is_count(value: object, least: int = 1) -> bool:
    """Returns whether a value is a whole number that is not below the least one; ``True`` is no number."""
    return isinstance(value, Integral) and not isinstance(value, bool) and value >= least
