import gzip
import hashlib
import os
import re

import pyterrier as pt
import pytest

from pyterrier_cascade.datasets import SquadFile, files
from pyterrier_cascade.datasets.download import DataFile
from pyterrier_cascade.datasets.files import DataFolder
from pyterrier_cascade.datasets.wikiqa import ZIP
from pyterrier_cascade.store.publish import Damaged
from tests.datasets.as2_files import wikiqa_text

TEXT = wikiqa_text(("a", "one", 1), ("a", "two", 0)).encode()


def n_pairs(**options):
    return len(pt.get_dataset("as2:wikiqa/raw/test", **options).get_candidates())


@pytest.mark.parametrize("place", ["WikiQA-test.tsv", "wikiqa/WikiQA-test.tsv"])
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("by", ["argument", "environment"])
def test_where_a_file_may_be(tmp_path, monkeypatch, place, zipped, by):
    path = tmp_path / (place + ".gz" * zipped)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(TEXT) if zipped else TEXT)
    if by == "argument":
        assert n_pairs(folder=tmp_path) == 2
    else:
        monkeypatch.setenv("PTC_DATA", str(tmp_path))
        assert n_pairs() == 2


def test_the_argument_goes_before_the_environment(tmp_path, monkeypatch):
    (tmp_path / "WikiQA-test.tsv").write_bytes(TEXT)
    monkeypatch.setenv("PTC_DATA", "no/such/folder")
    assert n_pairs(folder=tmp_path) == 2


def test_home_folder_is_understood(tmp_path, monkeypatch):
    (tmp_path / "WikiQA-test.tsv").write_bytes(TEXT)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert n_pairs(folder="~") == 2


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_missing_in_a_named_folder(tmp_path, monkeypatch, by):
    """A named folder is final: nothing is downloaded behind the user's back."""
    monkeypatch.setattr(files, "download", None)
    monkeypatch.setenv("PTC_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError) as err:
        n_pairs(**({"folder": tmp_path} if by == "argument" else {}))
    assert str(err.value) == (
        f"WikiQA-test.tsv (or WikiQA-test.tsv.gz) is neither in {tmp_path} nor in {tmp_path / 'wikiqa'}; name the "
        f"folder that has it with folder=... or PTC_DATA, or name none to download it from {ZIP}"
    )


@pytest.mark.parametrize("name", ["dev-v1.1.json", "dev-v1.1.rebuilt.json.gz"])
def test_squad_under_both_names(tmp_path, name):
    (tmp_path / name).touch()
    assert SquadFile.data_folder.locate("dev-v1.1", tmp_path) == tmp_path / name


PLAIN = DataFolder(
    ("some", "some/below"), {"a": DataFile("a.txt", aliases=("b.txt", "old/a.txt"))}, "unpack the archive"
)


@pytest.mark.parametrize("place", ["a.txt", "some/a.txt.gz", "some/below/b.txt", "old/a.txt"])
def test_subfolders_and_other_names(tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert PLAIN.locate("a", str(tmp_path)) == path


@pytest.mark.parametrize(
    ("named", "where"), [(True, r"neither in .* nor in .*/some nor in .*/some/below"), (False, "nowhere, as no folder")]
)
def test_a_file_that_is_not_downloaded(tmp_path, named, where):
    remedy = "; unpack the archive and name the folder with folder=... or PTC_DATA"
    with pytest.raises(FileNotFoundError, match=rf"a\.txt \(or a\.txt\.gz\) is {where}.*{remedy}"):
        PLAIN.locate("a", str(tmp_path) if named else None)


def test_a_folder_that_does_not_exist():
    with pytest.raises(FileNotFoundError, match="folder 'no/such/folder' does not exist; name the one that has the"):
        files.checked_folder("no/such/folder")


def test_a_download_that_was_damaged_since_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "user_cache", lambda *parts: tmp_path.joinpath(*parts))
    monkeypatch.delenv("PTC_DATA", raising=False)
    (tmp_path / "set").mkdir()
    kept = tmp_path / "set" / "a.tsv"
    kept.write_bytes(b"content")
    one = DataFile("a.tsv", "https://nowhere.example/a.tsv", hashlib.sha256(b"content").hexdigest())
    folder = DataFolder(("set",), {"all": one})
    assert folder.locate("all") == kept
    kept.write_bytes(b"cantent")
    os.utime(kept, ns=(1, 1))
    message = f"{str(kept)!r} is damaged: it is not what was downloaded; delete it, and it is downloaded again"
    with pytest.raises(Damaged, match=f"^{re.escape(message)}$"):
        folder.locate("all")
