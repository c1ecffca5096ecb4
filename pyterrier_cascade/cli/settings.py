"""Settings on the command line, ``NAME=VALUE``, read by the types that the code itself declares."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", types.NoneType: "none"}
ELSEWHERE = frozenset({"self", "name_or_path", "model", "models", "training", "verbose"})
"""What has an option of its own, or no place on a command line."""


def declared(*functions: Callable, skip: frozenset[str] = ELSEWHERE) -> dict[str, Any]:
    """Returns the names of what functions can be given, with their types.

    Args:
        *functions: Functions, methods, or classes for what they are made with.
        skip: Names that are left out.
    """
    found = {}
    for function in functions:
        function = function.__init__ if inspect.isclass(function) else function
        # Only type checkers import Self, which a function may return.
        hints = typing.get_type_hints(function, localns={"Self": Any})
        for name, parameter in inspect.signature(function).parameters.items():
            if name not in skip and parameter.kind is not parameter.VAR_KEYWORD:
                found[name] = hints.get(name, type(parameter.default))
    return found


def parsed(given: Sequence[str], known: Mapping[str, Any], option: str) -> dict[str, Any]:
    """Returns settings by their names; of one that is given twice, the last.

    Args:
        given: ``NAME=VALUE``.
        known: The names that there are, with their types.
        option: What it is called in errors.
    """
    found = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals:
            raise ValueError(f"{option} {one}: write NAME=VALUE")
        if name not in known:
            raise ValueError(f"{option} has no {name!r}; there are {', '.join(sorted(known))}")
        try:
            found[name] = value(text, known[name])
        except ValueError:
            raise ValueError(f"{option} {one}: give {said(known[name])}") from None
    return found


def value(text: str, hint: Any) -> Any:
    """Returns the value of a type that a text stands for; members of a sequence have commas between them.

    Raises:
        ValueError: If it stands for none.
    """
    inner = typing.get_args(hint)
    if _is_union(hint):
        # None first, for any text is a str.
        for one in sorted(inner, key=lambda one: one is not types.NoneType):
            try:
                return value(text, one)
            except ValueError:
                continue
        raise ValueError(text)
    if inner:
        parts = text.split(",")
        of_each = inner if typing.get_origin(hint) is tuple else inner * len(parts)
        return tuple(value(part.strip(), one) for part, one in zip(parts, of_each, strict=True))
    if hint in (bool, types.NoneType):
        words = {"true": True, "false": False} if hint is bool else {"none": None}
        if text.lower() not in words:
            raise ValueError(text)
        return words[text.lower()]
    return hint(text)


def said(hint: Any) -> str:
    """Returns a type in plain words."""
    inner = typing.get_args(hint)
    if _is_union(hint):
        return " or ".join(said(one) for one in inner)
    if typing.get_origin(hint) is tuple:
        return " and ".join(said(one) for one in inner) + ", with commas between"
    return f"{NAMES[inner[0]].removeprefix('a ')}s with commas between" if inner else NAMES[hint]


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)
