"""The equations of the schemes (HR-20 to HR-28)."""

import re

import pytest
import torch

from pyterrier_cascade.hierarchical.schemes import ABLATIONS, MODELS, Scheme

WIDTHS = {
    ("CA", "point"): {"point": 1500},
    ("CA", "pair"): {"pair": 1500},
    ("CA", "list"): {"list": 1500},
    ("MTL", "point"): {"point": 1500, "pair": 1500, "list": 1500},
    ("MTL", "pair"): {"point": 1500, "pair": 1500, "list": 1500},
    ("MTL", "list"): {"point": 1500, "pair": 1500, "list": 1500},
    ("RI", "point"): {"point": 4500, "pair": 1500, "list": 1500},
    ("RI", "pair"): {"point": 1500, "pair": 4500, "list": 1500},
    ("RI", "list"): {"point": 1500, "pair": 1500, "list": 4500},
    ("PRI", "list"): {"point": 1500, "pair": 3000, "list": 4500},
    ("PRI", "point"): {"list": 1500, "pair": 3000, "point": 4500},
    ("PRI w/o point", "list"): {"pair": 1500, "list": 3000},
    ("PRI w/o pair", "list"): {"point": 1500, "list": 3000},
    ("PRI all list", "list"): {"point": 1500, "pair": 3000, "list": 4500},
}

FEATURES = {
    ("RI", "point"): {"pair": "b", "list": "c", "point": "bca"},
    ("RI", "pair"): {"point": "a", "list": "c", "pair": "acb"},
    ("RI", "list"): {"point": "a", "pair": "b", "list": "abc"},
    ("PRI", "list"): {"point": "a", "pair": "ab", "list": "abc"},
    ("PRI", "point"): {"list": "c", "pair": "cb", "point": "cba"},
    ("PRI w/o point", "list"): {"pair": "b", "list": "bc"},
    ("PRI w/o pair", "list"): {"point": "a", "list": "ac"},
}
"""Equations 11 to 15 and two ablations; a, b and c are the own features of point, pair and list."""


def test_eleven_models_and_three_ablations():
    assert len(MODELS) == 11 and len(ABLATIONS) == 3
    assert {*MODELS, *ABLATIONS} == set(WIDTHS)


@pytest.mark.parametrize(("name", "level"), WIDTHS)
def test_widths(name, level):
    scheme = Scheme.named(name, level)
    assert scheme.widths(1500) == WIDTHS[name, level]
    assert scheme.main == level


@pytest.mark.parametrize(("name", "level"), FEATURES)
def test_equations(name, level):
    own = {
        one: torch.tensor([[float("abc".index(letter))]])
        for one, letter in (("point", "a"), ("pair", "b"), ("list", "c"))
    }
    scheme = Scheme.named(name, level)
    found = scheme.enhanced({one: own[one] for one in scheme.feeds})
    letters = {one: "".join("abc"[int(value)] for value in features[0]) for one, features in found.items()}
    assert letters == FEATURES[name, level]


def test_objectives():
    assert Scheme.named("PRI", "list").objectives == {"point": "point", "pair": "pair", "list": "list"}
    assert set(Scheme.named("PRI all list", "list").objectives.values()) == {"list"}


def test_there_is_no_pri_pair():
    message = "there is no PRI(pair); use one of CA(point), CA(pair), CA(list), MTL(point), "
    with pytest.raises(ValueError, match=re.escape(message)):
        Scheme.named("PRI", "pair")
