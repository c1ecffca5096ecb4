import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyterrier_cascade.datasets.asnq.sentences import sentence_spans


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
