"""The set of layers with the cheapest cascade, by hand."""

import numpy as np

from pyterrier_cascade.cascade.placement import cheapest_layers


def made_up(quality: dict[int, float], n_questions: int = 100, size: int = 20, depth: int = 6):
    """Scores of heads at all layers; a head's noise is what its quality lacks."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=n_questions * size)
    noise = rng.normal(size=(len(truth), depth))
    shares = np.array([quality.get(layer, 0.0) for layer in range(1, depth + 1)])
    scores = shares * truth[:, None] + (1 - shares) * noise
    return scores, np.repeat(np.arange(n_questions), size), tuple(range(1, depth + 1))


def test_one_perfect_early_head_is_enough():
    assert cheapest_layers(*made_up({2: 1.0, 6: 1.0})) == (2, 6)


def test_where_no_early_head_helps_there_is_none():
    scores, questions, layers = made_up({6: 1.0})
    assert cheapest_layers(scores, questions, layers) == (6,)


def test_a_poor_early_head_and_a_good_later_one_work_together():
    chosen = cheapest_layers(*made_up({1: 0.7, 3: 0.95, 6: 1.0}))
    assert chosen == (1, 3, 6)


def test_at_most_four_before_the_last():
    quality = {layer: layer / 12 for layer in range(1, 13)}
    assert len(cheapest_layers(*made_up(quality, depth=12))) <= 5
