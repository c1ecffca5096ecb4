"""Files and folders that are there whole or not at all."""

import errno
import multiprocessing
import os
import signal
import sys

import pytest

from pyterrier_cascade import BM25
from pyterrier_cascade.store import publish
from pyterrier_cascade.store.publish import publish_file, publishing_file, publishing_folder
from tests.few_docs import DOCS
from tests.store.kills import die_after
from tests.store.made_up import content, in_memory

tmp_path = pytest.fixture(in_memory)
posix = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked and killed the POSIX way")


def fill(folder, text):
    (folder / "deep").mkdir()
    (folder / "a.txt").write_text(text)
    (folder / "deep" / "b.txt").write_text(text)


def files(text):
    return {"a.txt": text.encode(), "deep/b.txt": text.encode()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_at_the_end(tmp_path):
    with publishing_folder(tmp_path / "new" / "folder") as folder:
        fill(folder, "one")
        assert not (tmp_path / "new" / "folder").exists() and folder.parent == tmp_path / "new"
    assert content(tmp_path / "new" / "folder") == files("one") and names(tmp_path / "new") == ["folder"]


def test_an_existing_folder_is_refused_replaced_or_kept(tmp_path):
    with publishing_folder(tmp_path / "folder") as folder:
        fill(folder, "one")
    with (
        pytest.raises(FileExistsError, match="folder' exists; choose another path or pass overwrite=True"),
        publishing_folder(tmp_path / "folder"),
    ):
        raise AssertionError
    with publishing_folder(tmp_path / "folder", keep=True) as folder:
        fill(folder, "two")
    assert content(tmp_path / "folder") == files("one")
    with publishing_folder(tmp_path / "folder", overwrite=True) as folder:
        fill(folder, "three")
    assert content(tmp_path / "folder") == files("three") and names(tmp_path) == ["folder"]


def test_another_process_was_quicker(tmp_path):
    with pytest.raises(FileExistsError, match="exists; choose another path"), publishing_folder(tmp_path / "a") as one:
        fill(one, "slow")
        with publishing_folder(tmp_path / "a") as other:
            fill(other, "quick")
    assert content(tmp_path / "a") == files("quick") and names(tmp_path) == ["a"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_error_leaves_everything_as_it_was(tmp_path, overwrite):
    if overwrite:
        with publishing_folder(tmp_path / "folder") as folder:
            fill(folder, "one")
    before = content(tmp_path)
    with pytest.raises(KeyboardInterrupt), publishing_folder(tmp_path / "folder", overwrite=overwrite) as folder:
        fill(folder, "two")
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="no"), publishing_file(tmp_path / "file") as file:
        file.write_text("half")
        raise ValueError("no")
    assert content(tmp_path) == before


def test_a_file_replaces_the_one_before(tmp_path):
    publish_file(tmp_path / "deep" / "file", b"one")
    with publishing_file(tmp_path / "deep" / "file") as file:
        file.write_bytes(b"two")
        assert (tmp_path / "deep" / "file").read_bytes() == b"one"
    assert content(tmp_path) == {"deep/file": b"two"}


@pytest.mark.parametrize("exchange", [True, False])
def test_without_exchange_the_old_folder_is_put_back(tmp_path, monkeypatch, exchange):
    with publishing_folder(tmp_path / "folder") as folder:
        fill(folder, "one")
    if not exchange:
        monkeypatch.setattr(publish, "_exchanged", lambda one, other: False)
    replace, calls = os.replace, []

    def second_fails(old, new):
        calls.append(new)
        if len(calls) == 2:
            raise OSError(errno.EIO, "no luck")
        replace(old, new)

    monkeypatch.setattr(publish.os, "replace", second_fails)
    try:
        with publishing_folder(tmp_path / "folder", overwrite=True) as folder:
            fill(folder, "two")
    except OSError:
        assert not exchange
    assert content(tmp_path / "folder") == files("two" if exchange and sys.platform == "linux" else "one")
    assert names(tmp_path) == ["folder"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot exchange two folders")
def test_linux_exchanges_two_folders_in_one_step(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert publish._exchanged(tmp_path / "a", tmp_path / "b")
    assert content(tmp_path) == {"a/b": b"", "b/a": b""}
    assert not publish._exchanged(tmp_path / "a", tmp_path / "nowhere")


def dies_at(work, step):
    """Does some work until a folder or file has been made, moved or removed so many times."""
    counted = die_after(step)
    publish._exchanged = counted(publish._exchanged)
    publish.sync = lambda path: None
    work()


def kills(work):
    """Runs some work in processes that are killed one step later each time, and yields after each kill."""
    step, killed = 0, True
    while killed:
        process = multiprocessing.get_context("fork").Process(target=dies_at, args=(work, step))
        process.start()
        process.join()
        killed = process.exitcode == -signal.SIGKILL
        assert killed or process.exitcode == 0
        yield step
        step += 1
    assert step > 4


@posix
@pytest.mark.parametrize("exchange", [True, False])
def test_a_kill_leaves_the_old_folder_or_the_new_one(tmp_path, monkeypatch, exchange):
    def work():
        with publishing_folder(tmp_path / "folder", overwrite=True) as folder:
            fill(folder, "two")

    if not exchange:
        monkeypatch.setattr(publish, "_exchanged", lambda one, other: False)
    for _ in kills(work):
        if exchange:
            assert not (tmp_path / "folder").exists() or content(tmp_path / "folder") in (files("one"), files("two"))
        else:
            publish.sweep(tmp_path, "folder")
        with publishing_folder(tmp_path / "folder", overwrite=True) as folder:
            fill(folder, "one")
        assert names(tmp_path) == ["folder"] and content(tmp_path / "folder") == files("one")


@posix
def test_a_kill_between_two_renames_loses_nothing(tmp_path, monkeypatch):
    """Where folders cannot be exchanged, the next call puts the old one back."""
    monkeypatch.setattr(publish, "_exchanged", lambda one, other: False)
    (tmp_path / ".old-0123456789ab-folder").mkdir()
    fill(tmp_path / ".old-0123456789ab-folder", "one")
    (tmp_path / ".tmp-0123456789ab-folder").mkdir()
    with pytest.raises(FileExistsError), publishing_folder(tmp_path / "folder"):
        raise AssertionError
    assert names(tmp_path) == ["folder"] and content(tmp_path / "folder") == files("one")


@posix
@pytest.mark.parametrize("exchange", [True, False])
def test_a_killed_save_of_an_index_leaves_the_old_one(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(publish, "_exchanged", lambda one, other: False)
    old, new = BM25.from_docs(DOCS), BM25.from_docs(DOCS[:2])
    old.save(tmp_path / "index")
    for _ in kills(lambda: new.save(tmp_path / "index", overwrite=True)):
        assert BM25(tmp_path / "index") in (old, new)
        old.save(tmp_path / "index", overwrite=True)
        assert names(tmp_path) == ["index"]


def test_only_leftovers_of_dead_processes_under_the_same_name_are_removed(tmp_path):
    for name in (".tmp-0123456789ab-folder", ".tmp-0123456789ab-other", ".tmp-mine-folder", ".tmp-folder"):
        (tmp_path / name).mkdir()
    with publishing_folder(tmp_path / "folder") as one:
        publish.sweep(tmp_path)
        assert one.is_dir()
    assert names(tmp_path) == [".tmp-folder", ".tmp-mine-folder", "folder"]


def test_everything_is_on_the_disk_before_the_rename(tmp_path, monkeypatch):
    calls, replace = [], os.replace
    monkeypatch.setattr(publish, "sync", lambda path: calls.append(path.name))
    monkeypatch.setattr(publish.os, "replace", lambda old, new: (calls.append(f"-> {new.name}"), replace(old, new)))
    with publishing_folder(tmp_path / "folder") as folder:
        fill(folder, "one")
    publish_file(tmp_path / "file", b"content")
    assert sorted(calls[:3]) == ["a.txt", "b.txt", "deep"] and calls[3].startswith(".tmp-")
    assert calls[4:6] == ["-> folder", tmp_path.name]
    assert calls[6].startswith(".tmp-") and calls[7:] == ["-> file", tmp_path.name]


def test_sealed_fields(tmp_path):
    publish_file(tmp_path / "fields.json", publish.sealed({"b": 1, "a": [2]}))
    assert publish.read_sealed(tmp_path / "fields.json").items() >= {"a": [2], "b": 1}.items()
    for damaged in (b"", b"{}", b"3", (tmp_path / "fields.json").read_bytes().replace(b"2", b"3")):
        publish_file(tmp_path / "damaged.json", damaged)
        with pytest.raises(ValueError, match=r"damaged.json' is damaged: it is not what was written"):
            publish.read_sealed(tmp_path / "damaged.json")


def test_a_full_disk_is_explained():
    message = "make room, run the same again"
    with pytest.raises(OSError, match=message) as caught, publish.explaining_full_disk(message):
        raise OSError(errno.ENOSPC, "no space")
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="no luck"), publish.explaining_full_disk("make room"):
        raise OSError(errno.EIO, "no luck")
