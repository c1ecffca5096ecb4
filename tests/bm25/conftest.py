"""A small index in memory, and one on disk."""

import pytest

from pyterrier_cascade import BM25
from tests.few_docs import DOCS


@pytest.fixture
def bm25():
    return BM25.from_docs(DOCS)


@pytest.fixture
def saved(tmp_path):
    BM25.from_docs(DOCS).save(tmp_path / "index")
    return BM25(tmp_path / "index")
