"""Training a ranker: it learns, keeps the best weights, and goes on after a kill."""

import dataclasses
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from pandas.testing import assert_frame_equal
from safetensors.torch import load_file

from pyterrier_cascade import DCBERT, Cascade, CascadeTraining, CrossEncoder, DCBertTraining, Tanda, Training, frames
from pyterrier_cascade.encoder.heads import log_odds
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.training.losses import cross_entropy
from pyterrier_cascade.training.trainer import LabelledPairs

QUICK = Training(learning_rate=3e-3, epochs=4, tokens_per_batch=100, patience=4, precision="fp32")


def candidates(n_questions: int, seed: int) -> pd.DataFrame:
    """Questions whose one positive names the asked thing: learnable by any encoder."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(n_questions):
        asked = rng.choice(["ship", "town"])
        other = "town" if asked == "ship" else "ship"
        for place, thing in enumerate(rng.permutation([asked, other, other])):
            text = f"{rng.choice(['the', 'in'])} {thing} was {rng.choice(['founded', 'launched'])}"
            rows.append((f"{seed}-{number}", f"what {asked}", f"{number}-{place}", text, int(thing == asked)))
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "label"])


TRAIN, DEV = candidates(60, 1), candidates(20, 2)


def weights(ranker) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in ranker.model.loaded.module.state_dict().items()}


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=0)


def test_losses_by_hand():
    """Cross-entropy on {0, 1} (TA-2): ln(1+e^-2) and ln(1+e^1) for log-odds 2 (positive) and 1 (negative)."""
    labels = torch.tensor([1, 0])
    expected = (np.log(1 + np.exp(-2)) + np.log(1 + np.exp(1))) / 2
    two = torch.tensor([[0.5, 2.5], [-1.0, 0.0]])
    one = torch.tensor([[2.0], [1.0]])
    for logits in (two, one):
        assert cross_entropy(logits, labels).item() == pytest.approx(expected, abs=1e-6)
        assert log_odds(logits).tolist() == [2.0, 1.0]


def test_it_learns_and_says_how(tiny_bert):
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


def test_in_a_pipeline_the_qrels_give_the_labels(tiny_bert):
    qrels = {name: frame.loc[frame["label"] == 1, ["qid", "docno", "label"]] for name, frame in
             (("train", TRAIN), ("dev", DEV))}  # fmt: skip
    results = {name: frame.drop(columns="label") for name, frame in (("train", TRAIN), ("dev", DEV))}
    retriever = pt.Transformer.from_df(pd.concat(results.values()))
    topics = {name: frame[["qid", "query"]].drop_duplicates() for name, frame in results.items()}
    pipeline = retriever >> CrossEncoder.from_pretrained(tiny_bert, training=QUICK)
    pipeline.fit(topics["train"], qrels["train"], topics["dev"], qrels["dev"])
    direct = CrossEncoder.from_pretrained(tiny_bert, training=QUICK).fit_candidates(TRAIN, DEV)
    assert_same(weights(pipeline[1]), weights(direct))


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
sys.path[:0] = [{tests!r}, {here!r}]
from tests.training import test_fit
from pyterrier_cascade import CrossEncoder, Training, frames
training = Training(epochs=3, tokens_per_batch=100, folder=sys.argv[1], save_every=7, learning_rate=1e-3, negatives=1)
ranker = CrossEncoder.from_pretrained({model!r}, training=training).fit_candidates(test_fit.TRAIN, test_fit.DEV)
ranker.save_pretrained(sys.argv[1] + "/final")
"""


def test_after_a_kill_it_goes_on_to_the_same_weights(tiny_bert, tmp_path):
    here = Path(__file__).parent
    script = SCRIPT.format(tests=str(here.parents[1]), here=str(here), model=tiny_bert)

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


