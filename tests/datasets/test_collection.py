import pyterrier as pt
import pytest

from pyterrier_cascade.datasets import SciFactFolder, SquadFile, WikiQA
from tests.datasets.as2_files import WIKIQA_HEADER, wikiqa_text

SPLITS = ("train", "dev", "test")
GOOD = wikiqa_text(("a", "one", 1), ("a", "two", 0))


def load(folder, mode, split):
    return pt.get_dataset(f"as2:wikiqa/{mode}/{split}", folder=folder)


def test_files_of_different_versions(wikiqa_folder):
    path = wikiqa_folder / "wikiqa" / "WikiQA-test.tsv"
    path.write_text(f"{WIKIQA_HEADER}\nQ9\tq ?\tD1\tt\tD1-0\tanother text\t0\n")
    with pytest.raises(ValueError) as err:
        load(wikiqa_folder, "raw", "test").get_corpus_iter()
    names = ", ".join(str(path.with_name(f"WikiQA-{split}.tsv")) for split in SPLITS)
    assert str(err.value) == f"docno 'D1-0' has more than one text in {names}; are these files of one version?"


def test_a_changed_file_is_read_again(wikiqa_folder):
    dataset = load(wikiqa_folder, "raw", "test")
    assert len(dataset.get_topics()) == 3
    (wikiqa_folder / "wikiqa" / "WikiQA-test.tsv").write_text(GOOD)
    assert len(dataset.get_topics()) == 1


def test_options_are_the_settings_that_the_name_does_not_say():
    assert WikiQA.option_names() == ["folder"] and WikiQA().options() == {}
    assert SquadFile("dev-v1.1", articles="odd").options() == {"articles": "odd"}
    assert SciFactFolder("train").options() == {}
