"""The training loop over whole questions (HR-11, HR-18, HR-30)."""

import json
import os
import re
import signal
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open

from pyterrier_cascade import HierarchicalRanker, HierarchicalTraining, frames
from pyterrier_cascade.hierarchical.loading import build
from pyterrier_cascade.hierarchical.schemes import EQUATIONS
from pyterrier_cascade.hierarchical.trainer import LabelledQuestions, QuestionTrainer, equal_parts, steps_of_epoch
from pyterrier_cascade.hierarchical.training import joint_loss, list_loss, question_losses
from tests.hierarchical import reference
from tests.hierarchical.questions import DEV, QUICK, SMALL, TEST, TRAIN, ranker, vector_file


def weights(one) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in one.model.loaded.module.state_dict().items()}


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=0)


def map_on_test(fitted: HierarchicalRanker) -> float:
    out = fitted(TEST)
    return frames.mean_average_precision(out, out["score"].to_numpy(), TEST[["qid", "docno", "label"]])


def trainer_of(fitted: HierarchicalRanker, training: HierarchicalTraining) -> QuestionTrainer:
    pairs = fitted.model.loaded.pairs(TRAIN["query"].tolist(), TRAIN["text"].tolist())
    questions = LabelledQuestions(pairs, TRAIN["label"].to_numpy(copy=True), frames.Blocks.of(TRAIN))
    return QuestionTrainer(fitted.model.loaded.module, questions, training)


@pytest.mark.parametrize(("name", "level"), EQUATIONS)
def test_every_model_learns(name, level):
    learner = ranker(name, level)
    assert learner.fit_candidates(TRAIN, DEV) is learner
    history = learner.history
    assert list(history.columns) == [
        "update", "epoch", "loss", *(f"loss_{one}" for one in EQUATIONS[name, level]), "dev_map",
    ]  # fmt: skip
    assert history["loss"].iloc[-1] < history["loss"].iloc[0] / 2
    assert map_on_test(learner) > 0.95


def test_the_settings_for_trecqa_learn():
    training = replace(QUICK, pairs="hardest", margin=1.0, sigmoid=False, point_weight=1.0)
    assert map_on_test(ranker("CA", "pair", training=training).fit_candidates(TRAIN, DEV)) > 0.95


def test_steps_hold_every_question_once():
    found = [steps_of_epoch(65, QUICK, epoch) for epoch in (0, 1)]
    for epoch in found:
        assert [len(step) for step in epoch] == [10] * 6 + [5]
        assert sorted(np.concatenate(epoch).tolist()) == list(range(65))
    assert not np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(steps_of_epoch(65, QUICK, 0)[0], found[0][0])


def test_parts_are_whole_questions_of_equal_work():
    words = np.array([100, 900, 200, 300, 5_000, 400])
    found = equal_parts(words, 1_000)
    assert sorted(chain(*found)) == list(range(6))
    assert [4] in found and len(found) == 6
    even = equal_parts(np.full(30, 300), 4_000)
    assert [len(part) for part in even] == [8, 8, 7, 7]
    assert equal_parts(np.array([10]), 1_000) == [[0]]


def test_parts_do_not_change_the_training():
    """The gradients are those of the mean over the step's questions, however the step is divided."""
    found = [
        weights(ranker(training=replace(QUICK, tokens_per_batch=n, epochs=1)).fit_candidates(TRAIN))
        for n in (60, 100_000)
    ]
    for name, tensor in found[0].items():
        # The list level's last bias moves no score against another: its gradient is rounding, which Adam enlarges.
        if name != "perceptrons.list.2.bias":
            torch.testing.assert_close(tensor.float(), found[1][name].float(), rtol=0, atol=2e-4)


