"""The backbone equals the equations pair by pair (HR-1 to HR-8), whichever pairs are computed together (X-3)."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from pyterrier_cascade.hierarchical.loading import HierarchicalModel, build
from pyterrier_cascade.hierarchical.model import HierarchicalArchitecture, attend, compare, relevance
from pyterrier_cascade.hierarchical.schemes import EQUATIONS
from tests.hierarchical import reference

MIXED = reference.pairs(
    [3, 7, 1, 7, 40], [1, 2, 5, 6, 9, 9, 30, 4, 17, 23, 80, 5], [0, 1, 2, 3, 0, 1, 2, 3, 4, 4, 0, 2]
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k_max": (3, 2)},
        {"k_max": (None, 1), "null_word": True},
        {"null_word": True, "k_max": (2, 2)},
        {"projection": True},
        {"kernels": 2},
    ],
    ids=str,
)
def test_packed_equals_pair_by_pair(options):
    net = reference.module(architecture=replace(reference.SMALL, **options))
    for level, expected in reference.all_outputs(net, MIXED).items():
        torch.testing.assert_close(net(MIXED)[level], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "level"), EQUATIONS)
def test_every_scheme_equals_its_equations(name, level):
    net = reference.module(name, level)
    expected = reference.all_outputs(net, MIXED)
    found = net(MIXED)
    assert found.keys() == expected.keys()
    for one, output in expected.items():
        torch.testing.assert_close(found[one], output, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "level"), EQUATIONS)
def test_one_level_alone_is_the_same(name, level):
    """A score needs the levels that feed its own, and nothing else."""
    net = reference.module(name, level)
    whole = net(MIXED)
    for one, output in whole.items():
        alone = net(MIXED, level=one)
        assert alone.keys() == {one}
        torch.testing.assert_close(alone[one], output, rtol=1e-5, atol=1e-5)
    assert net.scheme.needed(level) == ([level] if name == "MTL" else list(net.scheme.feeds))


def test_gradients_equal_those_of_the_equations():
    """Of all weights, through all levels (HR-26); words that are not tuned have none, nor has the unknown word."""
    net = reference.module()
    names = [name for name, _ in net.named_parameters()]

    def gradients(outputs):
        total = sum((output**2).sum() for output in outputs.values())
        return torch.autograd.grad(total, list(net.parameters()))

    for name, ours, theirs in zip(
        names, gradients(net(MIXED)), gradients(reference.all_outputs(net, MIXED)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-4, msg=lambda text, name=name: f"{name}: {text}")
    assert (gradients(net(MIXED))[names.index("vectors.tuned")][0] == 0).all()


@settings(max_examples=20)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 25)), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_a_score_depends_on_its_pair_alone(question_lengths, answers, random):
    model = HierarchicalModel(reference.module("RI", "pair"))
    question = [number % len(question_lengths) for number, _ in answers]
    whole = reference.pairs(question_lengths, [length for _, length in answers], question)
    expected = model.score(whole)
    rows = list(range(len(whole)))
    random.shuffle(rows)
    rows = np.array(rows[: random.randint(1, len(rows))])
    found = model.score(whole.take(rows), budget=random.choice([1, 20, 10_000]))
    np.testing.assert_allclose(found, expected[rows], rtol=0, atol=1e-5)


def test_attention_by_hand():
    """Similarities ln 1, ln 2, ln 5 are weights 1/8, 2/8, 5/8; pads get none, k-max renormalises (HR-3, HR-7)."""
    similarity = torch.log(torch.tensor([[[1.0, 2.0, 5.0]]]))
    torch.testing.assert_close(attend(similarity), torch.tensor([[[0.125, 0.25, 0.625]]]))
    mask = torch.tensor([[True, True, False]])
    torch.testing.assert_close(attend(similarity, mask), torch.tensor([[[1 / 3, 2 / 3, 0]]]))
    torch.testing.assert_close(attend(similarity, k_max=2), torch.tensor([[[0, 2 / 7, 5 / 7]]]))
    torch.testing.assert_close(attend(similarity, k_max=9), torch.tensor([[[0.125, 0.25, 0.625]]]))
    torch.testing.assert_close(attend(similarity, null=True), torch.tensor([[[1 / 9, 2 / 9, 5 / 9]]]))
    torch.testing.assert_close(attend(similarity, mask, k_max=2), torch.tensor([[[1 / 3, 2 / 3, 0]]]))


def test_a_word_attends_to_the_other_side():
    """Equation 3 as it must be read (HR-3): with one word on each side, both compare with the other."""
    question, answer = torch.tensor([[[2.0, 3.0]]]), torch.tensor([[[5.0, 7.0]]])
    c_q, c_a = compare(question, answer)
    assert c_q.tolist() == c_a.tolist() == [[[10.0, 21.0]]]
    two = torch.tensor([[[0.0, 0.0], [4.0, 8.0]]])
    c_q, c_a = compare(torch.zeros(1, 1, 2) + 1, two - two)
    assert c_q.shape == (1, 1, 2) and c_a.shape == (1, 2, 2)


def test_published_sizes():
    """HR-1, HR-5, HR-24: 300 hidden, 150 channels for each of five kernels, r of 1,500."""
    sizes = HierarchicalArchitecture()
    assert (sizes.width, sizes.channels, sizes.kernels, sizes.features) == (300, 150, 5, 1_500)
    net = build("PRI", "list", sizes)
    assert [net.perceptrons[level][0].in_features for level in ("point", "pair", "list")] == [1_500, 3_000, 4_500]
    assert [net.perceptrons[level][2].out_features for level in ("point", "pair", "list")] == [2, 1, 1]
    assert [tuple(kernel.weight.shape) for kernel in net.kernels] == [(450, 300 * k) for k in range(1, 6)]


def test_the_score_of_each_level():
    assert relevance(torch.tensor([[1.0, 3.0], [2.0, 0.0]])).tolist() == [2.0, -2.0]
    assert relevance(torch.tensor([[1.0], [3.0]])).tolist() == [1.0, 3.0]


def test_bf16_is_near():
    sizes = HierarchicalArchitecture(embedding_width=32, width=32, channels=16, hidden=16)
    model = HierarchicalModel(reference.module(architecture=sizes))
    exact, near = model.score(MIXED), model.score(MIXED, precision="bf16")
    assert 0 < np.abs(exact - near).max() < 0.05 * np.ptp(exact)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be a whole number from 1, not 0"),
        ({"hidden": 2.5}, "hidden must be a whole number from 1, not 2.5"),
        ({"kernels": 0}, "kernels must be a whole number from 1, not 0"),
        ({"k_max": (0, 1)}, r"k_max must be two whole numbers from 1, or None for all words, not \(0, 1\)"),
        ({"k_max": (1,)}, r"k_max must be two whole numbers from 1, or None for all words, not \(1,\)"),
        ({"frequent_words": -1}, "frequent_words must be a whole number from 0, not -1"),
    ],
)
def test_bad_sizes(options, message):
    with pytest.raises(ValueError, match=message):
        HierarchicalArchitecture(**options)
