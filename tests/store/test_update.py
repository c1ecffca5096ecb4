"""Some files of a folder are replaced in one step, and all others stay."""

import os
import re
import stat
import sys

import pytest

from pyterrier_cascade.store import publish, update
from pyterrier_cascade.store.update import updating_folder
from tests.store.made_up import content, in_memory
from tests.store.test_publish import kills, names, posix

tmp_path = pytest.fixture(in_memory)
STALE = re.compile(r"model-\d\.bin|part-\d")
MINE = {"README": b"mine", ".git/objects/ab": b"git", "part-2/graphs/0.xml": b"graph"}
OLD = {"model-1.bin": b"old", "config": b"old", "part-1/model": b"old", "part-2/model": b"old"}
NEW = {"model-2.bin": b"new", "config": b"new", "part-2/model": b"new"}


def fill(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)


@pytest.fixture
def folder(tmp_path):
    fill(tmp_path / "folder", OLD | MINE)
    return tmp_path / "folder"


def save(folder):
    with updating_folder(folder, STALE) as new:
        assert list(new.iterdir()) == []
        fill(new, NEW)


def in_working_directory(folder, monkeypatch):
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")


WAYS = {
    "exchanged": lambda folder, patch: None,
    "renamed twice": lambda folder, patch: patch.setattr(publish, "_exchanged", lambda one, other: False),
    "copied": lambda folder, patch: patch.setattr(update.os, "link", _refuse),
    "file by file": in_working_directory,
    "beside nothing writable": lambda folder, patch: patch.setattr(update.os, "access", lambda path, mode: False),
}


def _refuse(*args, **options):
    raise OSError("no links here")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_new_files_take_the_place_of_old_ones_and_others_stay(folder, monkeypatch, way):
    way(folder, monkeypatch)
    save(folder)
    assert content(folder) == NEW | MINE and not (folder / "part-1").exists()
    assert [name for name in names(folder.parent) + names(folder) if name.startswith(".") and name != ".git"] == []


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_an_error_leaves_everything_as_it_was(folder, monkeypatch, way):
    way(folder, monkeypatch)
    with pytest.raises(KeyboardInterrupt), updating_folder(folder, STALE) as new:
        fill(new, NEW)
        raise KeyboardInterrupt
    assert content(folder) == OLD | MINE and names(folder.parent) == ["folder"]
    assert [name for name in names(folder) if name.startswith(".")] == [".git"]


def test_a_new_folder(tmp_path):
    save(tmp_path / "deep" / "folder")
    assert content(tmp_path) == {f"deep/folder/{name}": text for name, text in NEW.items()}


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="file is a file; save_pretrained writes a folder"):
        save(tmp_path / "file")
    assert content(tmp_path) == {"file": b"mine"}


@posix
def test_links_rights_and_what_cannot_be_synced_stay(folder, tmp_path):
    """A link to the folder keeps naming it, a link in it stays a link, a new file replaces a link, not its target."""
    (tmp_path / "elsewhere").write_text("theirs")
    (folder / "config").unlink()
    (folder / "config").symlink_to("../elsewhere")
    (folder / "nowhere").symlink_to("../nothing")
    os.mkfifo(folder / "pipe")
    (folder / "README").chmod(0o400)
    folder.chmod(0o2750)
    (tmp_path / "link").symlink_to("folder")
    save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (folder / "config").read_bytes() == b"new"
    assert (tmp_path / "elsewhere").read_text() == "theirs" and os.readlink(folder / "nowhere") == "../nothing"
    assert stat.S_ISFIFO((folder / "pipe").lstat().st_mode)
    assert [stat.S_IMODE((folder / name).stat().st_mode) for name in (".", "README")] == [0o2750, 0o400]


@posix
def test_what_is_open_stays_readable(folder):
    """A file that another process has mapped is replaced and never rewritten."""
    with open(folder / "config", "rb") as file:
        save(folder)
        assert file.read() == b"old" and (folder / "config").read_bytes() == b"new"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot exchange two folders")
def test_a_kill_at_any_step_leaves_the_old_folder_or_the_new_one(folder):
    seen = []
    for _ in kills(lambda: save(folder)):
        seen.append(content(folder))
        assert seen[-1] in (OLD | MINE, NEW | MINE)
        save(folder)
        assert content(folder) == NEW | MINE and names(folder.parent) == ["folder"]
        for name in NEW:
            (folder / name).unlink()
        fill(folder, OLD)
    assert OLD | MINE in seen and NEW | MINE in seen
