"""Files in and out: UTF-8, gzipped or not; what is malformed is named by file and line."""

import gzip
import io
import sys

import pandas as pd
import pytest

from pyterrier_cascade.cli import candidates, data
from tests.cli.cli_lists import written


def test_lines_end_at_line_feeds_only(tmp_path):
    content = "\ufeffone\r\ntwo\u2028still two\n\n\tfour"
    expected = [(1, "one"), (2, "two\u2028still two"), (4, "\tfour")]
    for name in ("plain", "zipped.gz"):
        path = str(written(tmp_path / name, content))
        assert list(data.lines(path)) == [(f"{path}, line {number}", text) for number, text in expected]
        assert data.n_lines(path) == 3


@pytest.mark.parametrize("zipped", [False, True])
def test_standard_input(monkeypatch, zipped):
    content = "one\ntwo é\n".encode()
    raw = io.BufferedReader(io.BytesIO(gzip.compress(content) if zipped else content))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw))
    found = list(data.lines("-"))
    assert found == [("standard input, line 1", "one"), ("standard input, line 2", "two é")]
    assert data.n_lines("-") is None


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(b"one\n" * 5)[:-6])
    with pytest.raises(ValueError, match=r"cut\.gz: damaged after line \d+ \("):
        list(data.lines(str(path)))
    path = tmp_path / "latin"
    path.write_bytes("one\nÄ\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin, line 2: not UTF-8 text \(.* at byte 0\)"):
        list(data.lines(str(path)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ": the header names no column qid, text; give qid, text, with tabs between"),
        ("qid,text\n", ", line 1: the header names no column qid, text; give qid, text, with tabs between"),
        ("text\tqid\na\tb\nc\n", ", line 3: 1 fields with tabs between, but the header has 2"),
        ("qid\ttext\tscore\na\tb\thigh\n", ", line 2: score 'high' is not a number"),
    ],
)
def test_malformed_tables(tmp_path, content, message):
    path = str(written(tmp_path / "table", content))
    with pytest.raises(ValueError) as error:
        list(data.table(path, {"qid": str, "text": str}, {"score": float}))
    assert str(error.value) == path + message


def test_columns_of_a_table_are_found_by_name(tmp_path):
    path = str(written(tmp_path / "table", 'more\ttext\tqid\tscore\n1\t"a\tq\t-1e3\n'))
    ((place, row),) = data.table(path, {"qid": str, "text": str}, {"score": float, "label": int})
    assert (place, row) == (f"{path}, line 2", {"qid": "q", "text": '"a', "score": -1000.0})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("q Q0 d 1 2.0\n", "5 fields, not the 6 of 'qid Q0 docno rank score tag'"),
        ("q Q0 d one 2.0 t\n", "rank 'one' is not a whole number"),
        ("q Q0 d 1 high t\n", "score 'high' is not a number"),
    ],
)
def test_malformed_runs(tmp_path, content, message):
    path = str(written(tmp_path / "run", "q\tQ0 a 0  3 t\n" + content))
    with pytest.raises(ValueError) as error:
        list(data.run(path))
    assert str(error.value) == f"{path}, line 2: {message}"


def test_labelled_lists(tmp_path):
    path = written(tmp_path / "lists", "qid\tquery\tdocno\tbody\tlabel\tteacher\nq\tw\td\tt\t1\t-2.5\n")
    expected = {"qid": "q", "query": "w", "docno": "d", "body": "t", "label": 1, "teacher": -2.5}
    assert data.labelled(str(path), "body").to_dict("records") == [expected]


def test_qrels(tmp_path):
    found = data.qrels(str(written(tmp_path / "qrels", "q 0 d 2\nq\t0\te\t-1\n")))
    assert found.to_dict("list") == {"qid": ["q", "q"], "docno": ["d", "e"], "label": [2, -1]}
    with pytest.raises(ValueError, match=r"line 1: label '0\.5' is not a whole number"):
        data.qrels(str(written(tmp_path / "qrels", "q 0 d 0.5\n")))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("docs.tsv", "d\ta\tb\n", "line 1: 3 fields with tabs between, not a name and a text"),
        ("docs.tsv", "d\ta\n\tb\n", "line 2: the name is empty"),
        ("docs.tsv", "d\ta\nd\tb\n", "line 2: 'd' is there twice"),
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
        data.write_run(frame.assign(docno="two words"), out, "tag")