def test_gradients_are_of_the_mean_over_questions():
    """Adam would hide a wrong scale, because its steps do not depend on it."""
    trainer = trainer_of(ranker(training=replace(QUICK, epochs=1)).fit_candidates(TRAIN), QUICK)
    (first, one), (second, two), (both, sums) = (
        trainer.gradients(np.array(questions), n) for questions, n in (([0], 1), ([1], 1), ([0, 1], 2))
    )
    np.testing.assert_allclose(one + two, sums, rtol=1e-5)
    for a, b, mean in zip(first, second, both, strict=True):
        torch.testing.assert_close((a + b) / 2, mean, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("warmup", [4, 0.5])
def test_the_rate_rises_during_the_warm_up(warmup):
    """Four updates, or half of all eight."""
    fitted, rates = ranker(training=replace(QUICK, epochs=1)).fit_candidates(TRAIN), []
    trainer = trainer_of(fitted, replace(QUICK, epochs=2, warmup=warmup))
    for _ in range(5):
        trainer.train_step(np.arange(2))
        rates.append(trainer.optimizers[fitted.model.loaded.module.encoding.weight].param_groups[0]["lr"])
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01])


def test_weight_decay_is_adamws():
    """It moves weights towards zero by rate x decay, whatever the gradient is."""
    one, decay = TRAIN[TRAIN["qid"] == "1-0"], 0.5
    plain, decayed = (
        weights(ranker(training=replace(QUICK, epochs=1, weight_decay=wanted)).fit_candidates(one))["encoding.weight"]
        for wanted in (0.0, decay)
    )
    before = build("PRI", "list", SMALL).encoding.weight.detach()
    torch.testing.assert_close(plain - decayed, 1e-2 * decay * before, rtol=1e-3, atol=1e-6)


def test_two_threads_do_not_change_the_training():
    training = replace(QUICK, tokens_per_batch=100, epochs=2)
    expected = weights(ranker(training=training).fit_candidates(TRAIN))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert_same(weights(ranker(training=training).fit_candidates(TRAIN)), expected)
    finally:
        torch.set_num_threads(before)


def test_the_first_step_by_hand():
    """One step on one question moves every weight by Adam's rate, against the gradient of the joint loss."""
    one = TRAIN[TRAIN["qid"] == "1-0"]
    training = replace(QUICK, epochs=1)
    learner = ranker(training=training).fit_candidates(one)
    net = build("PRI", "list", SMALL)
    net.vectors.add_random(list(learner.model.loaded.module.vectors.numbers), 0)
    pairs = learner.model.loaded.pairs(one["query"].tolist(), one["text"].tolist())
    labels = torch.from_numpy(one["label"].to_numpy(copy=True))
    losses = question_losses(reference.all_outputs(net, pairs), net.scheme.objectives, labels, training)
    assert learner.history["loss"].item() == pytest.approx(joint_loss(losses, net.scheme.objectives, training).item())
    joint_loss(losses, net.scheme.objectives, training).backward()
    torch.optim.Adam(net.parameters(), lr=1e-2).step()
    for name, tensor in learner.model.loaded.module.named_parameters():
        clear = dict(net.named_parameters())[name].grad.abs() > 1e-6
        assert clear.any() or name == "perceptrons.list.2.bias"
        torch.testing.assert_close(tensor[clear], dict(net.named_parameters())[name][clear], rtol=1e-3, atol=1e-5)


def test_the_best_weights_stay_and_patience_ends_it(monkeypatch):
    course, seen = iter([0.2, 0.6, 0.4, 0.5, 0.9]), []
    learner = ranker(training=replace(QUICK, epochs=5, patience=2))

    def measured(*args):
        seen.append(weights(learner))
        return next(course)

    monkeypatch.setattr(frames, "mean_average_precision", measured)
    learner.fit_candidates(TRAIN, DEV)
    assert learner.history["dev_map"].tolist() == [0.2, 0.6, 0.4, 0.5]
    assert_same(weights(learner), seen[1])


def test_seeds_draw_weights_and_order():
    first = ranker(training=replace(QUICK, epochs=1)).fit_candidates(TRAIN)
    again = ranker(training=replace(QUICK, epochs=1)).fit_candidates(TRAIN)
    other = ranker(training=replace(QUICK, epochs=1, seed=1)).fit_candidates(TRAIN)
    assert_same(weights(first), weights(again))
    assert not torch.equal(weights(first)["encoding.weight"], weights(other)["encoding.weight"])


