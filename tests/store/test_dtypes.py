import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pyterrier_cascade.store import dtypes
from pyterrier_cascade.store.dtypes import DTYPES, StateDtype, dtype_of, unpack
from tests.store.made_up import build, corpus, in_memory, right

tmp_path = pytest.fixture(in_memory)

FLOATS = {"min_value": -60000, "max_value": 60000, "width": 32}


@given(arrays.arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 9)), elements=st.floats(**FLOATS)))
def test_rounding(states):
    stored, scales = DTYPES["fp16"].pack(states)
    assert scales is None
    error = np.abs(unpack(stored, None) - states)
    assert (error <= np.maximum(np.abs(states) * 2.0**-11, 2.0**-25)).all()
    stored, scales = DTYPES["int8"].pack(states)
    largest = np.abs(states).max(1, initial=0, keepdims=True)
    restored = unpack(stored, scales)
    assert np.isfinite(restored).all() and stored.dtype == np.int8 and np.abs(stored.astype(int)).max(initial=0) <= 127
    # Below 1e-40 float32 itself has few digits left.
    assert (np.abs(restored - states) <= largest / 254 * 1.001 + 1e-40).all()
    assert (restored[largest[:, 0] == 0] == 0).all()


@pytest.mark.parametrize(
    ("name", "states", "misfit"),
    [
        ("fp16", [[1, 65504], [0, -65504]], None),
        ("fp16", [[1, 2], [0, 65505], [1e9, 0]], 1),
        ("fp16", [[np.nan, 0], [0, 0]], 0),
        ("int8", [[3e38, -3e38]], None),
        ("int8", [[0, 0], [0, np.inf]], 1),
    ],
)
def test_numbers_that_a_dtype_cannot_hold(name, states, misfit):
    assert dtype_of(name).first_misfit(np.array(states, np.float32)) == misfit


def test_an_unknown_dtype():
    with pytest.raises(ValueError, match=r"dtype must be one of fp16, int8, not 'int9' \(did you mean 'int8'\?\)"):
        dtype_of("int9")


class Fp32(StateDtype):
    """A dtype as somebody would add it: one class, and one line in the table."""

    name, stored, largest = "fp32", np.dtype("<f4"), float(np.finfo(np.float32).max)

    def pack(self, states):
        return states, None


def test_a_new_dtype_is_one_class_and_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(dtypes.DTYPES, "fp32", Fp32())
    monkeypatch.setattr("tests.store.made_up.close", lambda found, wanted, dtype: np.array_equal(found, wanted))
    store = build(tmp_path / "store", corpus(7), dtype="fp32")
    assert right(store, corpus(7)) == 7 and store.read(store.documents).states.dtype == np.float32
