"""Trainings on the simulated GPU: the weights and the history of the CPU's training, few waits, few uploads.

Dropout is 0, because a GPU draws other random numbers than a CPU.
"""

import dataclasses

import numpy as np
import pytest
import safetensors.torch
import torch

from pyterrier_cascade import DCBERT, Cascade, CascadeTraining, CrossEncoder, DCBertTraining, Training
from pyterrier_cascade.dcbert import training as dcbert_training
from pyterrier_cascade.training import trainer
from tests import tiny
from tests.gpu import sim
from tests.hierarchical import questions as hierarchical
from tests.training.questions import DEV, TRAIN, weights

sim.register()
pytestmark = pytest.mark.filterwarnings("ignore:.* did not learn")
LISTS = TRAIN[:45], DEV[:15]
TWO_EPOCHS = {"epochs": 2, "precision": "fp32", "tokens_per_batch": 100, "learning_rate": 1e-3}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(autouse=True)
def prepared(monkeypatch):
    """safetensors, which reads the best weights, knows the names of real devices only."""
    load = safetensors.torch.load_file
    monkeypatch.setattr(trainer, "load_file", lambda path, device: {n: w.to(device) for n, w in load(path).items()})
    sim.reset()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {outputs: tiny.save(root / str(outputs), layers=2, outputs=outputs, **NO_DROPOUT) for outputs in (None, 2)}


def scores(ranker) -> np.ndarray:
    return ranker(DEV).sort_values(["qid", "docno"])["score"].to_numpy()


def assert_same(make, train, dev=None):
    """Compares a training on both devices; returns the ranker that was trained on the GPU."""
    found = []
    for device in ("cpu", "sim"):
        ranker = make(device=device)
        for module in ranker.model.loaded.module.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        before = weights(ranker)
        ranker.fit_candidates(train, dev)
        found.append((ranker, {name: weight.cpu() for name, weight in weights(ranker).items()}))
    (here, want), (there, got) = found
    assert any(not torch.allclose(want[name], one, atol=1e-4) for name, one in before.items() if one.numel())
    for name in want:
        torch.testing.assert_close(got[name], want[name], atol=1e-5, rtol=0)
    assert len(here.history) and list(here.history) == list(there.history)
    courses = [one.history.select_dtypes("number").drop(columns="grad_norm", errors="ignore") for one in (here, there)]
    np.testing.assert_allclose(*courses, atol=1e-5, rtol=1e-5)
    return there


def test_cross_encoders(folders):
    training = Training(**TWO_EPOCHS)

    def make(**more):
        return CrossEncoder.from_pretrained(folders[2], training=training, **more)

    there = assert_same(make, *LISTS)
    assert {one.device.type for one in there.model.loaded.module.parameters()} == {"sim"}
    assert there.history[["loss", "dev_map"]].notna().any().all()
    # What a GPU has learnt is read on a CPU.
    found = scores(there(precision="fp32"))
    assert sim.launches
    np.testing.assert_allclose(found, scores(there(device="cpu")), atol=1e-5, rtol=0)


OTHERS = ("distilled", "sampled")


@pytest.mark.parametrize("heads", ["joint", *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)])
def test_cascades(folders, heads):
    training = CascadeTraining(heads=heads, **TWO_EPOCHS)
    assert_same(lambda **more: Cascade.from_pretrained(folders[None], layers=(1, 2), training=training, **more), *LISTS)
    assert sim.launches


@pytest.mark.slow
@pytest.mark.parametrize("parts", [{}, {"variant": "one_way"}], ids=str)
def test_dc_bert(folders, monkeypatch, parts):
    """Both phases. The first one's documents are in bf16 where the hardware has it, which only this CPU may have."""
    monkeypatch.setattr(dcbert_training, "has_bf16", lambda device: False)
    training = DCBertTraining(frozen_epochs=1, **TWO_EPOCHS)
    assert_same(lambda **more: DCBERT.from_pretrained(folders[None], training=training, **parts, **more), *LISTS)
    assert sim.launches


def test_hierarchical_rankers():
    """The loop is the CPU's, also for a ranker that scores on a GPU."""
    training = dataclasses.replace(hierarchical.QUICK, epochs=2)
    data = hierarchical.TRAIN, hierarchical.DEV
    assert_same(lambda **more: hierarchical.ranker(training=training, **more), *data)
    assert not sim.launches


@pytest.mark.slow
def test_waits_and_uploads_of_an_update(folders, monkeypatch):
    """Ids, types, mask and labels go up. The host asks whether anything is padded, and whether the loss is a number."""
    step, n_updates, counts = torch.optim.AdamW.step, [0], []

    def counted(self, *given, **more):
        n_updates[-1] += 1
        return step(self, *given, **more)

    monkeypatch.setattr(torch.optim.AdamW, "step", counted)
    for epochs in (1, 2):
        training = dataclasses.replace(Training(**TWO_EPOCHS), epochs=epochs)
        ranker = CrossEncoder.from_pretrained(folders[2], device="sim", training=training)
        sim.reset()
        n_updates.append(0)
        ranker.fit_candidates(LISTS[0])
        counts.append(sim.counts())
    more = n_updates[2] - n_updates[1]
    assert more >= 4
    syncs, uploads = (counts[1][name] - counts[0][name] for name in ("syncs", "uploads"))
    # Ten updates are a line of the log, with the loss and the length of the gradient.
    assert syncs <= 2 * more + 2 and uploads <= 4 * more, sim.by_line()