def test_the_callers_random_state_is_left_alone():
    torch.manual_seed(5), np.random.seed(5)
    expected = torch.rand(1).item(), np.random.rand()
    torch.manual_seed(5), np.random.seed(5)
    ranker(training=replace(QUICK, epochs=1)).fit_candidates(TRAIN, DEV)
    assert (torch.rand(1).item(), np.random.rand()) == expected


def test_vectors_are_frozen_or_tuned_at_their_rate(tmp_path):
    """Words of the training data move by their own rate, others and the unknown word never (HR-8, HR-30)."""
    path, one = vector_file(tmp_path), TRAIN[TRAIN["qid"] == "1-0"]
    in_file = {line.split()[0]: np.float32(line.split()[1:]) for line in Path(path).read_text().splitlines()}

    def moved(rate):
        training = replace(QUICK, epochs=1, embedding_rate=rate)
        vectors = ranker(vectors=path, training=training).fit_candidates(one).model.loaded.module.vectors
        n_tuned = len(vectors.tuned) - 1
        assert 0 < n_tuned < len(vectors.numbers) and (vectors.tuned[0] == 0).all()
        assert np.array_equal(vectors.rest, [in_file[word] for word in list(vectors.numbers)[n_tuned:]])
        before = np.array([in_file[word] for word in list(vectors.numbers)[:n_tuned]])
        return np.abs(vectors.tuned[1:].detach().numpy() - before).max()

    assert moved(None) == 0
    assert moved(1e-3) == pytest.approx(1e-3, rel=1e-2)


def test_a_second_training_goes_on_from_the_first():
    """New words get vectors, known ones keep theirs."""
    learner = ranker(training=replace(QUICK, epochs=2)).fit_candidates(TRAIN)
    before, words = weights(learner), list(learner.model.loaded.module.vectors.numbers)
    learner = learner.with_training(epochs=1, learning_rate=1e-6)
    learner.fit_candidates(TRAIN.assign(text=TRAIN["text"].str.replace("this", "that venerable")))
    module = learner.model.loaded.module
    assert list(module.vectors.numbers) == [*words, "that", "venerable"]
    torch.testing.assert_close(module.vectors.tuned[:-2], before["vectors.tuned"], rtol=0, atol=1e-4)
    torch.testing.assert_close(module.encoding.weight, before["encoding.weight"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"pairs": "hardest", "sigmoid": False}], ids=["all", "hardest"])
def test_questions_of_one_class_and_of_one_candidate(settings):
    extra = [
        TRAIN[TRAIN["qid"] == "1-1"].assign(qid="all", label=1),
        TRAIN[TRAIN["qid"] == "1-2"].assign(qid="none", label=0),
        TRAIN.iloc[[0]].assign(qid="one"),
        TRAIN.iloc[[1]].assign(qid="only", text=""),
    ]
    learner = ranker(training=replace(QUICK, **settings, questions_per_batch=5))
    learner.fit_candidates(pd.concat([TRAIN, *extra], ignore_index=True), DEV)
    assert np.isfinite(learner.history["loss"]).all() and map_on_test(learner) > 0.9


def test_a_question_of_2000_candidates_is_one_step():
    many = pd.concat([TRAIN.assign(docno=TRAIN["docno"] + f"-{n}") for n in range(10)]).assign(
        qid="1", query="which ship ?"
    )
    assert len(many) == 2_000
    learner = ranker("CA", "list", training=replace(QUICK, epochs=1, tokens_per_batch=500))
    fresh = learner.apart().with_training(learning_rate=1e-12).fit_candidates(many)
    learner.fit_candidates(many)
    assert len(learner.history) == 1 and learner.history["update"].item() == 1
    # No candidate is left out (HR-11, HR-30): the loss is that over all of them.
    scores = fresh(many).set_index("docno")["score"].reindex(many["docno"]).to_numpy()
    expected = list_loss(torch.tensor(scores), torch.tensor(many["label"].tolist())).item()
    assert learner.history["loss"].item() == pytest.approx(expected, rel=1e-5)


def test_bf16_learns():
    assert map_on_test(ranker(training=replace(QUICK, precision="bf16")).fit_candidates(TRAIN, DEV)) > 0.95


