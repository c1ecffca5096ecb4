import pandas as pd

from pyterrier_cascade.store.strings import Strings, column


def test_strings_survive_packing_whatever_they_hold(tmp_path):
    strings = ["", "a\ud800", "東京\x00", "", "é\r\n", ""]
    Strings.pack(strings).save(tmp_path, "texts")
    for packed in (Strings.pack(strings), Strings.open(tmp_path, "texts")):
        assert len(packed) == 6
        assert packed.take([4, 1, 1, 0, 5, 2, 3]).tolist() == [strings[i] for i in (4, 1, 1, 0, 5, 2, 3)]


def test_saved_strings_are_mapped_and_not_read(tmp_path):
    Strings.pack(["one", "two"]).save(tmp_path, "names")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["names.bytes.npy", "names.ends.npy"]
    assert type(Strings.open(tmp_path, "names").blob).__name__ == "memmap"


def test_equal_positions_give_one_object():
    taken = Strings.pack(["a long text", "b"]).take([0, 1, 0])
    assert taken[0] is taken[2] and taken.tolist() == ["a long text", "b", "a long text"]


def test_a_column_of_strings_that_pandas_cannot_hold_is_of_objects():
    assert column(["a", "é"]).dtype == pd.Series(["a"], dtype="str").dtype
    assert column(["a", "\ud800"]).tolist() == ["a", "\ud800"]
