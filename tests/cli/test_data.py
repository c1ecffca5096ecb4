"""Texts, labelled lists, tables and runs."""

import io
import os

import pandas as pd
import pytest

from pyterrier_cascade.cli import candidates, data
from tests.cli.lists import written


def test_lines_are_counted_in_files_only(tmp_path):
    assert data.n_lines(str(written(tmp_path / "lines.gz", "one\n\ntwo"))) == 2
    assert data.n_lines("-") is None and data.n_lines(os.devnull) is None
    with pytest.raises(FileNotFoundError):
        data.n_lines(str(tmp_path / "nowhere"))


def test_labelled_lists(tmp_path):
    path = written(tmp_path / "lists", "qid\tquery\tdocno\tbody\tlabel\tteacher\nq\tw\td\tt\t1\t-2.5\n")
    expected = {"qid": "q", "query": "w", "docno": "d", "body": "t", "label": 1, "teacher": -2.5}
    assert data.labelled(str(path), "body").to_dict("records") == [expected]


def test_labels_may_be_grades(tmp_path):
    path = written(tmp_path / "lists", "qid\tquery\tdocno\ttext\tlabel\nq\tw\td\tt\t3\nq\tw\te\tt\t0\n")
    assert data.labelled(str(path), "text")["label"].tolist() == [3, 0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("docs.tsv", "d\ta\tb\n", "line 1: 3 fields with tabs between; give a name and a text"),
        ("docs.tsv", "d\ta\n\tb\n", "line 2: the name is empty; give every text a name"),
        ("docs.tsv", "d\ta\nd\tb\n", "line 2: 'd' is there twice; leave one of the two out"),
        ("docs.jsonl", '{"docno": "d", "text": "a"}\n{"docno"\n', "line 2: not JSON (Expecting ':' delimiter"),
        ("docs.jsonl", '{"docno": 7, "text": "a"}\n', "line 1: no string 'docno'; give objects with docno and text"),
        ("docs.jsonl", "[]\n", "line 1: no string 'docno'; give objects with docno and text"),
    ],
)
def test_malformed_texts(tmp_path, name, content, message):
    path = str(written(tmp_path / name, content))
    with pytest.raises(ValueError) as error:
        candidates.Texts(path)
    assert str(error.value).startswith(f"{path}, {message}")


def test_tables_and_runs_to_the_last_digit():
    frame = pd.DataFrame({"qid": ["q"], "docno": ["d"], "rank": [0], "score": [0.1 + 0.2]})
    out = io.StringIO()
    data.write_run(frame, out, "tag")
    data.write_table(frame.assign(alpha=[(0.5, 0.0)], none=[None], nan=[float("nan")]), out)
    assert out.getvalue().split("\n") == [
        "q Q0 d 0 0.30000000000000004 tag",
        "qid\tdocno\trank\tscore\talpha\tnone\tnan",
        "q\td\t0\t0.30000000000000004\t0.5,0.0\t\t",
        "",
    ]
    with pytest.raises(ValueError, match="cannot hold qid 'q' with docno 'two words'; use --format tsv"):
        data.check_run_names(frame.assign(docno="two words"))
