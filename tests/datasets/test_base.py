import pickle

import pandas as pd
import pyterrier as pt
import pytest
from pandas.testing import assert_frame_equal

from pyterrier_cascade.datasets import Mode, base


def test_unknown_option():
    with pytest.raises(TypeError, match=r"as2:wikiqa/clean/test has no setting 'foldr' \(did you mean 'folder'\?\)"):
        pt.get_dataset("as2:wikiqa/test", foldr="x")


def test_folder_that_does_not_exist():
    with pytest.raises(FileNotFoundError) as err:
        pt.get_dataset("as2:wikiqa/test", folder="no/such/folder")
    assert str(err.value) == "folder 'no/such/folder' does not exist; name the one that has the data files"


def test_dataset_is_a_value(wikiqa_folder):
    dataset = pt.get_dataset("as2:wikiqa/raw/test", folder=wikiqa_folder)
    assert repr(dataset) == f"pt.get_dataset('as2:wikiqa/raw/test', folder={str(wikiqa_folder)!r})"
    assert eval(repr(dataset)) == dataset
    assert dataset != pt.get_dataset("as2:wikiqa/raw/test")
    dataset.get_topics()
    dump = pickle.dumps(dataset)
    assert len(dump) < 500 + len(str(wikiqa_folder))
    assert_frame_equal(pickle.loads(dump).get_topics(), dataset.get_topics())


def test_frames_are_the_callers_own(wikiqa_folder):
    dataset = pt.get_dataset("as2:wikiqa/raw/test", folder=wikiqa_folder)
    for get in (dataset.get_topics, dataset.get_qrels, dataset.get_candidates):
        before = get().copy()
        frame = get()
        frame["qid"] = "changed"
        assert_frame_equal(get(), before)
    next(iter(dataset.get_corpus_iter(verbose=False)))["text"] = "changed"
    assert next(iter(dataset.get_corpus_iter(verbose=False)))["text"] == 'the "first'


def test_topics_take_no_variant(wikiqa_folder):
    dataset = pt.get_dataset("as2:wikiqa/raw/test", folder=wikiqa_folder)
    topics, qrels = dataset.get_topicsqrels()
    assert (len(topics), len(qrels)) == (3, 5)
    with pytest.raises(ValueError) as err:
        dataset.get_qrels("title")
    assert str(err.value) == "variant 'title': the data sets of as2 have no variants; leave it out"


def test_info(wikiqa_folder):
    info = pt.get_dataset("as2:wikiqa/test", folder=wikiqa_folder).get_info()
    del info["notes"]
    assert info == {
        "name": "as2:wikiqa/clean/test",
        "mode": "clean",
        "split": "test",
        "n_questions": 1,
        "n_pairs": 2,
        "n_positive": 1,
        "licence": "Microsoft Research Data License: research only, not to be redistributed",
        "url": "https://www.microsoft.com/en-us/download/details.aspx?id=52419",
    }


def test_corpus_progress_bar(wikiqa_folder, capsys):
    dataset = pt.get_dataset("as2:wikiqa/raw/test", folder=wikiqa_folder)
    assert len(list(dataset.get_corpus_iter(verbose=False))) == len(dataset.get_corpus_iter(verbose=False)) == 5
    assert capsys.readouterr().err == ""
    list(dataset.get_corpus_iter())
    assert "as2:wikiqa/raw/test documents: 100%" in capsys.readouterr().err


def test_mode_of_a_dataset_may_be_given_as_text(wikiqa_folder):
    collection = pt.get_dataset("as2:wikiqa/test", folder=wikiqa_folder).collection
    dataset = base.AnswerSelection(collection, "test", "no_all_minus")
    assert dataset.mode is Mode.NO_ALL_MINUS
    assert isinstance(dataset.get_candidates(), pd.DataFrame)
