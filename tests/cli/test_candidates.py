"""Candidates are read some queries at a time, with their texts."""

import pandas as pd
import pytest

from pyterrier_cascade.cli import candidates
from tests.cli.lists import written


def test_texts_are_found_and_missing_ones_named(tmp_path):
    path = str(
        written(tmp_path / "docs.jsonl", '{"docno": "d", "body": "a\\tb\\u0000\\n"}\n{"docno": "é", "body": ""}\n')
    )
    found = candidates.Texts(path, "body")
    assert found.find(pd.Series(["é", "d", "é"], index=[7, 7, 3]), "documents").tolist() == ["", "a\tb\x00\n", ""]
    with pytest.raises(KeyError, match=r"lacks 6 of the run's documents: '1', '2', '3', '4', '5', \.\.\.; add them"):
        found.find(pd.Series(["d", *"123456", "1"]), "documents")


def test_frames_hold_whole_queries(monkeypatch):
    monkeypatch.setattr(candidates, "ROWS", 3)
    read = []

    def rows():
        for number, qid in enumerate("aabbbcd"):
            read.append(qid)
            yield f"file, line {number + 1}", {"qid": qid, "docno": str(number)}

    sizes = []
    for frame in candidates.whole_queries(rows()):
        sizes.append(frame["qid"].tolist())
        # One row more is read, because it shows that the query before it has ended.
        assert len(read) <= sum(map(len, sizes)) + 1
    assert sizes == [["a", "a", "b", "b", "b"], ["c", "d"]]


def test_a_query_that_comes_again_is_refused():
    rows = [("file, line 1", {"qid": "a"}), ("file, line 2", {"qid": "b"}), ("file, line 3", {"qid": "a"})]
    with pytest.raises(ValueError, match=r"file, line 3: query 'a' comes again .* sort -s -k 1,1"):
        list(candidates.whole_queries(rows))
