"""Files are described by size and checksum, and what is not as described is refused by name."""

import json
import re

import numpy as np
import pytest

from pyterrier_cascade.store import parts, publish
from pyterrier_cascade.store.publish import Damaged

KIND = {"type": "thing", "format": "x", "version": 2}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"abc")
    np.save(tmp_path / "b.npy", np.arange(3))
    return tmp_path


def test_what_is_as_described_is_read(folder):
    files = parts.described(folder)
    assert files["a.bin"] == {"bytes": 3, "sha256": publish.sha256(folder / "a.bin")} and list(files) == [
        "a.bin",
        "b.npy",
    ]
    parts.check(folder, files, "do it again")
    assert parts.array(folder, "b", files, "do it again").tolist() == [0, 1, 2]


def test_what_is_not_is_refused_by_name(folder):
    files = parts.described(folder)
    (folder / "a.bin").write_bytes(b"abd")
    message = f"{str(folder / 'a.bin')!r} is damaged: it is not what was written; do it again"
    with pytest.raises(Damaged, match=f"^{re.escape(message)}$"):
        parts.check(folder, files, "do it again")
    parts.check(folder, files, "do it again", contents=False)
    (folder / "a.bin").write_bytes(b"ab")
    message = f"{str(folder / 'a.bin')!r} is missing or not of its 3 bytes; do it again"
    with pytest.raises(Damaged, match=f"^{re.escape(message)}$"):
        parts.check(folder, files, "do it again", contents=False)
    np.save(folder / "b.npy", np.arange(3) + 1)
    with pytest.raises(Damaged, match=r"b\.npy' is damaged: it is not what was written; do it again"):
        parts.array(folder, "b", files, "do it again")
    with pytest.raises(Damaged, match=r"are not what was written \(KeyError\('c.npy'\)\); do it again"):
        parts.array(folder, "c", files, "do it again")


def test_a_part_is_sound_under_its_own_name(folder, tmp_path):
    assert not parts.is_sound(folder) and not parts.is_sound(tmp_path / "nowhere")
    assert parts.seal_part(folder, folder.name) == publish.read_sealed(folder / "files.json")["sha256"]
    assert parts.is_sound(folder)
    assert not parts.is_sound(folder.rename(tmp_path.parent / f"{tmp_path.name}-other"))
    (tmp_path.parent / f"{tmp_path.name}-other").rename(folder)
    (folder / "a.bin").write_bytes(b"abd")
    assert not parts.is_sound(folder)


@pytest.mark.parametrize("name", ["../a.bin", "/etc/passwd", "..", "", "deep/../../a.bin"])
def test_a_description_names_no_files_elsewhere(folder, tmp_path, name):
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(Damaged, match="is missing or not of its 3 bytes"):
        parts.check(inner, {name: {"bytes": 3, "sha256": publish.sha256(folder / "a.bin")}}, "do it again")


@pytest.mark.parametrize("files", [3, None, [], {"a.bin": 3}, {"a.bin": {}}, {"a.bin": {"bytes": 3}}])
def test_a_forged_description_is_damaged(folder, files):
    with pytest.raises(Damaged, match=r"the metadata in .* are not what was written \(.*\); do it again"):
        parts.check(folder, files, "do it again")


def test_metadata_of_a_kind(folder):
    def written(content):
        (folder / parts.META).write_bytes(content)
        return parts.read_meta(folder, KIND)

    sound = publish.sealed(KIND | {"more": 1})
    assert written(sound)["more"] == 1
    for damaged in (
        b"",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        sound[:-1],
        sound.replace(b"1", b"2"),
        json.dumps(KIND).encode(),
    ):
        with pytest.raises(
            Damaged, match=r"pt_meta.json' is damaged: it is not what was written; copy its folder again"
        ):
            written(damaged)
    for other in (json.dumps(KIND | {"version": 1}).encode(), publish.sealed(KIND | {"version": 1})):
        message = "holds type 'thing', format 'x', version 1; this reads thing, x, version 2"
        with pytest.raises(ValueError, match=message) as caught:
            written(other)
        assert type(caught.value) is ValueError