def test_a_diverging_loss_is_an_error_and_leaves_the_ranker_as_it_was():
    learner = ranker(training=replace(QUICK, learning_rate=1e37))
    name = repr(learner)
    with pytest.raises(
        FloatingPointError, match=r"the loss is (nan|inf) at update \d+ with learning_rate=1e\+37; use a"
    ):
        learner.fit_candidates(TRAIN)
    assert repr(learner) == name and learner.model.loaded.untrained


@pytest.mark.parametrize("dev", [None, DEV], ids=["no development data", "development data"])
@pytest.mark.parametrize("update", [1, 2])
def test_an_update_that_diverges(monkeypatch, dev, update):
    """Two epochs of one update. The loss of the diverging update is a number, its weights are not."""
    train_step = QuestionTrainer.train_step

    def diverging(self, questions):
        train_step(self, questions)
        if self.n_updates == update:
            self.module.encoding.weight.data.fill_(torch.inf)

    monkeypatch.setattr(QuestionTrainer, "train_step", diverging)
    learner = ranker(training=replace(QUICK, epochs=2, questions_per_batch=1_000))
    message = rf"1 weights \(encoding.weight, ...\) are NaN or infinite at update {update} with learning_rate=0.01; use"
    if dev is None or update == 1:
        with pytest.raises(FloatingPointError, match=message):
            learner.fit_candidates(TRAIN, dev)
        assert learner.model.loaded.untrained
    else:
        with pytest.warns(UserWarning, match=message):
            learner.fit_candidates(TRAIN, dev)
        assert len(learner.history) == 1
        assert all(tensor.isfinite().all() for tensor in weights(learner).values())


class Killed(Exception):
    pass


def kill_after(n_updates: int, monkeypatch) -> None:
    """Ends the process's training at the beginning of the update after these."""
    train_step = QuestionTrainer.train_step

    def step(self, questions):
        if self.n_updates == n_updates:
            raise Killed
        train_step(self, questions)

    monkeypatch.setattr(QuestionTrainer, "train_step", step)


@pytest.mark.parametrize(
    ("save_every", "kept"), [(1, 5), (2, 4), (3, 3), (5, 5), (6, None)], ids=lambda value: f"{value}"
)
def test_a_training_is_kept_after_every_so_many_updates(save_every, kept, tmp_path, monkeypatch):
    """An epoch has four updates, and the training is killed after five."""
    training = replace(QUICK, epochs=3, warmup=3)
    expected = ranker(training=training).fit_candidates(TRAIN, DEV)
    training = replace(training, folder=str(tmp_path), save_every=save_every)
    with monkeypatch.context() as patch:
        kill_after(5, patch)
        with pytest.raises(Killed):
            ranker(training=training).fit_candidates(TRAIN, DEV)
    done = []
    train_step = QuestionTrainer.train_step
    monkeypatch.setattr(
        QuestionTrainer, "train_step", lambda self, step: (train_step(self, step), done.append(self.n_updates))
    )
    again = ranker(training=replace(training, save_every=100)).fit_candidates(TRAIN, DEV)
    assert done == list(range((kept or 0) + 1, 13))
    assert_same(weights(again), weights(expected))
    pd.testing.assert_frame_equal(again.history, expected.history)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process that can be forked")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_after_a_kill_it_goes_on_to_the_same_weights(tmp_path):
    training = replace(QUICK, epochs=12, patience=12)
    expected = ranker(training=training).fit_candidates(TRAIN, DEV)
    kept = replace(training, folder=str(tmp_path), save_every=1)
    child = os.fork()
    if not child:
        try:
            ranker(training=kept).fit_candidates(TRAIN, DEV)
        finally:
            os._exit(0)
    file, deadline = tmp_path / "hierarchical-training.safetensors", time.time() + 100
    while not file.exists():
        assert time.time() < deadline
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    with safe_open(file, "pt") as kept_state:
        n_done = json.loads(kept_state.metadata()["course"])["n_updates"]
    assert 0 < n_done < 48
    again = ranker(training=kept).fit_candidates(TRAIN, DEV)
    assert_same(weights(again), weights(expected))
    pd.testing.assert_frame_equal(again.history, expected.history)


