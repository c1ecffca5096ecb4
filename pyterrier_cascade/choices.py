"""One check for all settings that are a choice among names."""

from collections.abc import Collection


def check_choices(**choices: tuple[object, Collection[str]]) -> None:
    """Raises unless each value is among those known; ``name=(value, known)``."""
    for name, (value, known) in choices.items():
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")
