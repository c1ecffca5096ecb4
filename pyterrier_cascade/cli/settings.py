"""Settings on the command line, ``NAME=VALUE``, read by the types that the code declares."""

import inspect
import os
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from pyterrier_cascade.checks import did_you_mean

TYPES_IN_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    os.PathLike: "a path",
    types.NoneType: "none",
}
ELSEWHERE = frozenset({"self", "name_or_path", "model", "models", "training", "verbose"})
"""Arguments that have a command-line option of their own, or no place on a command line."""


def declared(*owners: Callable, skip: Collection[str] = ELSEWHERE) -> dict[str, Any]:
    """Returns the names of the settings that functions and classes take, with their types.

    Where an argument is a dataclass, its fields are settings among the others: ``architecture:
    HierarchicalArchitecture`` stands for ``channels`` and the rest. The same holds for keywords: a cascade takes
    ``**policy`` and declares ``policy: Policy``, so it has all settings of ``Policy``.

    Args:
        *owners: Functions and methods, or classes, which stand for their constructors.
        skip: Names to leave out.
    """
    found: dict[str, Any] = {}
    for owner in owners:
        for name, hint in _arguments(owner):
            if name not in skip:
                found |= declared(hint, skip=skip) if is_dataclass(hint) else {name: hint}
    return found


def make(cls: type, given: Mapping[str, Any], **more: Any) -> Any:
    """Returns an object of a class, with settings as :func:`declared` names them.

    Args:
        cls: The class.
        given: Settings by their names; those of an argument that is a dataclass are collected in it.
        **more: Further arguments of the constructor.
    """
    given = dict(given)
    for name, hint in _arguments(cls):
        if is_dataclass(hint) and name not in ELSEWHERE:
            own = {one: given.pop(one) for one in declared(hint) if one in given}
            if own:
                more[name] = hint(**own)
    return cls(**given, **more)


def _arguments(owner: Callable) -> Iterator[tuple[str, Any]]:
    """Yields the arguments of a function or a constructor with their types, the keywords of ``**policy`` among them."""
    function = owner.__init__ if inspect.isclass(owner) else owner
    # Only type checkers import Self, which a function may return.
    hints = typing.get_type_hints(function, localns={"Self": Any})
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            if is_dataclass(hint := _attribute_type(owner, name)):
                yield from _arguments(hint)
        else:
            yield name, hints.get(name, type(parameter.default))


def _attribute_type(owner: Callable, name: str) -> Any:
    """Returns the type that a class declares for an attribute; None without a declaration."""
    bases = owner.__mro__ if inspect.isclass(owner) else ()
    return next((found[name] for base in bases if name in (found := inspect.get_annotations(base))), None)


def parsed(given: Sequence[str], known: Mapping[str, Any], option: str) -> dict[str, Any]:
    """Returns settings by their names; where one is given twice, the last value counts.

    Args:
        given: Texts like ``NAME=VALUE``.
        known: The names that exist, with their types.
        option: The name of the command-line option, for errors.
    """
    found = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals:
            raise ValueError(f"{option} {one}: write NAME=VALUE")
        if name not in known:
            raise ValueError(
                f"{option} has no {name!r}{did_you_mean(name, known)}; there are {', '.join(sorted(known))}"
            )
        try:
            found[name] = value(text, known[name])
        except ValueError:
            raise ValueError(f"{option} {one}: give {in_words(known[name])}") from None
    return found


def value(text: str, hint: Any) -> Any:
    """Returns the value of a type that a text stands for; commas separate the members of a sequence.

    Raises:
        ValueError: If the text stands for no value of this type.
    """
    inner = typing.get_args(hint)
    if _is_union(hint):
        # None comes first, because any text is a str.
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


def in_words(hint: Any) -> str:
    """Returns a type in plain words, such as ``"a number or none"``."""
    inner = typing.get_args(hint)
    if _is_union(hint):
        return " or ".join(in_words(one) for one in inner)
    if typing.get_origin(hint) is tuple:
        return " and ".join(in_words(one) for one in inner) + ", with commas between"
    return f"{TYPES_IN_WORDS[inner[0]].removeprefix('a ')}s with commas between" if inner else TYPES_IN_WORDS[hint]


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)
