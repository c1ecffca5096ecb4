"""Every ranker that can be saved is uploaded, and scores alike where it is loaded again."""

import os
import re
import shutil
import socket
import tempfile
import warnings
from pathlib import Path

import huggingface_hub
import pytest
from pandas.testing import assert_frame_equal

from pyterrier_cascade import (
    DCBERT,
    Cascade,
    CrossEncoder,
    HierarchicalArchitecture,
    HierarchicalRanker,
    HierarchicalTraining,
    SequentialReranker,
    registry,
)
from pyterrier_cascade.hub import DryRun
from pyterrier_cascade.model import TrainedOn
from pyterrier_cascade.store.publish import DiskFull
from tests import tiny
from tests.lists import candidates
from tests.store.made_up import content

RECORD = TrainedOn(3, 30, 9, "Training(epochs=2)")
LISTS = candidates([5, 8], seed=3)
NAMES = [one.name for one in registry.RERANKERS]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> str:
    return tiny.save(tmp_path_factory.mktemp("saving") / "encoder", layers=3, outputs=None)


def made(name: str, encoder: str, trained: bool = True):
    """A tiny ranker of a class, which counts as trained."""
    if name == "HierarchicalRanker":
        sizes = HierarchicalArchitecture(embedding_width=8, width=8, channels=4, kernels=2, hidden=8)
        ranker = HierarchicalRanker("CA", "point", architecture=sizes, training=HierarchicalTraining(epochs=1))
        return ranker.fit_candidates(LISTS.assign(label=(LISTS["rank"] == 0).astype(int))) if trained else ranker
    several = {"layers": [1, 3]} if name in ("Cascade", "SequentialReranker") else {}
    ranker = registry.public(name).from_pretrained(encoder, **several)
    for one in ranker.weight_holders():
        if trained:
            one.model.loaded.mark_trained(RECORD)
    return ranker


