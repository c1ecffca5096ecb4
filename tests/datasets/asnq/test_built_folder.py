import gzip
import json

import pytest

from pyterrier_cascade.datasets.asnq.built_folder import (
    MANIFEST,
    LabelledQuestion,
    Page,
    describe_shard,
    read_manifest,
    read_shard,
    total_counts,
    write_json,
    write_shard,
)

SHARD = "00000-00000.jsonl.gz"
PAGES = [
    Page("p", "train", ["Ada wrote it.", "a\ud800"], [LabelledQuestion("1", "who", "41")], "Ada"),
    Page("q", "dev", ["It is."], [LabelledQuestion("2", "what", "2"), LabelledQuestion("3", "why", "1")], "Bob"),
]


@pytest.fixture
def folder(tmp_path):
    """A finished folder with one shard of two pages."""
    entry = write_shard(tmp_path / SHARD, PAGES)
    write_json(tmp_path / MANIFEST, {"format": "asnq-like", "version": 3, "shards": [entry]})
    return tmp_path


def test_pages_survive(folder):
    assert list(read_shard(folder / SHARD)) == PAGES


def test_the_manifest_counts_questions_and_labels(folder):
    (entry,) = read_manifest(folder)["shards"]
    assert entry == describe_shard(folder / SHARD)
    assert (entry["name"], entry["bytes"]) == (SHARD, (folder / SHARD).stat().st_size)
    assert entry["counts"] == {"dev": {"1": 1, "2": 1, "questions": 2}, "train": {"1": 1, "4": 1, "questions": 1}}
    assert total_counts([entry["counts"]] * 2)["dev"] == {"1": 2, "2": 2, "questions": 4}


def test_the_same_pages_give_the_same_bytes(folder, tmp_path):
    write_shard(tmp_path / "again.jsonl.gz", iter(PAGES))
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (folder / SHARD).read_bytes()


def test_a_file_that_cannot_be_finished_does_not_appear(tmp_path):
    def pages():
        yield PAGES[0]
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_shard(tmp_path / SHARD, pages())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_manifest_is_not_finished(folder):
    (folder / MANIFEST).unlink()
    with pytest.raises(FileNotFoundError, match=r"manifest\.json, which is written last, is missing; run the"):
        read_manifest(folder)


@pytest.mark.parametrize("content", [b"", None, b"longer"], ids=["shorter", "missing", "longer"])
def test_shards_of_another_size(folder, content):
    size = (folder / SHARD).stat().st_size
    (folder / SHARD).unlink()
    if content is not None:
        (folder / SHARD).write_bytes(content * 100)
    with pytest.raises(ValueError, match=rf"{SHARD}' is missing or not of its {size} bytes; copy the"):
        read_manifest(folder)


def test_a_manifest_of_another_version(folder):
    meta = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**meta, "version": 2}))
    with pytest.raises(ValueError, match=r"has format 'asnq-like', version 2; .* reads format 'asnq-like', version 3"):
        read_manifest(folder)


def test_a_cut_manifest(folder):
    (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"manifest\.json' is damaged: it is not what was written; copy the"):
        read_manifest(folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"41"', '"4', r"line 1: not JSON \("),
        ('"41"', '"432"', r"line 1: not a page of a built folder \(labels are missing"),
        ('"41"', '"51"', r"line 1: not a page of a built folder \(labels are missing or none of 1, 2, 3, 4\)"),
        ('"Ada"]', "7, 8]", r"line 1: not a page of a built folder \(too many values"),
    ],
    ids=["not JSON", "too many labels", "another label", "too many fields"],
)
def test_damaged_lines(folder, old, new, message):
    text = gzip.decompress((folder / SHARD).read_bytes()).decode()
    (folder / SHARD).write_bytes(gzip.compress(text.replace(old, new, 1).encode()))
    with pytest.raises(ValueError, match=message):
        list(read_shard(folder / SHARD))
