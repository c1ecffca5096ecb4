import pytest

from pyterrier_cascade import BM25
from tests.few_docs import DOCS


@pytest.mark.parametrize(
    ("docs", "error", "message"),
    [
        ([], ValueError, "no documents"),
        ([{"docno": "1", "body": "x"}], KeyError, "document 0 has no 'text', only 'docno', 'body'"),
        ([{"text": "x"}], KeyError, "document 0 has no 'docno', only 'text'"),
        ([{"docno": "1", "text": None}], ValueError, r"the text of document 0 is None \(NoneType\)"),
        ([{"docno": 1, "text": "x"}], ValueError, r"the docno of document 0 is 1 \(int\)"),
        ([{"docno": "", "text": "x"}], ValueError, "document 0 has an empty docno"),
        (["a sentence"], ValueError, "document 0 is 'a sentence', not a dictionary"),
        ([{"docno": "1", "text": "a ... the"}], ValueError, "no word in the 1 texts"),
        (DOCS + DOCS[:1], ValueError, "docno 'd1' given to more than one document"),
        (
            [{"docno": c, "text": "word"} for c in "aabbccddeeffg"],
            ValueError,
            r"6 docnos \('a', 'b', 'c', 'd', 'e', ...\) given to more",
        ),
    ],
)
def test_bad_documents(docs, error, message):
    with pytest.raises(error, match=message):
        BM25.from_docs(iter(docs))
