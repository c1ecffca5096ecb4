"""A tiny DC-BERT and candidates for it."""

import pandas as pd
import pytest

from pyterrier_cascade import DCBERT
from pyterrier_cascade.model import TrainedOn
from tests import tiny
from tests.few_docs import DOCS


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("dcbert") / "bert", layers=3, outputs=None)


@pytest.fixture(scope="module")
def saved(bare, tmp_path_factory):
    """A DC-BERT that counts as trained."""
    folder = tmp_path_factory.mktemp("dcbert") / "trained"
    ranker = DCBERT.from_pretrained(bare, joint_layers=2)
    ranker.model.loaded.mark_trained(TrainedOn(1, 2, 1, "-"))
    ranker.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def dcbert(saved):
    return DCBERT.from_pretrained(saved)


@pytest.fixture
def corpus():
    return [*DOCS, {"docno": "long", "text": "the ship launched in the town " * 8}, {"docno": "empty", "text": ""}]


@pytest.fixture
def candidates(corpus):
    """Two interleaved queries over the corpus."""
    rows = [
        {"qid": qid, "query": query, "docno": document["docno"], "text": document["text"], "score": 1.0}
        for document in corpus
        for qid, query in (("b", "what ship launched"), ("a", "who founded the town"))
    ]
    return pd.DataFrame(rows)
