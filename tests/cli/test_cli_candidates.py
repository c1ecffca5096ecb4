"""Candidates come some queries at a time, with their texts, whatever the size of the files."""

import pandas as pd
import pytest

from pyterrier_cascade.cli import candidates
from tests.cli.cli_lists import written


def test_texts_are_found_and_missing_ones_named(tmp_path):
    path = str(
        written(tmp_path / "docs.jsonl", '{"docno": "d", "body": "a\\tb\\u0000\\n"}\n{"docno": "é", "body": ""}\n')
    )
    found = candidates.Texts(path, "body")
    assert found.find(pd.Series(["é", "d", "é"], index=[7, 7, 3]), "documents").tolist() == ["", "a\tb\x00\n", ""]
    with pytest.raises(KeyError) as error:
        found.find(pd.Series(["d", *"123456", "1"]), "documents")
    assert error.value.args[0] == f"6 documents of the run are not in {path}: '1', '2', '3', '4', '5', ..."


def test_blocks_are_whole_queries(monkeypatch):
    monkeypatch.setattr(candidates, "BLOCK", 3)
    read = []

    def rows():
        for number, qid in enumerate("aabbbcd"):
            read.append(qid)
            yield f"file, line {number + 1}", {"qid": qid, "docno": str(number)}

    sizes = []
    for block in candidates.blocks(rows()):
        sizes.append(block["qid"].tolist())
        # No more is read than the first row that is left.
        assert len(read) <= sum(map(len, sizes)) + 1
    assert sizes == [["a", "a", "b", "b", "b"], ["c", "d"]]


def test_a_query_that_comes_again_is_refused():
    rows = [("file, line 1", {"qid": "a"}), ("file, line 2", {"qid": "b"}), ("file, line 3", {"qid": "a"})]
    with pytest.raises(ValueError, match=r"file, line 3: query 'a' comes again .* sort -s -k 1,1"):
        list(candidates.blocks(rows))
