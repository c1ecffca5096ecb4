"""Settings are read by the types that the code itself declares."""

from collections.abc import Sequence

import pytest

from pyterrier_cascade import Cascade, CascadeTraining, CrossEncoder, HierarchicalArchitecture
from pyterrier_cascade.cli.settings import declared, parsed, said, value


@pytest.mark.parametrize(
    ("text", "hint", "expected"),
    [
        ("3e-5", float, 3e-5),
        ("2", float, 2.0),
        ("2", int, 2),
        ("2_000", int | None, 2000),
        ("None", int | None, None),
        ("none", str | None, None),
        ("none", str, "none"),
        ("cuda:0", str | None, "cuda:0"),
        ("a=b", str, "a=b"),
        ("True", bool, True),
        ("false", bool, False),
        ("0.4", float | Sequence[float], 0.4),
        ("0.6,0.4, 0", float | Sequence[float], (0.6, 0.4, 0.0)),
        ("5", Sequence[int] | None, (5,)),
        ("10,none", tuple[int | None, int | None], (10, None)),
    ],
)
def test_values(text, hint, expected):
    found = value(text, hint)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "hint", "words"),
    [
        ("2.5", int, "a whole number"),
        ("x", float | None, "a number or none"),
        ("1", bool, "true or false"),
        ("0.4,x", float | Sequence[float], "a number or numbers with commas between"),
        ("4,5.5", Sequence[int] | None, "whole numbers with commas between or none"),
        ("3", tuple[int | None, int], "a whole number or none and a whole number, with commas between"),
    ],
)
def test_what_is_no_value(text, hint, words):
    with pytest.raises(ValueError):
        value(text, hint)
    assert said(hint) == words


def test_what_is_declared():
    known = declared(Cascade.from_pretrained, Cascade)
    assert known["alpha"] == float | Sequence[float] and known["layers"] == Sequence[int] | None
    assert not {"self", "model", "name_or_path", "training", "verbose", "settings"} & set(known)
    # Without an annotation, as its default.
    assert declared(CrossEncoder.from_pretrained)["trust_remote_code"] is bool
    assert declared(CascadeTraining)["head_learning_rate"] == float | None
    assert declared(HierarchicalArchitecture)["k_max"] == tuple[int | None, int | None]


def test_errors_name_what_there_is():
    known = {"alpha": float, "beta": int}
    assert parsed(["beta=1", "alpha=0.1", "alpha=0.2"], known, "--with") == {"alpha": 0.2, "beta": 1}
    for given, message in (
        ("alpha", "--with alpha: write NAME=VALUE"),
        ("gamma=1", "--with has no 'gamma'; there are alpha, beta"),
        ("beta=1.5", "--with beta=1.5: give a whole number"),
    ):
        with pytest.raises(ValueError) as error:
            parsed([given], known, "--with")
        assert str(error.value) == message