class Hub:
    """Takes the place of ``HfApi`` and keeps what is uploaded in a folder."""

    def __init__(self, folder: Path):
        self.folder, self.seen = folder, {}

    def __call__(self, token=None):
        self.seen["token"] = token
        return self

    def create_repo(self, repo_id, **options):
        self.seen |= {"repo_id": repo_id, **options}
        return f"https://hub.example/{repo_id}"

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        self.seen |= {"uploaded_to": repo_id, "message": commit_message}
        shutil.copytree(folder_path, self.folder)


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Hub:
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", hub)
    return hub


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Path:
    """The folder of temporary files, which is empty."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    return scratch


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_uploaded_loads_again_with_equal_scores(name, encoder, hub, scratch, tmp_path):
    ranker = made(name, encoder)
    before, names = ranker(LISTS), (repr(ranker), [one.model.source for one in ranker.weight_holders()])
    address = ranker.push_to_hub("me/ranker", data="ships", private=True, token="t")
    assert address == "https://hub.example/me/ranker"
    assert hub.seen == {
        "token": "t", "repo_id": "me/ranker", "private": True, "exist_ok": True, "uploaded_to": "me/ranker",
        "message": f"{name} of pyterrier_cascade",
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_frame_equal(type(ranker).from_pretrained(str(hub.folder))(LISTS), before)
    card = (hub.folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: pyterrier_cascade\n") and "ships" in card
    assert f'{name}.from_pretrained("me/ranker")' in card and f"from pyterrier_cascade import {name}\n" in card
    # The ranker is as it was: what it stands for, its scores, and the record of its training.
    assert names == (repr(ranker), [one.model.source for one in ranker.weight_holders()])
    assert {one.model.loaded.trained_on.data for one in ranker.weight_holders()} == {None}
    assert_frame_equal(ranker(LISTS), before)
    assert not any(scratch.iterdir())
    # The upload is what is saved, but for the name on the card.
    ranker.save_pretrained(tmp_path / "saved", data="ships")
    there, here = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (hub.folder, tmp_path / "saved")
    )
    assert there.keys() == here.keys()
    assert {str(path) for path, content in there.items() if content != here[path]} == {"README.md"}
    assert card.replace("me/ranker", "this-folder") == here[Path("README.md")].decode()
    assert {one.model.loaded.trained_on.data for one in ranker.weight_holders()} == {"ships"}


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_opens_no_socket_and_leaves_nothing_behind(
    name, encoder, scratch, tmp_path, monkeypatch, no_network, capfd
):
    monkeypatch.chdir(tmp_path)
    ranker = made(name, encoder)
    before, files = repr(ranker), sorted(tmp_path.rglob("*"))
    capfd.readouterr()
    found = ranker.push_to_hub("me/ranker", dry_run=True, data="ships")
    assert capfd.readouterr() == ("", "")
    assert sorted(tmp_path.rglob("*")) == files and repr(ranker) == before
    assert {one.model.loaded.trained_on.data for one in ranker.weight_holders()} == {None}
    assert isinstance(found, DryRun) and "ships" in found.card and 'from_pretrained("me/ranker")' in found.card
    # The sizes are those of the files that are saved; the names on the cards have different lengths.
    ranker.save_pretrained(tmp_path / "saved", data="ships")
    saved = {
        path.relative_to(tmp_path / "saved").as_posix(): path.stat().st_size
        for path in (tmp_path / "saved").rglob("*")
        if path.is_file()
    }
    assert found.files["README.md"] == len(found.card.encode())
    assert {**found.files, "README.md": 0} == {**saved, "README.md": 0}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_this_machine_is_uploaded(name, encoder, hub):
    made(name, encoder).push_to_hub("me/ranker")
    paths = [os.path.dirname(encoder).encode(), str(hub.folder.parent).encode()]
    leaks = [path.name for path in hub.folder.rglob("*.[jm]*") if any(one in path.read_bytes() for one in paths)]
    assert leaks == []


@pytest.mark.parametrize("name", NAMES)
def test_untrained_weights_are_uploaded_with_a_warning(name, encoder, hub):
    ranker = made(name, encoder, trained=False)
    with pytest.warns(UserWarning, match=r"train (it|them) with fit\(\) before") as caught:
        ranker.push_to_hub("me/ranker")
    assert {one.filename for one in caught} == {__file__}
    card = (hub.folder / "README.md").read_text()
    assert "None: " in card and "Trained with" not in card


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files the POSIX way")
@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_leaves_the_model_that_was_there(name, encoder, tmp_path):
    """The limit on the size of a file lets the configuration through, and stops the weights."""
    import resource

    made(name, encoder).save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "notes.txt").write_text("mine")
    before, ranker = content(tmp_path), made(name, tiny.save(tmp_path / "other", layers=3, outputs=None, seed=1))
    message = f"the disk with {str(tmp_path / 'saved')!r} is full; the folder is as it was: make room, then save the"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    least = min(len(text) for file, text in before.items() if file.endswith(".safetensors"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (least - 1, limits[1]))
    try:
        with pytest.raises(DiskFull, match=re.escape(message)):
            ranker.save_pretrained(tmp_path / "saved")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    shutil.rmtree(tmp_path / "other")
    assert content(tmp_path) == before
    assert str(tmp_path / "saved") not in repr(ranker)


def test_another_kind_of_ranker_takes_the_place_of_one(encoder, tmp_path):
    """Nothing is left by which the folder would count as what it was."""
    for name in ("SequentialReranker", "CrossEncoder", "SequentialReranker", "Cascade"):
        ranker = made(name, encoder)
        ranker.save_pretrained(tmp_path)
        assert registry.holds(str(tmp_path)) in (None, registry.by_command(name.lower().removesuffix("reranker")))
        assert_frame_equal(type(ranker).from_pretrained(str(tmp_path))(LISTS), ranker(LISTS))


def test_a_file_is_no_folder_to_write(encoder, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="file is a file; save_pretrained writes a folder"):
        made("CrossEncoder", encoder).save_pretrained(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", NAMES)
def test_fresh_weights_were_trained_on_nothing(name, encoder, tmp_path):
    message = (
        "data='ships' names the data of a training, but these weights have no record of one; train them first, or "
        "leave data out"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        made(name, encoder, trained=False).save_pretrained(tmp_path / "saved", data="ships")
    assert not (tmp_path / "saved").exists()


def test_data_of_models_of_which_one_is_untrained_are_named_for_none(encoder, tmp_path):
    ranker = made("SequentialReranker", encoder, trained=False)
    ranker.models[0].model.loaded.mark_trained(RECORD)
    with pytest.raises(ValueError, match="these weights have no record of one"):
        ranker.save_pretrained(tmp_path / "saved", data="ships")
    assert ranker.models[0].model.loaded.trained_on == RECORD


@pytest.mark.parametrize("repo_id", ["", "a/b/c", "./folder", "me/two words", "a--b", "x.git", None, 3, Path("me/x")])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_bad_name_is_refused_before_the_weights_are_read(repo_id, dry_run):
    ranker = CrossEncoder.from_pretrained("nowhere/to-be-found")
    message = (
        f"repo_id={repo_id!r} names no repository on the Hugging Face Hub; give 'owner/name', or 'name' for one of "
        "your own, of letters, digits, '-', '_' and '.'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ranker.push_to_hub(repo_id, dry_run=dry_run)


def test_what_the_card_does_not_take_is_refused_before_anything_is_written(encoder, tmp_path):
    with pytest.raises(TypeError, match="unexpected keyword argument 'certificats'"):
        made("CrossEncoder", encoder).save_pretrained(tmp_path / "saved", certificats=[])
    assert not (tmp_path / "saved").exists()


def test_a_failed_upload_names_no_data(encoder, hub, scratch, monkeypatch):
    def fail(**options):
        raise ConnectionError("gone")

    monkeypatch.setattr(hub, "upload_folder", fail)
    ranker = made("Cascade", encoder)
    with pytest.raises(ConnectionError, match="gone"):
        ranker.push_to_hub("me/ranker", data="ships")
    assert ranker.model.loaded.trained_on == RECORD and not any(scratch.iterdir())


def test_a_sequential_reranker_is_loaded_from_the_hub(encoder, hub, monkeypatch):
    ranker = made("SequentialReranker", encoder)
    ranker.push_to_hub("me/ranker")
    asked = []

    def snapshot_download(name, allow_patterns):
        asked.append((name, allow_patterns))
        return str(hub.folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert_frame_equal(SequentialReranker.from_pretrained("me/ranker")(LISTS), ranker(LISTS))
    assert asked == [("me/ranker", "layers-*/*")]


def test_weights_of_others_are_not_called_fresh(tmp_path, hub):
    theirs = CrossEncoder.from_pretrained(tiny.save(tmp_path / "theirs"))
    theirs.push_to_hub("me/ranker")
    assert "Not known: another library trained these weights." in (hub.folder / "README.md").read_text()
    with pytest.raises(ValueError, match="data='x' names the data of a training, but these"):
        theirs.push_to_hub("me/ranker", data="x")


def test_all_classes_are_tested():
    assert {Cascade, CrossEncoder, DCBERT, HierarchicalRanker, SequentialReranker} == {
        one.cls for one in registry.RERANKERS
    }
