"""Traces, indexes and other folders of strangers: reading them runs no code and writes nothing outside them."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyterrier_cascade import BM25, Trace
from pyterrier_cascade.store import parts, publish
from pyterrier_cascade.store.publish import Damaged
from tests.few_docs import DOCS
from tests.standing.written import THINGS
from tests.store.made_up import content

TRACE, INDEX, DATA_SET = (THINGS[name] for name in ("trace", "BM25 index", "data set"))
PLACES = ["../outside.npy", "/etc/hostname", "part-00000/../../outside.npy", "..", "", "\0"]


class Bomb:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def sealed_again(path: Path, change: Callable[[dict], object]) -> str:
    """Changes the fields of a sealed file as its author could, and returns its new seal."""
    fields = json.loads(path.read_bytes())
    change(fields)
    path.write_bytes(publish.sealed(fields))
    return publish.seal(fields)


def with_file(folder: Path, name: str, content: bytes) -> Callable[[dict], object]:
    """Writes a file of a folder, and returns the change of the fields that describes it."""
    (folder / name).write_bytes(content)
    found = parts.described(folder)[name]
    return lambda fields: fields["files"].update({name: found})


def pickled_array(mark: Path) -> bytes:
    array = np.empty(1, object)
    array[0] = Bomb(mark)
    return _npy(array)


def _npy(array: np.ndarray) -> bytes:
    import io

    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


@pytest.fixture
def hostile(tmp_path):
    """The folder of a stranger, and beside it what must stay as it is."""
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "outside.npy").write_bytes(_npy(np.arange(3)))
    return tmp_path / "world" / "stranger"


@pytest.fixture(params=["pickled array", "pickle"])
def bomb(request, tmp_path):
    mark = tmp_path / "the code ran"
    yield pickled_array(mark) if request.param == "pickled array" else pickle.dumps(Bomb(mark))
    assert not mark.exists()


def test_the_bomb_works(tmp_path):
    np.load(_written(tmp_path / "a.npy", pickled_array(tmp_path / "mark")), allow_pickle=True)
    assert (tmp_path / "mark").is_dir()


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["scores.npy", "qids.bytes.npy", "qids.ends.npy", "seen.npy"])
def test_a_pickle_in_a_trace_is_not_loaded(hostile, bomb, name):
    TRACE.write(hostile)
    seals = []
    for part in sorted(hostile.glob("part-*")):
        seals.append(sealed_again(part / "files.json", with_file(part, name, bomb)))
    sealed_again(hostile / "pt_meta.json", lambda fields: fields.update(parts=seals))
    with pytest.raises(ValueError, match=r"is no array of numbers; copy the trace again"):
        TRACE.read(hostile)


@pytest.mark.parametrize("name", ["data.csc", "indptr.csc", "nonoccurrence_array", "docnos.ends"])
def test_a_pickle_in_an_index_is_not_loaded(hostile, bomb, name):
    name = f"{name}.npy" if name.startswith("docnos") else f"{name}.index.npy"
    INDEX.write(hostile)
    sealed_again(hostile / "pt_meta.json", with_file(hostile, name, bomb))
    with pytest.raises(ValueError):
        INDEX.read(hostile)


@pytest.mark.parametrize("place", PLACES)
def test_files_elsewhere_are_not_read(hostile, place):
    outside = {
        "bytes": (hostile.parent / "outside.npy").stat().st_size,
        "sha256": publish.sha256(hostile.parent / "outside.npy"),
    }
    INDEX.write(hostile)
    sealed_again(hostile / "pt_meta.json", lambda fields: fields["files"].update({place: outside}))
    with pytest.raises(Damaged, match="is missing or not of its"):
        INDEX.read(hostile)
    shutil.rmtree(hostile)
    DATA_SET.write(hostile)
    sealed_again(hostile / "manifest.json", lambda fields: fields["shards"][0].update(outside, name=place))
    with pytest.raises(Damaged, match="is missing or not of its"):
        DATA_SET.read(hostile)


FORGED = [3, None, "x", [3], {"a": 3}, -1, 10**30]


@pytest.mark.parametrize("value", FORGED, ids=map(repr, FORGED))
@pytest.mark.parametrize(
    "field",
    [
        "parts",
        "layers",
        "full_layers",
        "layer_size",
        "head_costs",
        "front",
        "files",
        "settings",
        "n_docs",
        "fingerprint",
    ],
)
def test_forged_fields_are_refused_or_without_effect(hostile, field, value):
    """Whatever a stranger seals, nothing outside the folder changes."""
    for thing in (TRACE, INDEX):
        thing.write(hostile)
        sealed_again(hostile / "pt_meta.json", lambda fields: fields.update({field: value}))
        before = content(hostile.parent)
        try:
            thing.read(hostile)
        except Exception as error:
            assert not isinstance(error, (MemoryError, RecursionError))
        assert content(hostile.parent) == before
        shutil.rmtree(hostile)


def test_saving_over_a_stranger_writes_nothing_outside(hostile):
    INDEX.write(hostile)
    sealed_again(hostile / "pt_meta.json", lambda fields: fields["files"].update({"../outside.npy": {"bytes": 152}}))
    (hostile / "link").symlink_to("..")
    before = (hostile.parent / "outside.npy").read_bytes()
    with pytest.raises(FileExistsError, match="is no finished BM25 index; to replace it, delete it first"):
        BM25.from_docs(DOCS).save(hostile, overwrite=True)
    assert (hostile.parent / "outside.npy").read_bytes() == before


def test_a_trace_of_a_stranger_is_copied_into_the_new_place_only(hostile, tmp_path):
    TRACE.write(hostile)
    before = content(hostile.parent)
    Trace(hostile).save(tmp_path / "copy")
    assert content(hostile.parent) == before and Trace(tmp_path / "copy").qids.tolist() == Trace(hostile).qids.tolist()
