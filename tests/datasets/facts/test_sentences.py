import pytest

from pyterrier_cascade.datasets.facts.dice import Dice
from pyterrier_cascade.datasets.facts.sentences import capitalised, fill, with_article


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{E} has {av}.", "The Salt Otter has an oak mast."),
        ("{V} belongs to {e}, not {ax}.", "Oak mast belongs to the Salt Otter, not a tin bell."),
        ("{X} is {s} long.", "Tin bell is 7 metres long."),
        ("[one|one] {e}", "one the Salt Otter"),
    ],
)
def test_slots(template, sentence):
    filled = fill(template, "the Salt Otter", Dice(0), value="oak mast", other="tin bell", metres="7 metres")
    assert filled == sentence


@pytest.mark.parametrize(("text", "expected"), [("the ship", "The ship"), ('"the book"', '"The book"')])
def test_capitals(text, expected):
    assert capitalised(text) == expected


@pytest.mark.parametrize(("noun", "expected"), [("actor", "an actor"), ("judge", "a judge")])
def test_articles(noun, expected):
    assert with_article(noun) == expected
