"""Lists of strings as bytes: any text, in any order, from memory or from disk."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_cascade.store.strings import Strings, column

ODD = ["", "plain", "été 漢字 😀", "\ud83d lone", "\x00 zero\n", "", "plain", "x" * 10_000]

# Strings with lone surrogates, which UTF-8 forbids.
TEXTS = st.lists(st.text(st.characters(), max_size=8), max_size=20)


@pytest.fixture(params=["memory", "disk"])
def stored(request, tmp_path):
    """Returns a list of strings, packed, or packed and mapped from disk."""

    def of(strings):
        packed = Strings.pack(strings)
        if request.param == "memory":
            return packed
        packed.save(tmp_path, "list")
        return Strings.open(tmp_path, "list")

    return of


def test_any_text_comes_back(stored):
    strings = stored(ODD)
    assert len(strings) == len(ODD)
    found = strings.take(range(len(ODD)))
    assert found.tolist() == ODD and found.dtype == object


@pytest.mark.parametrize("positions", [[], [3], [7, 0, 3, 3, 0], [5, 4, 3, 2, 1, 0]])
def test_strings_are_taken_in_the_order_that_is_asked_for(stored, positions):
    assert stored(ODD).take(np.array(positions, dtype=np.int64)).tolist() == [ODD[position] for position in positions]


def test_a_string_that_is_taken_twice_is_decoded_once():
    found = Strings.pack(["a long text", "b"]).take([0, 1, 0])
    assert found[0] is found[2]


@pytest.mark.parametrize("strings", [[], [""], ["", ""]])
def test_empty_lists_and_texts(stored, strings):
    packed = stored(strings)
    assert len(packed) == len(strings) and packed.take(range(len(strings))).tolist() == strings


@given(TEXTS, st.randoms())
def test_every_list_comes_back(texts, random):
    positions = [random.randrange(len(texts)) for _ in range(7)] if texts else []
    assert Strings.pack(texts).take(positions).tolist() == [texts[position] for position in positions]


def test_what_is_opened_is_mapped_and_read_only(tmp_path):
    Strings.pack(ODD).save(tmp_path, "docnos")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docnos.bytes.npy", "docnos.ends.npy"]
    opened = Strings.open(tmp_path, "docnos")
    assert isinstance(opened.blob, np.memmap) and isinstance(opened.ends, np.memmap)
    assert not opened.blob.flags.writeable


def test_a_position_outside_is_an_error(stored):
    with pytest.raises(IndexError):
        stored(["a", "b"]).take([2])


@pytest.mark.parametrize("texts", [["a", "b"], []])
def test_a_column_of_texts_is_pandas_own(texts):
    found = column(texts)
    assert found.tolist() == texts and found.dtype == pd.Series(["a"], dtype="str").dtype


def test_a_column_of_texts_that_pandas_cannot_hold_is_of_objects():
    found = column(np.array(["a", "\ud83d"], dtype=object))
    assert found.tolist() == ["a", "\ud83d"]
