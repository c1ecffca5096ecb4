import pytest

from pyterrier_cascade.datasets.asnq.questions import Question, read_official, to_split
from tests.datasets.asnq.asnq_files import write_lines


def test_official_file_is_streamed(tmp_path):
    path = write_lines(tmp_path / "train.tsv", ["q\ta\t4", "r\tb\t1", "s\tc\tbad"])
    first = next(read_official(path))
    assert (first.qid, first.texts, first.labels) == ("train-00001", ["a"], [4])
    with pytest.raises(ValueError, match="line 3: label 'bad'"):
        list(read_official(path))


def test_a_question_with_some_of_its_candidates():
    question = Question("q", "who", "article", ["a", "b", "c"], ["A", "B", "C"], [4, 1, 3])
    assert question.take([0, 2]) == Question("q", "who", "article", ["a", "c"], ["A", "C"], [4, 3])


def test_only_label_4_is_correct():
    """TA-10."""
    split = to_split([Question("q", "who", "q", ["a", "b", "c", "d"], list("ABCD"), [1, 2, 3, 4])])
    assert split.pairs["label"].tolist() == [0, 0, 0, 1] and split.pairs["asnq_label"].tolist() == [1, 2, 3, 4]
    assert split.topics.values.tolist() == [["q", "who"]]


def test_no_question_gives_empty_frames():
    split = to_split([])
    assert split.pairs.empty and list(split.pairs.columns)[:5] == ["qid", "query", "docno", "text", "label"]
    assert split.topics.empty and list(split.topics.columns) == ["qid", "query"]
