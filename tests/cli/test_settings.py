"""Settings are read by the types that the code itself declares."""

from collections.abc import Sequence
from dataclasses import fields

import pytest

from pyterrier_cascade import (
    Cascade,
    CascadeTraining,
    CrossEncoder,
    HierarchicalArchitecture,
    HierarchicalRanker,
    SequentialReranker,
    Training,
    registry,
)
from pyterrier_cascade.cli.settings import ELSEWHERE, declared, in_words, make, parsed, value
from pyterrier_cascade.early_exit.policy import Policy


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
    assert in_words(hint) == words


def test_a_cascade_takes_the_settings_of_its_policy():
    known = declared(Cascade.from_pretrained, Cascade)
    assert known["alpha"] == float | Sequence[float] and known["layers"] == Sequence[int] | None
    assert {one.name for one in fields(Policy)} < set(known)
    assert not {"self", "model", "name_or_path", "training", "verbose", "settings", "policy"} & set(known)
    assert set(known) - set(declared(Cascade.from_pretrained, Cascade, skip=ELSEWHERE | {"alpha"})) == {"alpha"}


def test_an_argument_without_an_annotation_has_the_type_of_its_default():
    assert declared(lambda trusted=False: trusted) == {"trusted": bool}


@pytest.mark.parametrize(
    ("owner", "name", "hint"),
    [
        (CrossEncoder.from_pretrained, "trust_remote_code", bool),
        (CascadeTraining, "head_learning_rate", float | None),
        (HierarchicalArchitecture, "k_max", tuple[int | None, int | None]),
        (HierarchicalRanker, "k_max", tuple[int | None, int | None]),
        (SequentialReranker, "counts", Sequence[int] | None),
        (Training, "relevant_from", int),
    ],
)
def test_declared_types(owner, name, hint):
    assert declared(owner)[name] == hint


@pytest.mark.parametrize("one", registry.RERANKERS, ids=lambda one: one.name)
def test_the_settings_of_every_reranker_can_be_written(one):
    """A new reranker needs nothing in cli/: its types are all among those that the command line reads."""
    known = declared(one.cls.from_pretrained, one.cls)
    if one.training is not None:
        known |= declared(one.training_class)
    assert known and all(in_words(hint) for hint in known.values())


def test_settings_of_a_dataclass_are_collected_in_it():
    ranker = make(HierarchicalRanker, {"scheme": "CA", "channels": 4, "k_max": (3, None)}, verbose=True)
    sizes = HierarchicalArchitecture(channels=4, k_max=(3, None))
    assert ranker == HierarchicalRanker("CA", architecture=sizes, verbose=True)
    assert make(HierarchicalRanker, {}) == HierarchicalRanker()
    cascade = make(Cascade, {"model": "there", "plan": (1, 2), "engine": "torch"})
    assert cascade == Cascade("there", plan=(1, 2))


def test_the_last_value_counts():
    known = {"alpha": float, "beta": int}
    assert parsed(["beta=1", "alpha=0.1", "alpha=0.2"], known, "--with") == {"alpha": 0.2, "beta": 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("alpha", "--with alpha: write NAME=VALUE"),
        ("gamma=1", "--with has no 'gamma'"),
        ("gamma=1", "there are alpha, beta"),
        ("alhpa=1", r"--with has no 'alhpa' \(did you mean 'alpha'\?\)"),
        ("beta=1.5", "--with beta=1.5: give a whole number"),
    ],
)
def test_errors_name_what_there_is(given, message):
    with pytest.raises(ValueError, match=message):
        parsed([given], {"alpha": float, "beta": int}, "--with")
