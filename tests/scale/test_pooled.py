"""A transformer on a pool gives what it gives alone."""

import pickle

import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_cascade import BM25, Cascade, CrossEncoder
from pyterrier_cascade.scale.pooled import Pooled
from tests import tiny
from tests.few_docs import DOCS

pytestmark = pytest.mark.filterwarnings("ignore:the heads of")


class Here:
    """A pool whose only worker is this process."""

    def __init__(self):
        self.blocks = []

    def map(self, work, units):
        for unit in units:
            self.blocks.append(unit)
            yield pickle.loads(pickle.dumps(work))(unit)

    def __repr__(self):
        return "Here()"


def candidates(sizes) -> pd.DataFrame:
    """Questions with so many candidates each, their rows interleaved."""
    rows = [
        {"qid": f"q{number}", "query": f"what ship {number}", "docno": f"d{i}", "text": f"the ship {'x' * i} {number}"}
        for number, size in enumerate(sizes)
        for i in range(size)
    ]
    columns = ["qid", "query", "docno", "text"]
    return pd.DataFrame(rows, columns=columns).sort_values("docno", kind="stable").reset_index(drop=True)


@pytest.fixture(scope="module")
def cascade(tmp_path_factory):
    model = tiny.save(tmp_path_factory.mktemp("tiny") / "bert", layers=3, outputs=None)
    made = Cascade.from_pretrained(model, layers=(1, 2, 3))
    made.save_pretrained(str(tmp_path_factory.mktemp("tiny") / "cascade"))
    return made


@given(sizes=st.lists(st.integers(1, 7), max_size=6), rows=st.integers(1, 20))
@settings(max_examples=25)
def test_blocks_are_ranked_as_the_whole(cascade, sizes, rows):
    frame, pool = candidates(sizes), Here()
    ranker = cascade(alpha=0.4)
    found = Pooled(ranker, pool, rows)(frame)
    pd.testing.assert_frame_equal(found, ranker(frame), rtol=1e-5)
    assert sum(map(len, pool.blocks)) == len(frame)
    assert all(len(block) < rows + 7 for block in pool.blocks)
    # Each query is in one block.
    assert sum(block["qid"].nunique() for block in pool.blocks) == len(sizes)


def test_pipelines_run_on_a_pool_and_in_experiments(cascade):
    bm25 = BM25.from_docs(DOCS)
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["town founded", "ship launched"]})
    reranking = cascade(alpha=0.4) % 3
    pd.testing.assert_frame_equal(
        (bm25 >> Pooled(reranking, Here(), 1))(topics), (bm25 >> reranking)(topics), rtol=1e-5
    )
    stages = cascade[1] % 0.5 >> cascade[3]
    compiled = Pooled(stages, Here()).compile()
    assert compiled.transformer == stages.compile()
    pd.testing.assert_frame_equal((bm25 >> compiled)(topics), (bm25 >> stages)(topics), rtol=1e-5)


def test_it_is_a_value(cascade):
    pool = Here()
    one = Pooled(cascade, pool, 10)
    assert repr(one) == f"Pooled({cascade!r}, Here(), rows_per_block=10)"
    assert repr(Pooled(cascade, pool)) == f"Pooled({cascade!r}, Here())"
    assert one == Pooled(cascade, pool, 10) and hash(one) == hash(Pooled(cascade, pool, 10))
    assert one not in (Pooled(cascade, pool), Pooled(cascade, Here(), 10), Pooled(cascade(alpha=0.5), pool, 10))
    with pytest.raises(ValueError, match=r"^rows_per_block must be at least 1, not 0$"):
        Pooled(cascade, pool, 0)
    assert "Pooled" in pt.schematic.draw(one, outer_class="test")


@pytest.mark.filterwarnings("ignore:.parallel\\(\\) is experimental")
def test_pyterrier_s_own_processes_give_the_same(tmp_path, tiny_bert):
    pytest.importorskip("pyterrier_alpha")
    frame = candidates([3, 5, 2])
    cascade = Cascade.from_pretrained(tiny.save(tmp_path / "bert", layers=3, outputs=None), layers=(1, 3))
    for ranker in (CrossEncoder.from_pretrained(tiny_bert), cascade(alpha=0.4) % 4):
        found = ranker.parallel(2)(frame)
        pd.testing.assert_frame_equal(found.reset_index(drop=True), ranker(frame).reset_index(drop=True), rtol=1e-5)
