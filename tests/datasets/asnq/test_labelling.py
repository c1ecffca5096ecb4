import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_cascade.datasets.asnq import count_labels, label_table
from pyterrier_cascade.datasets.asnq.labelling import ShortAnswers, label, sentence_spans


def cut(text):
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "parts",
    [
        ["One ends.", "Two starts!", "Three?", "4 is a number."],
        ["He said so.", '"Why?" she asked.', "(Nobody knew.)", "Then it was over"],
        ["Mr. J. Smith of the U.S. Army met Dr. No. 5 at St. Mary's Inc. Hall."],
        ["It cost 3.5 million, e.g. in cash... and more."],
        ["the end . ''", "`` Next one . ''", "The last ( really . )", "Done ."],
        ["Élan ends.", "Über starts.", "日本。"],
        ["What?!", "Yes."],
        ["no capital. follows here"],
    ],
)
def test_cases(parts):
    assert cut(" ".join(parts)) == parts
    assert cut("  " + "\n ".join(parts) + " ") == parts


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_nothing(text):
    assert cut(text) == []


@given(st.text(alphabet="aB1 .!?'\")(`\n\u201d\u2028", max_size=60))
def test_only_white_space_is_outside(text):
    spans = list(sentence_spans(text))
    assert spans == sorted(spans)
    outside, last = [], 0
    for start, end in spans:
        assert last <= start < end
        assert text[start:end] == text[start:end].strip()
        outside.append(text[last:start])
        last = end
    assert "".join([*outside, text[last:]]).strip() == ""


@pytest.mark.parametrize(
    ("in_long_answer", "has_short_answer", "expected"),
    [(False, False, 1), (False, True, 2), (True, False, 3), (True, True, 4)],
)
def test_the_four_labels(in_long_answer, has_short_answer, expected):
    """TA-10."""
    assert label(in_long_answer, has_short_answer) == expected


@pytest.mark.parametrize(
    ("answers", "casefold", "text", "expected"),
    [
        (["Paris"], False, "It is Paris.", True),
        (["Paris"], False, "It is paris.", False),
        (["Paris"], True, "It is paris.", True),
        ([" art "], False, "a party", True),
        (["", "  "], False, "anything", False),
    ],
)
def test_short_answers(answers, casefold, text, expected):
    short = ShortAnswers(answers, casefold)
    assert short.within(text) == expected and bool(short) == any(answer.strip() for answer in answers)


def test_counting():
    candidates = pd.DataFrame({"qid": ["a", "a", "b", "b"], "asnq_label": [1, 4, 3, 1]})
    assert count_labels(candidates) == {"questions": 2, "1": 2, "2": 0, "3": 1, "4": 1}


def test_the_published_table():
    """TA-10, TA-11."""
    published = {
        "train": {"1": 19_446_120, "2": 428_122, "3": 442_140, "4": 61_186, "questions": 57_242},
        "dev": {"1": 870_404, "2": 25_814, "3": 29_558, "4": 4_286, "questions": 2_672},
    }
    table = label_table(published)
    assert table.loc["pairs", ["train", "dev"]].tolist() == [20_377_568, 930_062]
    assert table["in long answer"].tolist()[:4] == ["no", "no", "yes", "yes"]
    assert table["has short answer"].tolist()[:4] == ["no", "yes", "no", "yes"]
    assert table["dev"].tolist() == [870_404, 25_814, 29_558, 4_286, 930_062, 2_672]
