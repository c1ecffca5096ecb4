"""Text files: UTF-8, gzipped or not, ended by line feeds; every error names the place."""

import gzip
import io
import sys

import pandas as pd
import pytest

from pyterrier_cascade import text_files

CONTENT = "\ufeffone\u2028still\r\ntwo\x0b\n\n\tlast"
LINES = [(1, "one\u2028still"), (2, "two\x0b"), (3, ""), (4, "\tlast")]


def written(path, content):
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["plain", "zipped.gz", "zipped under a plain name"])
def test_lines_end_at_line_feeds_only(tmp_path, name):
    path = written(tmp_path / name, gzip.compress(CONTENT.encode()) if name.startswith("zipped u") else CONTENT)
    assert list(text_files.numbered_lines(path)) == [(f"{path}, line {number}", line) for number, line in LINES]
    assert [line for _, line in text_files.filled_lines(str(path))] == [line for _, line in LINES if line]


@pytest.mark.parametrize("name", ["empty", "empty.gz"])
def test_an_empty_file_has_no_lines(tmp_path, name):
    (tmp_path / name).touch()
    assert list(text_files.numbered_lines(tmp_path / name)) == []


@pytest.mark.parametrize("zipped", [False, True])
def test_standard_input(monkeypatch, zipped):
    content = "one\ntwo é\n".encode()
    raw = io.BufferedReader(io.BytesIO(gzip.compress(content) if zipped else content))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw))
    found = list(text_files.numbered_lines("-"))
    assert found == [("standard input, line 1", "one"), ("standard input, line 2", "two é")]


def test_lines_are_read_one_at_a_time(tmp_path):
    path = written(tmp_path / "half", b"one\n\xff\n")
    lines = text_files.numbered_lines(path)
    assert next(lines) == (f"{path}, line 1", "one")
    with pytest.raises(ValueError, match=r"half, line 2: not UTF-8 text \(invalid start byte at byte 0\)"):
        next(lines)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(gzip.compress(b"one\n" * 5)[:-6], "Compressed file ended before"), (b"one\n", r"Not a gzipped file \(b'on'\)")],
    ids=["cut", "not gzip"],
)
@pytest.mark.parametrize("read", [lambda path: list(text_files.numbered_lines(path)), text_files.read_json])
def test_damaged_gzip_files(tmp_path, content, reason, read):
    path = tmp_path / "bad.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"bad\.gz: damaged.*\({reason}.*; get the file again"):
        read(path)


@pytest.mark.parametrize("name", ["plain.json", "zipped.json.gz"])
def test_json_files(tmp_path, name):
    assert text_files.read_json(written(tmp_path / name, '\ufeff{"a":\n [1, "é"]}')) == {"a": [1, "é"]}


def test_json_files_name_the_line(tmp_path):
    path = written(tmp_path / "cut.json", '{"data": [\n{"title"')
    with pytest.raises(ValueError, match=r"cut\.json, line 2: not JSON \(Expecting ':' delimiter at column 9\); get"):
        text_files.read_json(path)


def test_json_lines():
    assert text_files.parse_json("here", '{"a": 1}') == {"a": 1}
    assert text_files.json_strings("here", '{"text": "t", "docno": "d", "more": 1}', "docno", "text") == ["d", "t"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"docno"', r"here: not JSON \(Expecting ':' delimiter at column 9\)"),
        ('{"docno": 7, "text": "t"}', "here: no string 'docno'; give objects with docno and text"),
        ('{"docno": "d"}', "here: no string 'text'; give objects with docno and text"),
        ("[]", "here: no string 'docno'"),
    ],
)
def test_malformed_json_lines(line, message):
    with pytest.raises(ValueError, match=message):
        text_files.json_strings("here", line, "docno", "text")


def test_columns_of_a_table_are_found_by_name(tmp_path):
    path = written(tmp_path / "table", 'more\ttext\tqid\tscore\n1\t"a\tq\t-1e3\n\n')
    rows = text_files.table_rows(path, {"qid": str, "text": str}, {"score": float, "label": int})
    assert list(rows) == [(f"{path}, line 2", {"qid": "q", "text": '"a', "score": -1000.0})]


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
    path = written(tmp_path / "table", content)
    with pytest.raises(ValueError) as error:
        list(text_files.table_rows(path, {"qid": str, "text": str}, {"score": float}))
    assert str(error.value) == f"{path}{message}"


def test_runs(tmp_path):
    path = written(tmp_path / "run", "q Q0 d 1 2.5 tag\n\nq\tQ0 e 2  -3 tag")
    assert [row for _, row in text_files.run_rows(path)] == [
        {"qid": "q", "docno": "d", "rank": 1, "score": 2.5},
        {"qid": "q", "docno": "e", "rank": 2, "score": -3.0},
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q Q0 d 1 2.0", "5 fields, not the 6 of 'qid Q0 docno rank score tag'"),
        ("q Q0 d one 2.0 t", "rank 'one' is not a whole number"),
        ("q Q0 d 1 high t", "score 'high' is not a number"),
    ],
)
def test_malformed_runs(tmp_path, line, message):
    path = written(tmp_path / "run", f"q\tQ0 a 0  3 t\n{line}\n")
    with pytest.raises(ValueError) as error:
        list(text_files.run_rows(path))
    assert str(error.value) == f"{path}, line 2: {message}"


def test_qrels(tmp_path):
    found = text_files.read_qrels(written(tmp_path / "qrels.gz", "q 0 d 2\nq\t0\te\t-1\n"))
    expected = pd.DataFrame({"qid": ["q", "q"], "docno": ["d", "e"], "label": [2, -1]})
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q 0 d 0.5", "label '0.5' is not a whole number"),
        ("q d 1", "3 fields, not the 4 of 'qid iteration docno label'"),
    ],
)
def test_malformed_qrels(tmp_path, line, message):
    path = written(tmp_path / "qrels", line)
    with pytest.raises(ValueError) as error:
        text_files.read_qrels(path)
    assert str(error.value) == f"{path}, line 1: {message}"
