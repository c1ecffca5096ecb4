"""The folder of a training: complete checkpoints, one training in a folder, and a folder that can be written."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file

from pyterrier_cascade import CrossEncoder, Training
from pyterrier_cascade.training.folder import BEST, RUN, claim, last_checkpoint, save_best, training_folder
from tests.training.questions import TRAIN, assert_same, weights


def test_without_a_folder_there_is_one_for_a_while():
    with training_folder(Training()) as folder:
        assert folder.is_dir()
    assert not folder.exists()


def test_a_given_folder_is_made_and_stays(tmp_path):
    with training_folder(Training(folder=str(tmp_path / "new" / "one"))) as folder:
        assert folder == tmp_path / "new" / "one" and list(folder.iterdir()) == []
    assert folder.is_dir()


def test_a_folder_belongs_to_the_first_training(tmp_path):
    claim(tmp_path, {"seed": 0})
    claim(tmp_path, {"seed": 0})
    assert json.loads((tmp_path / RUN).read_text()) == {"seed": 0}
    with pytest.raises(ValueError, match=r"holds another training: seed was 0 and is 1; give another Training\.folder"):
        claim(tmp_path, {"seed": 1})
    assert [path.name for path in tmp_path.iterdir()] == [RUN]


def test_the_newest_complete_checkpoint_counts(tmp_path):
    """By number, not by name; an incomplete one is removed."""
    assert last_checkpoint(tmp_path) is None
    for number in (7, 14, 100, 107):
        (tmp_path / f"checkpoint-{number}").mkdir()
    for number, text in ((7, "{}"), (14, "{}"), (100, '{"epoch": 1')):
        (tmp_path / f"checkpoint-{number}" / "trainer_state.json").write_text(text)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-14")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-14", "checkpoint-7"]


def test_the_best_weights_replace_earlier_ones(tmp_path):
    module = torch.nn.Linear(2, 1)
    for value in (1.0, 2.0):
        torch.nn.init.constant_(module.weight, value)
        save_best(module, tmp_path)
        assert load_file(tmp_path / BEST)["weight"].tolist() == [[value, value]]
    assert [path.name for path in tmp_path.iterdir()] == [BEST]


def test_a_half_written_checkpoint_is_not_taken_for_whole(tiny_bert, tmp_path):
    training = Training(epochs=2, tokens_per_batch=100, folder=str(tmp_path), save_every=10)
    expected = weights(CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN))
    last = max(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    (last / "trainer_state.json").unlink()
    assert_same(weights(CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN)), expected)


def test_an_unwritable_folder_is_an_error_before_training(tiny_bert, tmp_path):
    (tmp_path / "file").write_text("")
    training = Training(folder=str(tmp_path / "file" / "checkpoints"))
    with pytest.raises(PermissionError, match=re.escape(f"cannot write checkpoints to {training.folder}: ")):
        CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN)
