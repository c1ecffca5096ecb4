import subprocess
import sys

import pyterrier as pt
import pytest

from pyterrier_cascade.datasets import AS2Provider, files

NAMES = list(AS2Provider().list_dataset_names())


def forbid(*args, **kwargs):
    raise AssertionError("nothing should be downloaded here")


def test_names():
    assert len(NAMES) == len(set(NAMES)) == 5 * 3 * 4 + 2 + 3
    for name in (
        "facts/test",
        "wikiqa/test",
        "wikiqa/no_all_minus/dev",
        "trecqa/clean/test",
        "squad-open/dev-v1.1",
        "dl19",
        "scifact/test",
    ):
        assert name in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_listing_reads_and_downloads_nothing(monkeypatch, name):
    monkeypatch.setattr(files, "download", forbid)
    monkeypatch.setattr(files.DataFolder, "locate", forbid)
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
    "name",
    ["nothing", "wikiqa", "wikiqa/tst", "wikiqa/tidy/test", "wikiqa/clean/test/x", "squad-open/dev", "scifact/dev", ""],
)
def test_unknown_name(name):
    with pytest.raises(KeyError) as err:
        AS2Provider().get_dataset(name)
    assert err.value.args[0].startswith(f"as2 has no {name!r}")
    assert err.value.args[0].endswith(
        "; it has <asnq|asnq-like|facts|trecqa|wikiqa>/[<raw|no_all_minus|clean>/]<train|dev|test>, "
        "squad-open/<dev-v1.1|new_wiki_v1.0>, squad-open with file=..., dl19 and scifact/<train|test>"
    )
    with pytest.raises(KeyError):
        pt.get_dataset("as2:" + name)


def test_import_is_light():
    code = (
        "import sys, pyterrier_cascade.datasets\n"
        "heavy = {'torch', 'transformers', 'bm25s', 'pyterrier_cascade.datasets.facts.wordings'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_misspelt_name_is_corrected():
    with pytest.raises(KeyError, match=r"did you mean 'wikiqa/test'\?"):
        AS2Provider().get_dataset("wikiqa/tst")