def test_a_folder_of_another_training_is_refused(tiny_bert, tmp_path):
    training = Training(epochs=1, folder=str(tmp_path))
    ranker = CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN, DEV)
    done = CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN, DEV)
    assert_same(weights(done), weights(ranker))
    other = Training(epochs=1, learning_rate=1e-3, folder=str(tmp_path))
    message = f"{tmp_path} holds another training: learning_rate was 2e-05 and is 0.001; give another Training.folder"
    with pytest.raises(ValueError, match=re.escape(message)):
        CrossEncoder.from_pretrained(tiny_bert, training=other).fit_candidates(TRAIN, DEV)
    for message, train, dev, more in (
        ("data_and_weights", TRAIN.iloc[3:], DEV, {}),
        ("development_data", TRAIN, DEV.iloc[3:], {}),
        ("development_data", TRAIN, None, {}),
        ("development_data", TRAIN, DEV, {"passages": "max"}),
        ("development_data", TRAIN, DEV, {"max_length": 64}),
    ):
        with pytest.raises(ValueError, match=f"holds another training: {message} was"):
            CrossEncoder.from_pretrained(tiny_bert, training=training, **more).fit_candidates(train, dev)
    numbers = Training(epochs=np.int64(1), learning_rate=np.float64(2e-5), folder=str(tmp_path))
    again = CrossEncoder.from_pretrained(tiny_bert, training=numbers).fit_candidates(TRAIN, DEV)
    assert_same(weights(again), weights(ranker))


def test_only_development_questions_are_measured(tiny_bert):
    """A file of qrels often judges those of all splits."""
    few = CrossEncoder.from_pretrained(tiny_bert, training=Training(epochs=1, tokens_per_batch=300))
    results = [frame.drop(columns="label") for frame in (TRAIN, DEV)]
    qrels = [frame[["qid", "docno", "label"]] for frame in (TRAIN, DEV)]
    expected = few.apart().fit(results[0], qrels[0], results[1], qrels[1]).history
    found = few.apart().fit(results[0], qrels[0], results[1], pd.concat(qrels)).history
    assert_frame_equal(found, expected)


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


def test_a_folder_of_another_pooling_is_refused(tiny_bert, tmp_path):
    """Which weights do not show; where the encoder lies makes no difference."""
    training = CascadeTraining(epochs=1, folder=str(tmp_path / "kept"))
    Cascade.from_pretrained(tiny_bert, layers=(1, 2), training=training).fit_candidates(TRAIN)
    moved = shutil.copytree(tiny_bert, tmp_path / "moved")
    Cascade.from_pretrained(str(moved), layers=(1, 2), training=training).fit_candidates(TRAIN)
    with pytest.raises(ValueError, match="holds another training: data_and_weights was"):
        Cascade.from_pretrained(tiny_bert, layers=(1, 2), pooling="cls", training=training).fit_candidates(TRAIN)


def test_a_half_written_checkpoint_is_not_taken_for_whole(tiny_bert, tmp_path):
    training = Training(epochs=2, tokens_per_batch=100, folder=str(tmp_path), save_every=10)
    expected = weights(CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN))
    last = max(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    (last / "trainer_state.json").unlink()
    assert_same(weights(CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN)), expected)


def test_a_diverging_loss_is_an_error(tiny_bert):
    training = Training(learning_rate=1e30, warmup=0, tokens_per_batch=100)
    with pytest.raises(
        FloatingPointError, match=r"the loss is nan at update \d+ with learning_rate=1e\+30; use a smal"
    ):
        CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN)


def test_an_unwritable_folder_is_an_error_before_training(tiny_bert, tmp_path):
    (tmp_path / "file").write_text("")
    training = Training(folder=str(tmp_path / "file" / "checkpoints"))
    with pytest.raises(PermissionError, match=re.escape(f"cannot write checkpoints to {training.folder}: ")):
        CrossEncoder.from_pretrained(tiny_bert, training=training).fit_candidates(TRAIN)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (0, "no positive among the 180 candidates of the training data: no label is 1 or more; are these the"),
        (1, "all 180 candidates of the training data are positive; it needs negatives too"),
        (2, "all 180 candidates of the training data are positive; it needs negatives too"),
    ],
)
def test_data_of_one_class_is_an_error(tiny_bert, labels, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CrossEncoder.from_pretrained(tiny_bert).fit_candidates(TRAIN.assign(label=labels), DEV)


def test_development_results_need_qrels(tiny_bert):
    with pytest.raises(ValueError, match="development results were given without their qrels; give both or neither"):
        CrossEncoder.from_pretrained(tiny_bert).fit(TRAIN, TRAIN, DEV)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "fp8"}, "precision must be one of auto, fp32, bf16, not 'fp8'"),
        ({"epochs": 0}, "epochs must be a whole number and at least 1, not 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, not 0.0"),
        ({"negatives": 0}, "negatives must be at least 1 a question, or None for all, not 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Training(**settings)


def test_settings_can_be_typed_back_in():
    training = Training(learning_rate=1e-4, folder="here")
    assert repr(training) == "Training(learning_rate=0.0001, folder='here')" and eval(repr(training)) == training


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
