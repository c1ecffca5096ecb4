import gzip

import pyterrier as pt
import pytest

from pyterrier_cascade.datasets import files
from pyterrier_cascade.datasets.squad import SHELVES
from pyterrier_cascade.datasets.wikiqa import ZIP
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
    assert SHELVES["dev-v1.1"].locate("dev-v1.1", tmp_path) == tmp_path / name


def test_cut_gzip_file(tmp_path):
    path = tmp_path / "WikiQA-test.tsv.gz"
    path.write_bytes(gzip.compress(TEXT)[:60])
    with pytest.raises(ValueError) as err:
        n_pairs(folder=tmp_path)
    reason = "Compressed file ended before the end-of-stream marker was reached"
    assert str(err.value) == f"{path} is not a whole gzip file ({reason}); get it again"


def test_not_a_gzip_file(tmp_path):
    path = tmp_path / "WikiQA-test.tsv.gz"
    path.write_bytes(TEXT)
    with pytest.raises(ValueError) as err:
        n_pairs(folder=tmp_path)
    assert str(err.value) == f"{path} is not a whole gzip file (Not a gzipped file (b'Qu')); get it again"


def test_not_utf8(tmp_path):
    path = tmp_path / "WikiQA-test.tsv"
    path.write_bytes(b"Que\xff")
    with pytest.raises(ValueError) as err:
        n_pairs(folder=tmp_path)
    assert str(err.value) == f"{path} is not UTF-8 text (invalid start byte at byte 3)"


@pytest.mark.parametrize(
    "data, lines",
    [
        (b"", []),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\xef\xbb\xbfa\nb", ["a", "b"]),
        ("a\u2028b\x85c\rd\n".encode(), ["a\u2028b\x85c\rd"]),
    ],
)
def test_lines_end_with_line_feeds_alone(tmp_path, data, lines):
    (tmp_path / "f").write_bytes(data)
    assert files.read_lines(tmp_path / "f") == lines
