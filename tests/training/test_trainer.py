"""Training a ranker: it learns, keeps the best weights, and goes on after a kill."""

import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from pyterrier_cascade import DCBERT, CrossEncoder, DCBertTraining, Tanda, Training, frames
from pyterrier_cascade.encoder.executors import Executors
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.training import trainer
from pyterrier_cascade.training.trainer import LabelledPairs
from tests.training.questions import DEV, QUICK, TRAIN, assert_same, weights


def test_a_ranker_learns_and_keeps_its_history(tiny_bert):
    # Four epochs would do with some seeds, these do with all that were tried.
    training = dataclasses.replace(QUICK, learning_rate=1e-3, epochs=10, patience=10)
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=training)
    before = ranker(DEV)
    assert ranker.fit_candidates(TRAIN, DEV) is ranker
    history = ranker.history
    assert history["dev_map"].dropna().iloc[-1] > 0.95
    assert history["loss"].dropna().iloc[-1] < history["loss"].dropna().iloc[0] / 2
    top = ranker(DEV).query("rank == 0")["label"].mean()
    assert top > 0.9 > before.query("rank == 0")["label"].mean()


def test_the_best_weights_stay_and_patience_ends_it(tiny_bert, monkeypatch):

    course, seen = iter([0.2, 0.6, 0.4, 0.5, 0.9]), []
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=Training(epochs=5, patience=2, tokens_per_batch=300))

    def measured(*args):
        seen.append(weights(ranker))
        return next(course)

    monkeypatch.setattr(frames, "mean_average_precision", measured)
    ranker.fit_candidates(TRAIN, DEV)
    assert ranker.history["dev_map"].dropna().tolist() == [0.2, 0.6, 0.4, 0.5]
    assert_same(weights(ranker), seen[1])


def test_without_development_questions_the_last_weights_stay(tiny_bert):
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=QUICK).fit_candidates(TRAIN)
    assert "dev_map" not in ranker.history.columns
    assert 3.2 < ranker.history["epoch"].max() <= 4


def test_a_truncated_model_keeps_its_depth_when_saved(tiny_bert, tmp_path):
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=Training(epochs=1)).truncate(layers=1)
    ranker.fit_candidates(TRAIN, DEV).save_pretrained(tmp_path)
    out = CrossEncoder.from_pretrained(str(tmp_path))(DEV)
    assert out["exit_layer"].unique().tolist() == [1]
    assert (out["q_cost"] / out["q_cost_full"]).unique().tolist() == [0.5]


def test_the_callers_random_state_is_left_alone(tiny_bert):
    states = []
    for _ in range(2):
        random.seed(5), np.random.seed(5), torch.manual_seed(5)
        if states:
            CrossEncoder.from_pretrained(tiny_bert, training=Training(epochs=1)).fit_candidates(TRAIN)
        states.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert states[0] == states[1]


SCRIPT = """
import sys
sys.path[:0] = [{project!r}]
from tests.training.questions import DEV, TRAIN
from pyterrier_cascade import CrossEncoder, Training
training = Training(epochs=3, tokens_per_batch=100, folder=sys.argv[1], save_every=7, learning_rate=1e-3, negatives=1)
ranker = CrossEncoder.from_pretrained({model!r}, training=training).fit_candidates(TRAIN, DEV)
ranker.save_pretrained(sys.argv[1] + "/final")
"""


def test_after_a_kill_it_goes_on_to_the_same_weights(tiny_bert, tmp_path):
    script = SCRIPT.format(project=str(Path(__file__).parents[2]), model=tiny_bert)

    def start(folder):
        return subprocess.Popen([sys.executable, "-c", script, str(folder)], stderr=subprocess.PIPE, text=True)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    runs = [start(whole), start(killed)]
    deadline = time.time() + 300
    while not (killed / "checkpoint-14").exists():
        assert time.time() < deadline and runs[1].poll() is None, runs[1].stderr.read()
        time.sleep(0.002)
    os.kill(runs[1].pid, signal.SIGKILL)
    assert runs[1].wait() == -signal.SIGKILL and not (killed / "final").exists()
    again = start(killed)
    assert runs[0].wait() == 0, runs[0].stderr.read()
    assert again.wait() == 0, again.stderr.read()
    assert_same(load_file(whole / "final" / "model.safetensors"), load_file(killed / "final" / "model.safetensors"))