def test_a_folder_of_another_training_is_refused(tmp_path):
    training = replace(QUICK, epochs=2, folder=str(tmp_path))
    learner = ranker(training=training).fit_candidates(TRAIN, DEV)
    done = ranker(training=training).fit_candidates(TRAIN, DEV)
    assert_same(weights(done), weights(learner))
    pd.testing.assert_frame_equal(done.history, learner.history)
    message = f"{tmp_path} holds another training: margin was 0.8 and is 0.5; give another HierarchicalTraining.folder"
    with pytest.raises(ValueError, match=re.escape(message)):
        ranker(training=replace(training, margin=0.5)).fit_candidates(TRAIN, DEV)


@pytest.mark.parametrize(
    ("message", "other", "train", "dev"),
    [
        ("data_and_weights", {}, TRAIN.iloc[5:], DEV),
        ("data_and_weights", {"level": "point"}, TRAIN, DEV),
        ("data_and_weights", {"architecture": replace(SMALL, k_max=(1, 1))}, TRAIN, DEV),
        ("development_data", {}, TRAIN, DEV.iloc[5:]),
        ("development_data", {}, TRAIN, None),
    ],
    ids=["training-data", "level", "architecture", "development-data", "no-development-data"],
)
def test_a_folder_of_other_data_is_refused(message, other, train, dev, tmp_path):
    training = replace(QUICK, epochs=1, folder=str(tmp_path))
    ranker(training=training).fit_candidates(TRAIN, DEV)
    with pytest.raises(ValueError, match=f"holds another training: {message} was"):
        ranker(training=training, **other).fit_candidates(train, dev)


def test_levels_that_share_weights_are_other_trainings(tmp_path):
    """MTL's levels have the same weights and losses, but the scoring level decides which epoch's weights stay."""
    training = replace(QUICK, epochs=1, folder=str(tmp_path))
    ranker("MTL", "point", training=training).fit_candidates(TRAIN, DEV)
    with pytest.raises(ValueError, match="holds another training: data_and_weights was"):
        ranker("MTL", "list", training=training).fit_candidates(TRAIN, DEV)


def test_a_saved_fresh_ranker_takes_the_width_of_its_vectors(tmp_path):
    ranker(vectors=vector_file(tmp_path, width=12)).save_pretrained(str(tmp_path / "fresh"))
    learner = HierarchicalRanker.from_pretrained(str(tmp_path / "fresh"), training=replace(QUICK, epochs=1))
    learner.fit_candidates(TRAIN)
    before = learner(TEST)
    pd.testing.assert_frame_equal(learner.apart()(TEST), before)
    with pytest.raises(FloatingPointError):
        learner.with_training(learning_rate=1e37).fit_candidates(TRAIN)
    pd.testing.assert_frame_equal(learner(TEST), before)


def test_numbers_as_ids_and_float_labels():
    by_number = [
        frame.assign(qid=pd.factorize(frame["qid"])[0], label=frame["label"].astype(float)) for frame in (TRAIN, DEV)
    ]
    learner = ranker(training=replace(QUICK, epochs=2)).fit_candidates(*by_number)
    expected = ranker(training=replace(QUICK, epochs=2)).fit_candidates(TRAIN, DEV)
    pd.testing.assert_frame_equal(learner.history, expected.history)


def test_half_a_surrogate_pair_is_a_word(tmp_path):
    odd = TRAIN.assign(text=pd.Series([text + " \ud800" for text in TRAIN["text"]], dtype=object))
    learner = ranker(training=replace(QUICK, epochs=1)).fit_candidates(odd)
    assert "\ud800" in learner.model.loaded.module.vectors.numbers
    before = learner(TEST)
    learner.save_pretrained(str(tmp_path))
    pd.testing.assert_frame_equal(HierarchicalRanker.from_pretrained(str(tmp_path))(TEST), before)


def test_an_unwritable_folder_is_an_error_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    training = replace(QUICK, folder=str(tmp_path / "file" / "kept"))
    with pytest.raises(PermissionError, match=re.escape(f"cannot write checkpoints to {training.folder}: ")):
        ranker(training=training).fit_candidates(TRAIN)


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError) as error:
        ranker().fit_candidates(TRAIN)
    assert str(error.value) == "a HierarchicalRanker is trained in one process, not in 2: start it without torchrun"
