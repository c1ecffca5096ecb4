"""Checkpoints: loaded on first use, left behind by pickles, and restored after errors."""

import io
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from pandas.testing import assert_frame_equal

from pyterrier_cascade import CrossEncoder, Training, frames
from pyterrier_cascade.checkpoint import Checkpoint, check_folder
from pyterrier_cascade.crossencoder.model import load
from pyterrier_cascade.model import TrainedOn
from tests import tiny
from tests.training.questions import DEV, QUICK, TRAIN, assert_same, weights

RECORD = TrainedOn(questions=2, candidates=6, positives=2, training="Training()", data="made up")
loads = []


def counted(source, **options):
    """Loads a cross-encoder and counts that."""
    loads.append((source, options))
    return load(source, **options)


@pytest.fixture
def checkpoint(tiny_bert) -> Checkpoint:
    loads.clear()
    return Checkpoint(counted, tiny_bert)


def state(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in checkpoint.loaded.module.state_dict().items()}


def train(checkpoint: Checkpoint, change: float = 1.0) -> None:
    """Changes the weights, as a training does."""
    with torch.no_grad():
        checkpoint.loaded.module.classifier.bias.add_(change)


def fit(checkpoint: Checkpoint, change: float = 1.0) -> None:
    train(checkpoint, change)
    checkpoint.mark_fitted([{"update": 1, "loss": change}], RECORD)


def test_it_is_loaded_on_first_use_and_once(checkpoint, tiny_bert):
    assert loads == [] and repr(checkpoint) == repr(tiny_bert)
    assert checkpoint.loaded is checkpoint.loaded and loads == [(tiny_bert, {})]


def test_options_go_to_the_loader(tiny_bert):
    loads.clear()
    assert Checkpoint(counted, tiny_bert, layers=1).loaded.layers == 1 and loads == [(tiny_bert, {"layers": 1})]


def test_weights_that_are_loaded_in_inference_mode_can_be_trained(checkpoint):
    with torch.inference_mode():
        module = checkpoint.loaded.module
    assert not any(parameter.is_inference() for parameter in module.parameters())


def test_a_pickle_leaves_the_weights_behind(checkpoint, tiny_bert):
    expected = state(checkpoint)
    pickled = pickle.dumps(checkpoint)
    assert len(pickled) < 2_000
    copy = pickle.loads(pickled)
    assert copy == checkpoint and loads == [(tiny_bert, {})]
    assert_same(state(copy), expected)
    assert loads == [(tiny_bert, {})] * 2


def test_trained_weights_travel_with_their_record(checkpoint):
    fit(checkpoint)
    expected = state(checkpoint)
    copy = checkpoint
    # A copy of a copy that was never used has them too.
    for _ in range(2):
        copy = pickle.loads(pickle.dumps(copy))
    assert copy == checkpoint and copy.history == [{"update": 1, "loss": 1.0}]
    assert_same(state(copy), expected)
    assert copy.loaded.trained_on == RECORD and copy.fingerprint == checkpoint.fitted


def test_a_pickle_notices_that_the_folder_was_written_anew(tmp_path):
    """A pool's worker that has loaded the folder compares the pickles."""
    pickles = []
    for seed in (0, 0, 1):
        tiny.save(tmp_path / "bert", seed=seed)
        pickles.append(pickle.dumps(Checkpoint(load, tmp_path / "bert")))
    assert pickles[1] != pickles[2]


def test_fitted_is_the_hash_of_the_weights(checkpoint, tiny_bert):
    before = checkpoint.fingerprint
    assert checkpoint.fitted is None
    fit(checkpoint)
    assert checkpoint.fitted == checkpoint.fingerprint != before
    assert repr(checkpoint) == f"{tiny_bert!r} fitted to {checkpoint.fitted[:8]}"
    assert checkpoint.loaded.untrained is None and checkpoint.loaded.trained_on == RECORD


def test_written_weights_are_those_of_the_folder(checkpoint, tmp_path):
    fit(checkpoint)
    expected, path = state(checkpoint), str(tmp_path / "saved")
    checkpoint.write(path)
    assert checkpoint.fitted and checkpoint.source != path
    checkpoint.point_to(path)
    assert (checkpoint.source, checkpoint.options, checkpoint.fitted) == (path, {}, None)
    assert checkpoint == Checkpoint(counted, path) and len(pickle.dumps(checkpoint)) < 2_000
    again = Checkpoint(counted, path)
    assert_same(state(again), expected)
    assert again.loaded.trained_on == RECORD


@pytest.mark.parametrize("fitted_before", [False, True])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_a_training_restores_everything(checkpoint, fitted_before, error):
    if fitted_before:
        fit(checkpoint)
    before = state(checkpoint), checkpoint.fitted, checkpoint.history, checkpoint.options, checkpoint.loaded.trained_on
    with pytest.raises(error), checkpoint.training():
        fit(checkpoint, 5.0)
        checkpoint.options = {"layers": 1}
        raise error
    after = state(checkpoint), checkpoint.fitted, checkpoint.history, checkpoint.options, checkpoint.loaded.trained_on
    assert_same(after[0], before[0])
    assert after[1:] == before[1:]


