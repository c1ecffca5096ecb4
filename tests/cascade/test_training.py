"""How heads share the steps of a training (CT-15 to CT-18)."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from pyterrier_cascade import Cascade, CascadeTraining
from pyterrier_cascade.cascade.training import HEADS, distillation, drawn_heads, loss_of


def test_heads_are_drawn_uniformly():
    """CT-16: chi square of 10,000 draws; 18.5 is the value that four degrees of freedom exceed once in a thousand."""
    heads = drawn_heads(CascadeTraining(sampling="uniform"), 5, [10_000])
    counts = np.bincount(heads, minlength=5)
    assert ((counts - 2_000) ** 2 / 2_000).sum() < 18.5
    assert (drawn_heads(CascadeTraining(), 5, [10_000]) == heads).all()
    assert (drawn_heads(CascadeTraining(seed=1), 5, [10_000]) != heads).any()


def test_heads_in_turn():
    assert drawn_heads(CascadeTraining(sampling="round_robin"), 3, [4, 3]).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_early_heads_first():
    """With a bias of 2 the five heads are drawn 16, 8, 4, 2 and 1 times in 31; after the first epoch evenly."""
    heads = drawn_heads(CascadeTraining(sampling="early_bias", bias=2.0, bias_epochs=1), 5, [31_000, 10_000])
    np.testing.assert_allclose(np.bincount(heads[:31_000]) / 1_000, [16, 8, 4, 2, 1], rtol=0.1)
    np.testing.assert_allclose(np.bincount(heads[31_000:]) / 2_000, 1, rtol=0.1)


class Fixed(torch.nn.Module):
    """Heads whose logits are known."""

    def __init__(self, *logits):
        super().__init__()
        self.logits = [torch.tensor(values, requires_grad=True) for values in logits]

    def forward(self, heads=None, stop_gradient=False):
        self.asked = heads, stop_gradient
        return [self.logits[head] for head in (range(len(self.logits)) if heads is None else heads)]


def test_the_loss_of_one_sampled_head():
    module = Fixed([[0.0, 0.0]], [[0.0, 1.0]])
    settings = CascadeTraining(heads="sampled", sampling="round_robin", stop_gradient=True)
    compute = loss_of(settings, 2, [4])
    assert compute(module, {}, torch.tensor([1]), 2).item() == pytest.approx(np.log(2))
    assert compute(module, {}, torch.tensor([1]), 3).item() == pytest.approx(np.log(1 + np.exp(-1)))
    assert module.asked == ([1], True)


def test_the_losses_of_all_heads():
    logits = [[0.0, 0.0], [1.0, -1.0]], [[0.5, 0.0], [0.0, 2.0]]
    labels = torch.tensor([0, 1])
    module = Fixed(*logits)
    joint = loss_of(CascadeTraining(heads="joint"), 2, [1])(module, {}, labels, 0)
    parts = [F.cross_entropy(torch.tensor(one), labels).item() for one in logits]
    assert joint.item() == pytest.approx(np.mean(parts))
    distilled = loss_of(CascadeTraining(heads="distilled", temperature=2.0), 2, [1])(module, {}, labels, 0)
    student, teacher = (torch.tensor(one).div(2).softmax(1).numpy() for one in logits)
    lesson = 4 * (teacher * np.log(teacher / student)).sum(1).mean()
    assert distilled.item() == pytest.approx(((parts[0] + lesson) / 2 + parts[1]) / 2)
    module.logits[1].grad = None
    distilled.backward()
    expected = F.cross_entropy(torch.tensor(logits[1], requires_grad=True), labels)
    assert expected.item() == pytest.approx(parts[1])
    own = torch.tensor(logits[1], requires_grad=True)
    (F.cross_entropy(own, labels) / 2).backward()
    torch.testing.assert_close(module.logits[1].grad, own.grad)


def test_distillation_of_one_output_is_that_of_two_classes():
    one, two = torch.tensor([[0.7], [-2.0]]), torch.tensor([[1.0], [0.3]])
    wide = [torch.cat([torch.zeros(2, 1), values], 1) for values in (one, two)]
    assert distillation(one, two, 3.0).item() == pytest.approx(distillation(*wide, 3.0).item())
    assert distillation(one, one, 3.0).item() == pytest.approx(0, abs=1e-7)


def questions(n: int, seed: int) -> pd.DataFrame:
    """Questions whose answer names what is asked for."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(n):
        asked = str(rng.choice(["ship", "town"]))
        for rank in range(5):
            right = rank == number % 5
            other = "town" if asked == "ship" else "ship"
            text = f"the {asked if right else other} was {rng.choice(['founded', 'launched'])}"
            rows.append((f"q{seed}-{number}", f"what {asked}", f"d{seed}-{number}-{rank}", text, int(right)))
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "label"])


@pytest.mark.parametrize("heads", HEADS)
def test_all_heads_learn(heads, tmp_path):
    from tests import tiny

    source = tiny.save(tmp_path, layers=3, outputs=None)
    training = CascadeTraining(
        heads=heads, learning_rate=1e-3, head_learning_rate=1e-3, epochs=16, tokens_per_batch=300, patience=20
    )
    cascade = Cascade.from_pretrained(source, training=training)
    cascade.fit_candidates(questions(80, 1), questions(20, 2))
    columns = ["dev_map", "dev_map_1", "dev_map_2", "dev_map_3"]
    course = cascade.history[columns].dropna()
    assert (course["dev_map"] == course["dev_map_3"]).all()
    best = course.loc[course["dev_map"].idxmax()]
    # One layer is too few for this.
    assert (best[["dev_map_2", "dev_map_3"]] > 0.9).all(), course
    test = questions(20, 3)
    out = cascade(plan=(2, 3), alpha=0.5)(test.drop(columns="label"))
    found = out[out["rank"] == 0].merge(test)["label"]
    assert found.mean() > 0.85