def test_rates_rise_and_fall_and_weights_decay(tiny_bert, monkeypatch):
    """CT-20, TA-5: from 0 to the peak during the warm-up, then down to 0 at the last update; the head's likewise."""
    seen, step = [], torch.optim.AdamW.step

    def noted(self, *args, **kwargs):
        seen.append([(group["lr"], group["weight_decay"]) for group in self.param_groups])
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", noted)
    how = {
        "learning_rate": 1e-3,
        "head_learning_rate": 5e-3,
        "warmup": 4,
        "weight_decay": 0.02,
        "tokens_per_batch": 200,
    }
    CrossEncoder.from_pretrained(tiny_bert, training=Training(epochs=2, **how)).fit_candidates(TRAIN)
    n = len(seen)
    assert n > 12
    shares = [update / 4 if update < 4 else (n - update) / (n - 4) for update in range(n)]
    expected = [[(1e-3 * share, 0.02), (5e-3 * share, 0.02)] for share in shares]
    np.testing.assert_allclose(seen, expected, rtol=1e-6, atol=1e-12)


def test_negatives_are_drawn_anew_in_every_epoch():
    labels, questions = TRAIN["label"].to_numpy(), pd.factorize(TRAIN["qid"])[0]
    lengths = np.full(len(TRAIN), 5)
    pairs = TokenPairs(
        {"input_ids": np.zeros(lengths.sum(), np.int64)}, lengths, np.arange(len(TRAIN)), {"input_ids": 0}
    )
    epochs = LabelledPairs(pairs, labels, questions).batches(Training(epochs=3, negatives=1))
    drawn = [{row for batch in epoch for row in batch if not labels[row]} for epoch in epochs]
    assert [len(rows) for rows in drawn] == [60] * 3 and len({frozenset(rows) for rows in drawn}) == 3


def test_a_diverging_loss_is_an_error(tiny_bert):
    training = Training(learning_rate=1e30, warmup=0, tokens_per_batch=100)
    with pytest.raises(
        FloatingPointError, match=r"the loss is nan at update \d+ with learning_rate=1e\+30; use a smal"
    ):
        CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN)


def diverges_at(update: int, monkeypatch) -> None:
    """Lets the update with this number, from 1, end in weights that are infinite; the loss before it is a number."""
    step, n_steps = torch.optim.AdamW.step, iter(range(1, 1_000))

    def diverging(self, *args, **kwargs):
        found = step(self, *args, **kwargs)
        if next(n_steps) == update:
            self.param_groups[-1]["params"][0].data.fill_(torch.inf)
        return found

    monkeypatch.setattr(torch.optim.AdamW, "step", diverging)


LAST = Training(epochs=2, tokens_per_batch=10_000, precision="fp32")
"""Settings of a training of two updates, one in each epoch."""


def test_a_last_update_that_diverges_is_an_error(tiny_bert, monkeypatch):
    diverges_at(2, monkeypatch)
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=LAST)
    before = weights(ranker)
    message = r"1 weights \(classifier.weight, ...\) are NaN or infinite at update 2 with learning_rate=2e-05; use a sm"
    with pytest.raises(FloatingPointError, match=message):
        ranker.fit_candidates(TRAIN)
    assert not ranker.model.fitted
    assert_same(weights(ranker), before)


@pytest.mark.parametrize("update", [1, 2])
def test_the_best_measurement_is_kept_where_a_training_diverges(tiny_bert, monkeypatch, update):
    """The first measurement is that after the first update."""
    expected = CrossEncoder.from_pretrained(tiny_bert, training=dataclasses.replace(LAST, epochs=2))
    expected.fit_candidates(TRAIN, DEV)
    diverges_at(update, monkeypatch)
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=LAST)
    if update == 1:
        with pytest.raises(FloatingPointError, match="are NaN or infinite at update 1 with"):
            ranker.fit_candidates(TRAIN, DEV)
        return
    message = (
        r"are NaN or infinite at update 2 .*\. The training ends there, and the weights of its best measurement are"
    )
    with pytest.warns(UserWarning, match=message):
        ranker.fit_candidates(TRAIN, DEV)
    assert all(tensor.isfinite().all() for tensor in weights(ranker).values())
    first = expected.history["dev_map"].dropna().iloc[0]
    assert ranker.history["dev_map"].dropna().tolist() == [first]
    assert ranker(DEV)["score"].notna().all()


