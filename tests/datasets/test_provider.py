import pickle
import subprocess
import sys

import pandas as pd
import pyterrier as pt
import pytest
from pandas.testing import assert_frame_equal

from pyterrier_cascade.datasets import AS2Provider, Mode, base, files

NAMES = list(AS2Provider().list_dataset_names())


def forbid(*args, **kwargs):
    raise AssertionError("nothing should be downloaded here")


def test_names():
    assert len(NAMES) == len(set(NAMES)) == 5 * 3 * 4 + 2
    for name in ("facts/test", "wikiqa/test", "wikiqa/no_all_minus/dev", "trecqa/clean/test", "squad-open/dev-v1.1"):
        assert name in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_listing_reads_and_downloads_nothing(monkeypatch, name):
    monkeypatch.setattr(files, "download", forbid)
    monkeypatch.setattr(files.Shelf, "locate", forbid)
    dataset = pt.get_dataset("as2:" + name)
    described = [dataset._describe_component(c) for c in ("topics", "qrels", "corpus", "index")]
    assert described == [True, True, True, None]
    assert (dataset.get_corpus_lang(), dataset.get_topics_lang()) == ("en", "en")
    assert eval(repr(dataset)) == dataset
    assert name.startswith("facts/") or dataset.info_url().startswith("https://")


@pytest.mark.parametrize(
    "name, full",
    [
        ("wikiqa/train", "wikiqa/no_all_minus/train"),
        ("wikiqa/dev", "wikiqa/clean/dev"),
        ("wikiqa/test", "wikiqa/clean/test"),
        ("trecqa/train", "trecqa/raw/train"),
        ("trecqa/dev", "trecqa/clean/dev"),
        ("trecqa/test", "trecqa/clean/test"),
    ],
)
def test_without_a_mode_it_is_the_papers_use(name, full):
    dataset = pt.get_dataset("as2:" + name)
    assert repr(dataset) == f"pt.get_dataset('as2:{full}')"
    assert dataset == pt.get_dataset("as2:" + full)


@pytest.mark.parametrize(
    "name", ["nothing", "wikiqa", "wikiqa/tst", "wikiqa/tidy/test", "wikiqa/clean/test/x", "squad-open/dev", ""]
)
def test_unknown_name(name):
    with pytest.raises(KeyError) as err:
        AS2Provider().get_dataset(name)
    assert err.value.args[0] == (
        f"as2 has no {name!r}; it has <asnq|asnq-like|facts|trecqa|wikiqa>/"
        "[<raw|no_all_minus|clean>/]<train|dev|test>, squad-open/<dev-v1.1|new_wiki_v1.0>, and squad-open with file=..."
    )
    with pytest.raises(KeyError):
        pt.get_dataset("as2:" + name)


def test_folder_that_does_not_exist():
    with pytest.raises(FileNotFoundError) as err:
        pt.get_dataset("as2:wikiqa/test", folder="no/such/folder")
    assert str(err.value) == "folder 'no/such/folder' does not exist; name the one that has the data files"


def test_unknown_option():
    with pytest.raises(TypeError, match="foldr"):
        pt.get_dataset("as2:wikiqa/test", foldr="x")


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


def test_import_is_light():
    code = (
        "import sys, pyterrier_cascade.datasets\n"
        "heavy = {'torch', 'transformers', 'bm25s', 'pyterrier_cascade.datasets.facts'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_facts():
    sizes = {}
    for split in ("train", "dev", "test"):
        dataset = pt.get_dataset(f"as2:facts/{split}")
        candidates = dataset.get_candidates()
        assert list(candidates.columns)[:5] == ["qid", "query", "docno", "text", "label"]
        assert candidates.groupby("qid")["label"].agg(["min", "max"]).eq([0, 1]).all(axis=None)
        texts = dataset.text_loader().transform(candidates[["docno"]])["text"]
        assert texts.tolist() == candidates["text"].tolist()
        sizes[split] = dataset.get_info()["n_questions"]
    assert sizes["train"] > sizes["test"] > sizes["dev"] > 0
    assert repr(dataset) == "pt.get_dataset('as2:facts/raw/test')"
    other = pt.get_dataset("as2:facts/test", seed=1)
    assert repr(other) == "pt.get_dataset('as2:facts/raw/test', seed=1)"
    assert other != dataset and set(other.get_topics()["query"]) != set(dataset.get_topics()["query"])


def test_mode_of_a_dataset_may_be_given_as_text(wikiqa_folder):
    collection = pt.get_dataset("as2:wikiqa/test", folder=wikiqa_folder).collection
    dataset = base.AnswerSelection(collection, "test", "no_all_minus")
    assert dataset.mode is Mode.NO_ALL_MINUS
    assert isinstance(dataset.get_candidates(), pd.DataFrame)
