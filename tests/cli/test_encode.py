"""``encode``: it makes the same cache as the DC-BERT's own ``encode``."""

import pytest

from pyterrier_cascade import DCBERT, DocumentCache
from pyterrier_cascade.cli.encode import shards
from tests.cli.lists import CANDIDATES

DOCUMENTS = CANDIDATES[["docno", "text"]].to_dict("records")


def content(folder):
    return {path.name + path.parent.name: path.read_bytes() for path in folder.rglob("tokens.bin")}


def fields(done) -> dict[str, str]:
    assert done.code == 0, done.err
    return dict(line.split("\t") for line in done.lines)


def test_ranges():
    assert shards("0-3,7") == [0, 1, 2, 3, 7] and shards("5") == [5]


def test_a_cache(cli, dcbert, lists, tmp_path):
    settings = ["--with", "document_length=12", "--with", "passages=max", "--shard-size", "7", "--dtype", "int8"]
    argv = ["encode", dcbert, "--docs", lists.jsonl, *settings, "--output", tmp_path / "ours"]
    found = fields(cli(*argv))
    theirs = DCBERT.from_pretrained(dcbert, document_length=12, passages="max").encode(
        DOCUMENTS, tmp_path / "theirs", dtype="int8", shard_size=7
    )
    assert content(tmp_path / "ours") == content(tmp_path / "theirs") and len(content(tmp_path / "ours")) == 5
    assert (found["documents"], found["dtype"], found["complete"]) == ("30", "int8", "yes")
    assert int(found["entries"]) == theirs.n_entries > 30 and int(found["tokens"]) == theirs.n_tokens


def test_it_goes_on_where_it_stood(cli, refused, dcbert, lists, tmp_path):
    argv = ["encode", dcbert, "--docs", lists.docs, "--output", tmp_path / "cache", "--shard-size", "10"]
    found = fields(cli(*argv, "--shards", "0,2"))
    assert (found["documents"], found["complete"], found["missing_shards"]) == ("20", "no", "1")
    assert "is not sound: shard-00001 is missing" in refused(*argv, "--shards", "0,2", "--verify")
    before = content(tmp_path / "cache")
    done = cli(*argv, "--verify")
    assert fields(done)["complete"] == "yes" and "10/10" in done.err and "verifying: 100%" in done.err
    assert before.items() <= content(tmp_path / "cache").items()
    assert "made from another corpus" in refused("encode", dcbert, "--dataset", "as2:facts/dev", *argv[4:])


def test_damage_is_found(refused, dcbert, lists, tmp_path):
    DCBERT.from_pretrained(dcbert).encode(DOCUMENTS, tmp_path / "cache")
    path = tmp_path / "cache" / "shard-00000" / "tokens.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    argv = ["encode", dcbert, "--docs", lists.docs, "--output", tmp_path / "cache", "--verify"]
    assert f"{str(path)!r} is damaged" in refused(*argv)


def test_of_a_bare_encoder_and_a_data_set(cli, encoder, tmp_path, monkeypatch):
    """Late interaction needs no training."""
    from pyterrier_cascade.cli import data

    corpus = type("Own", (), {"get_corpus_iter": lambda self, verbose: iter(DOCUMENTS)})()
    monkeypatch.setattr(data, "dataset", lambda name, folder: corpus)
    found = fields(cli("encode", encoder, "--dataset", "own", "--output", tmp_path / "cache", "--quiet"))
    assert found["documents"] == "30" and found["model"] == encoder
    reranker = DocumentCache(tmp_path / "cache").reranker(interaction="late")
    assert len(reranker(CANDIDATES.drop(columns="text"))) == 30


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["{dcbert}"], "give the documents by either --docs or --dataset"),
        (["{cascade}", "--docs", "{docs}"], "holds a Cascade; give a DC-BERT, or an encoder to make one of"),
        (["{dcbert}", "--docs", "{docs}", "--with", "interaction=late"], "--with has no 'interaction'"),
        (["{dcbert}", "--docs", "{docs}", "--with", "pasages=max"], "(did you mean 'passages'?); there are device"),
        (["{dcbert}", "--docs", "{docs}", "--shard-size", "0"], "shard_size is 0; give a whole number of 1 or more"),
        (["{dcbert}", "--docs", "{docs}", "--dtype", "fp8"], "dtype must be one of fp16, int8, not 'fp8'"),
        (["{dcbert}", "--docs", "nowhere"], "nowhere: No such file or directory"),
    ],
)
def test_errors(refused, cascade, dcbert, lists, tmp_path, argv, message):
    known = {**vars(lists), "cascade": cascade, "dcbert": dcbert}
    found = refused("encode", *(one.format(**known) for one in argv), "--output", tmp_path / "cache")
    assert message in found and not (tmp_path / "cache").exists()
