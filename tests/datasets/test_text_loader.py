import pickle

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given
from pandas.testing import assert_frame_equal

from pyterrier_cascade.datasets import SquadFile, TextLoader, WikiQA

TestContract = pt.testing.transformer_test_class(lambda: TextLoader(WikiQA()))
TEXTS = {"D1-0": 'the "first', "D1-1": "second", "D1-2": "third", "D1-3": 'fourth" one\u2028here', "D1-4": "fifth"}


@pytest.fixture
def loader(wikiqa_folder):
    return pt.get_dataset("as2:wikiqa/test", folder=wikiqa_folder).text_loader()


def test_rows_order_index_and_columns_stay(loader):
    rows = pd.DataFrame(
        {"docno": ["D1-4", "D1-0", "D1-4"], "qid": ["2", "1", "1"], "query": "q", "score": [1.0, np.nan, 0.0]},
        index=[7, 7, 3],
    )
    before = rows.copy()
    result = loader.transform(rows)
    assert_frame_equal(rows, before)
    assert_frame_equal(result.drop(columns="text"), before)
    assert result["text"].tolist() == ["fifth", 'the "first', "fifth"]
    assert list(result.columns) == ["docno", "qid", "query", "score", "text"]


@given(st.lists(st.tuples(st.sampled_from(sorted(TEXTS)), st.integers(0, 3)), max_size=12))
def test_any_rows(loader, rows):
    docnos, index = [row[0] for row in rows], [row[1] for row in rows]
    frame = pd.DataFrame({"docno": pd.Series(docnos, dtype=str)}).set_axis(index)
    result = loader.transform(frame)
    assert result["text"].tolist() == [TEXTS[docno] for docno in docnos]
    assert result.index.tolist() == index


def test_a_text_that_is_there_is_replaced(loader):
    result = loader.transform(pd.DataFrame({"text": ["old"], "docno": ["D1-1"]}))
    assert result.to_dict("records") == [{"text": "second", "docno": "D1-1"}]


def test_in_a_pipeline_after_get_text(loader, wikiqa_folder):
    dataset = pt.get_dataset("as2:wikiqa/raw/test", folder=wikiqa_folder)
    assert pt.text.get_text(dataset) == loader
    run = dataset.get_candidates()[["qid", "query", "docno"]].assign(score=1.0, rank=[0, 1, 0, 0, 1])
    pipeline = pt.Transformer.from_df(run) >> pt.text.get_text(dataset) % 1
    expected = ['the "first', "third", 'fourth" one\u2028here']
    for system in (pipeline, pipeline.compile()):
        assert sorted(system(dataset.get_topics())["text"]) == sorted(expected)


def test_the_cutoff_goes_first_when_compiled(loader):
    assert loader.fuse_rank_cutoff(3) == pt.RankCutoff(3) >> loader


def test_empty_frame_reads_nothing():
    result = TextLoader(SquadFile("dev-v1.1")).transform(pd.DataFrame(columns=["qid", "docno", "text"]))
    assert list(result.columns) == ["qid", "docno", "text", "title"] and result.empty


def test_fields(tmp_path, squad_record):
    import json

    (tmp_path / "my.json").write_text(json.dumps(squad_record))
    dataset = pt.get_dataset("as2:squad-open", file=tmp_path / "my.json")
    rows = pd.DataFrame({"docno": ["1-0"]})
    assert dataset.text_loader().transform(rows).values.tolist() == [["1-0", "Ships sail.", "Ships"]]
    assert dataset.text_loader("title").transform(rows).values.tolist() == [["1-0", "Ships"]]
    assert list(dataset.text_loader(["title", "text"]).transform(rows)) == ["docno", "title", "text"]


def test_unknown_field():
    with pytest.raises(ValueError) as err:
        TextLoader(WikiQA(), ["text", "url"])
    assert str(err.value) == "as2:wikiqa has no fields ['url']; choose among ['text'] or '*'"


def test_unknown_docno(loader):
    rows = pd.DataFrame({"docno": ["D1-0", "x", "x", "y"]})
    with pytest.raises(KeyError) as err:
        loader.transform(rows)
    end = "; were these rows retrieved from another corpus?"
    assert err.value.args[0] == f"2 docnos ('x', 'y') not in as2:wikiqa{end}"
    with pytest.raises(KeyError) as err:
        loader.transform(pd.DataFrame({"docno": [1, 2, None, "a", "b", "c"]}))
    assert err.value.args[0].startswith("6 docnos (1, 2, ")
    assert err.value.args[0].endswith(f", 'a', 'b', ...) not in as2:wikiqa{end}")


def test_no_docno(loader):
    with pytest.raises(pt.validate.InputValidationError, match="docno"):
        loader.transform(pd.DataFrame({"qid": ["1"]}))


def test_it_is_a_value(wikiqa_folder):
    train, test = (pt.get_dataset(f"as2:wikiqa/{split}", folder=wikiqa_folder) for split in ("train", "test"))
    loader = test.text_loader()
    assert loader == train.text_loader() and hash(loader) == hash(train.text_loader())
    assert loader != TextLoader(WikiQA())
    assert eval(repr(loader)) == loader
    assert repr(TextLoader(WikiQA())) == "TextLoader(WikiQA(folder=None), ['text'])"


def test_it_pickles_small_after_use(loader, wikiqa_folder):
    rows = pd.DataFrame({"docno": ["D1-1"]})
    loader.transform(rows)
    dump = pickle.dumps(loader)
    assert len(dump) < 400 + len(str(wikiqa_folder))
    copy = pickle.loads(dump)
    assert copy == loader
    assert_frame_equal(copy.transform(rows), loader.transform(rows))


def test_it_draws_offline(loader):
    schematic = pt.schematic.transformer_schematic(loader)
    assert schematic["label"] == "TextLoader" and schematic["help_url"].startswith("https://")
    assert "TextLoader" in pt.schematic.draw(loader)