def test_a_training_without_an_error_keeps_its_weights(checkpoint):
    with checkpoint.training():
        fit(checkpoint, 5.0)
    assert checkpoint.fitted == checkpoint.fingerprint and len(loads) == 1


def test_files_lie_beside_saved_weights_only(checkpoint, tiny_bert, tmp_path, monkeypatch):
    """A Hub name has the user's cache; weights that lie nowhere have no place."""
    assert checkpoint.cache("openvino") == Path(tiny_bert) / "openvino"
    monkeypatch.setenv("PYTERRIER_HOME", str(tmp_path))
    assert Checkpoint(load, "some/name").cache("openvino") == tmp_path / "pyterrier_cascade" / "openvino"
    fit(checkpoint)
    assert checkpoint.cache("openvino") is None


def test_checkpoints_are_values(checkpoint, tiny_bert):
    same = Checkpoint(counted, Path(tiny_bert))
    assert checkpoint == same and hash(checkpoint) == hash(same)
    one = Checkpoint(load, "a", layers=2)
    assert one == Checkpoint(load, "a", layers=2) and hash(one) == hash(Checkpoint(load, "a", layers=2))
    others = [Checkpoint(load, "a"), Checkpoint(load, "b", layers=2), Checkpoint(counted, "a", layers=2), "a"]
    assert one not in others
    assert io.StringIO(repr(Checkpoint(load, "a"))).read() == "'a'"
    fit(checkpoint)
    assert checkpoint != same and checkpoint == pickle.loads(pickle.dumps(checkpoint))


def test_what_the_model_argument_means(checkpoint, tiny_bert):
    assert Checkpoint.of(load, checkpoint, "CrossEncoder") is checkpoint
    assert Checkpoint.of(load, tiny_bert, "CrossEncoder") == Checkpoint(load, tiny_bert)
    assert Checkpoint.of(load, Path(tiny_bert), "CrossEncoder") == Checkpoint(load, tiny_bert)


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (OrderedDict(), "collections.OrderedDict"),
        (None, "builtins.NoneType"),
        (b"folder", "builtins.bytes"),
    ],
    ids=["module", "dictionary", "None", "bytes"],
)
def test_objects_of_other_libraries_are_refused(other, kind):
    message = rf"^a CrossEncoder takes a folder or a Hub name, not an object of {kind}; save that object"
    with pytest.raises(TypeError, match=message):
        Checkpoint.of(load, other, "CrossEncoder")
    with pytest.raises(TypeError, match=message):
        CrossEncoder(other)


@pytest.mark.parametrize("source", ["./nowhere", "/nowhere", "~nobody"])
def test_a_path_that_is_no_folder_is_no_hub_name(source):
    with pytest.raises(FileNotFoundError, match=f"there is no folder '{source}'; give one with a config.json"):
        check_folder(source)
    check_folder("some/name")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_trained_weights_score_alike_before_and_after_saving(tiny_bert, tmp_path, precision):
    training = Training(epochs=1, precision=precision)
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN, DEV)
    out = ranker(DEV)
    assert not ranker.model.loaded.module.training
    assert repr(ranker).startswith(f"<CrossEncoder '{tiny_bert}' fitted to ")
    assert ranker != CrossEncoder.from_pretrained(tiny_bert, training=training)
    carried = pickle.loads(pickle.dumps(ranker))
    assert carried == ranker
    assert_frame_equal(carried(DEV), out)
    ranker.save_pretrained(tmp_path)
    again = CrossEncoder.from_pretrained(str(tmp_path), training=training)
    assert again == ranker and len(pickle.dumps(ranker)) < 2_000
    assert_frame_equal(again(DEV), out)


def test_copies_see_the_training(tiny_bert):
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=Training(epochs=1))
    copy = ranker(max_length=64)
    ranker.fit_candidates(TRAIN, DEV)
    assert_frame_equal(copy(DEV), ranker(DEV))


@pytest.mark.parametrize("fitted_before", [False, True])
def test_a_training_that_fails_leaves_the_weights_as_they_were(tiny_bert, monkeypatch, fitted_before):
    """Half-trained weights would pass for the source's, or for those that the first training made."""
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=QUICK)
    if fitted_before:
        ranker.fit_candidates(TRAIN)
    before, name = weights(ranker), repr(ranker)
    measured = []

    def fail(*args):
        measured.append(weights(ranker))
        raise KeyboardInterrupt

    monkeypatch.setattr(frames, "mean_average_precision", fail)
    with pytest.raises(KeyboardInterrupt):
        ranker.fit_candidates(TRAIN, DEV)
    assert any(not torch.equal(measured[0][key], before[key]) for key in before)
    assert_same(weights(ranker), before)
    assert repr(ranker) == name and ranker.model.loaded.untrained is None