def test_the_watched_head_ends_the_training(tmp_path):
    from tests import tiny

    source = tiny.save(tmp_path, layers=3, outputs=None)
    training = CascadeTraining(learning_rate=1e-3, epochs=3, tokens_per_batch=300, watch=2)
    cascade = Cascade.from_pretrained(source, training=training)
    cascade.fit_candidates(questions(30, 1), questions(10, 2))
    course = cascade.history.dropna(subset="dev_map")
    assert (course["dev_map"] == course["dev_map_2"]).all()
    with pytest.raises(ValueError, match=re.escape("has heads at layers (1, 2, 3)")):
        cascade(training=CascadeTraining(watch=5)).fit_candidates(questions(30, 1), questions(10, 2))
    with pytest.raises(ValueError, match=re.escape("watch must be the number of a layer with a head, or None, not 0")):
        cascade(training=CascadeTraining(watch=0)).fit_candidates(questions(30, 1), questions(10, 2))


def test_what_was_trained_is_saved_with_its_card(tmp_path):
    import pickle

    from tests import tiny

    source = tiny.save(tmp_path / "source", layers=3, outputs=None)
    training = CascadeTraining(learning_rate=1e-3, epochs=1, tokens_per_batch=300)
    cascade = Cascade.from_pretrained(source, training=training)
    cascade.fit_candidates(questions(30, 1), questions(10, 2))
    again = pickle.loads(pickle.dumps(cascade))
    again.save_pretrained(str(tmp_path / "saved"), data="ships")
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "ships\n30 questions with 150 candidates, 30 of them positive." in card
    assert "heads=" not in card and "Trained with `CascadeTraining(learning_rate=0.001" in card
    lines = re.findall(r"^\| (.*) \| (\d\.\d+) \| (\d\.\d+) \|$", card, re.M)
    assert [line[0] for line in lines] == [
        "head at layer 1, alpha 0", "head at layer 2, alpha 0", "head at layer 3, alpha 0",
        "alpha 0.3", "alpha 0.4", "alpha 0.5",
    ]  # fmt: skip
    assert [float(line[1]) for line in lines[:3]] == pytest.approx([1 / 3, 2 / 3, 1], abs=1e-3)
    loaded = Cascade.from_pretrained(str(tmp_path / "saved"))
    assert loaded.model.loaded.untrained is None
    test = questions(5, 3).drop(columns="label")
    pd.testing.assert_frame_equal(loaded(test), cascade(test))


def test_the_first_process_alone_measures_for_the_card(tmp_path, monkeypatch):
    """Under torchrun every process would trace all development questions once more."""
    from tests import tiny

    traced = []
    trace = Cascade.trace
    monkeypatch.setattr(Cascade, "trace", lambda self, *given: traced.append(1) or trace(self, *given))
    source = tiny.save(tmp_path, layers=3, outputs=None)
    training = CascadeTraining(learning_rate=1e-3, epochs=1, tokens_per_batch=300)
    for first, n_traced in ((False, 0), (True, 1)):
        monkeypatch.setattr("pyterrier_cascade.cascade.ranker.leads", lambda first=first: first)
        cascade = Cascade.from_pretrained(source, training=training).fit_candidates(questions(9, 1), questions(5, 2))
        assert len(traced) == n_traced and bool(cascade.model.loaded.trained_on.quality) is bool(n_traced)


def test_the_papers_settings():
    """CT-16, CT-20, CT-21: 2,000 tokens on each of 8 GPUs."""
    settings = CascadeTraining.as_published(epochs=9)
    assert settings.heads == "sampled" and settings.sampling == "uniform" and not settings.stop_gradient
    assert settings.learning_rate == settings.rate_of_heads == 1e-6
    assert CascadeTraining().rate_of_heads == pytest.approx(3e-4)
    assert settings.warmup == 4_000 and settings.weight_decay == 0
    assert settings.tokens_per_batch * settings.accumulate == 16_000 and settings.epochs == 9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": "all"}, "heads must be one of joint, distilled, sampled, not 'all'"),
        ({"sampling": "random"}, "sampling must be one of uniform, round_robin, early_bias, not 'random'"),
        ({"bias": 1.0}, "bias must be a number above 1, not 1.0; without one use sampling='uniform'"),
        ({"bias_epochs": 0}, "bias_epochs must be a whole number and at least 1, not 0"),
        ({"bias": float("nan")}, "bias must be a number above 1, not nan; without one use sampling='uniform'"),
        ({"bias_epochs": 1.5}, "bias_epochs must be a whole number and at least 1, not 1.5"),
        ({"temperature": "2"}, "temperature must be a number above 0, not '2'"),
        ({"watch": True}, "watch must be the number of a layer with a head, or None, not True"),
        ({"stop_gradient": 1}, "stop_gradient must be True or False, not 1"),
        ({"temperature": 0}, "temperature must be a number above 0, not 0"),
        ({"epochs": 0}, "epochs must be a whole number and at least 1, not 0"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CascadeTraining(**settings)