def test_a_module_is_trained_in_bf16_again_and_is_as_it_was(tiny_bert):
    """accelerate leaves marks on what it has prepared."""
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=dataclasses.replace(QUICK, precision="bf16", epochs=1))
    module, seen = ranker.model.loaded.module, set()
    before = set(vars(module))

    def note(layer, given, output):
        if layer.training:
            seen.add(output.dtype)

    module.base_model.encoder.layer[0].output.dense.register_forward_hook(note)
    for _ in range(2):
        seen.clear()
        ranker.fit_candidates(TRAIN[:6])
        assert seen == {torch.bfloat16} and ranker.model.loaded.module is module
        assert set(vars(module)) == before and module.forward.__func__ is type(module).forward


@pytest.mark.filterwarnings("ignore:.*did not learn")
def test_both_phases_of_dc_bert_and_both_steps_of_tanda_are_in_bf16(tiny_bert, monkeypatch):
    seen, forward = [], torch.nn.Linear.forward

    def noted(layer, given):
        output = forward(layer, given)
        if layer.training and layer.out_features == 64:
            seen.append(output.dtype)
        return output

    monkeypatch.setattr(torch.nn.Linear, "forward", noted)
    training = DCBertTraining(frozen_epochs=1, epochs=1, precision="bf16")
    DCBERT.from_pretrained(tiny_bert, head="paper", training=training).fit_candidates(TRAIN[:6])
    assert set(seen) == {torch.bfloat16}
    of_dc_bert = len(seen)
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=dataclasses.replace(QUICK, precision="bf16"))
    Tanda(ranker, TRAIN[:6], transfer_epochs=1, adapt_epochs=1).fit_candidates(TRAIN[6:12], DEV[:6])
    assert len(seen) > of_dc_bert and set(seen) == {torch.bfloat16}


@pytest.fixture
def two_gpus(monkeypatch):
    """Lets torch, and with it Hugging Face's libraries, find two GPUs; the numbers of the current one in turn."""
    current = [0]

    @contextlib.contextmanager
    def device(one):
        before = current[-1]
        current.append(one.index if one.index is not None else before)
        yield
        current.append(before)

    def set_device(one):
        current.append(torch.device(one).index)

    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: current[-1],
        "set_device": set_device,
        "device": device,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr("accelerate.state.check_cuda_p2p_ib_support", lambda: True)
    yield current
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize(("device", "number"), [("cuda:1", 1), ("cuda:0", 0), ("cuda", 0)])
def test_one_process_trains_on_one_gpu(two_gpus, device, number):
    """Hugging Face's Trainer would take the first GPU, and divide the batches among both."""
    with trainer._current(torch.device(device)) as chosen:
        made = trainer._arguments(Training(precision="fp16"), chosen, 10, False)
        assert two_gpus[-1] == number
    assert two_gpus[-1] == 0
    assert (made.device, made.n_gpu, made.world_size) == (torch.device("cuda", number), 1, 1)
    assert made.parallel_mode.value == "not_parallel"
    assert PartialState().device == torch.device("cuda", number)
    assert (made.fp16, made.bf16, made.dataloader_pin_memory) == (True, False, True)
    assert made.accelerator_config.non_blocking


def test_a_cpu_beside_gpus_trains_alone(two_gpus):
    made = trainer._arguments(Training(precision="fp32"), torch.device("cpu"), 10, False)
    assert (made.device.type, made.n_gpu, made.dataloader_pin_memory, two_gpus) == ("cpu", 0, False, [0])
    assert PartialState().device.type == "cpu"


def test_only_the_device_of_the_training_keeps_its_random_state(two_gpus, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: asked.append(("read", device)))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: asked.append(("set", device)))
    for name in ("cpu", "mps", "cuda:1"):
        with trainer._own_random_state(torch.device(name)):
            pass
    assert asked == [("read", torch.device("cuda:1")), ("set", torch.device("cuda:1"))]


def test_weights_that_learn_in_fp16_are_measured_in_fp32(tiny_bert, monkeypatch):
    """A CPU has no fp16 training; its scaling of the loss is a GPU's."""
    seen, arguments = [], trainer._arguments
    monkeypatch.setattr(trainer, "training_precision", lambda name, device: name)
    monkeypatch.setattr(
        trainer,
        "_arguments",
        lambda settings, *more: arguments(dataclasses.replace(settings, precision="fp32"), *more),
    )
    get = Executors.get
    monkeypatch.setattr(Executors, "get", lambda self, *given: seen.append(given[:2]) or get(self, *given))
    training = dataclasses.replace(QUICK, precision="fp16", epochs=1)
    CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN[:20], DEV[:20])
    assert seen == [("torch", "fp32")]
