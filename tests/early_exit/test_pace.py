"""What spans cost, and how many candidates a time suffices for."""

import itertools

import numpy as np
import pytest

from pyterrier_cascade.early_exit.pace import LEAST_SHARE, Pace

TOKENS = np.array([7, 30, 12, 12, 50, 3, 21, 9])
LAYERS = [4, 2, 2]


def paced(**rates) -> Pace:
    pace = Pace()
    for name, value in ({"per_layer": 0.01, "per_token": 0.001} | rates).items():
        setattr(pace, name, value)
    return pace


def test_a_span_takes_time_by_layers_and_tokens():
    assert paced().span(4, 100) == pytest.approx(4 * (0.01 + 0.1))
    assert paced(speed=1.5).span(2, 10) == pytest.approx(1.5 * 2 * (0.01 + 0.01))
    assert paced().span(2, np.array([0, 10])).tolist() == pytest.approx([0, 2 * 0.02])


def test_a_measurement_gives_both_rates():
    pace = Pace()
    pace.measure((10, 110), (0.02, 0.12))
    assert (pace.per_layer, pace.per_token) == pytest.approx((0.01, 0.001))
    assert pace.measured


@pytest.mark.parametrize("seconds", [(0.5, 0.1), (0.001, 0.1), (0.1, 0.1)])
@pytest.mark.parametrize("tokens", [(10, 110), (10, 10)])
def test_a_disturbed_measurement_gives_rates_that_can_be(tokens, seconds):
    pace = Pace()
    pace.measure(tokens, seconds)
    assert pace.per_token > 0 and pace.per_layer >= 0
    assert pace.span(1, tokens[1]) == pytest.approx(0.1, rel=1e-9)


def test_the_speed_follows_the_machine():
    pace = paced()
    for _ in range(30):
        pace.ran(2, 100, 3 * 2 * 0.11)
    assert pace.speed == pytest.approx(3, rel=0.01)
    pace.ran(2, 100, 1000.0)
    assert pace.speed == pytest.approx(3 * 1.2, rel=0.01)
    pace.ran(2, 0, 1.0)
    assert pace.speed == pytest.approx(3 * 1.2, rel=0.01)
    for _ in range(30):
        pace.rested()
    assert pace.speed == pytest.approx(1, rel=0.15)
    for _ in range(200):
        pace.rested()
    assert pace.speed == 0.5


def test_what_is_observed_first_counts_wholly():
    pace = Pace()
    pace.read(1000, 200, 0.5)
    pace.finished(0.002)
    assert (pace.per_character, pace.tokens_per_character, pace.frame) == (0.0005, 0.2, 0.002)
    pace.read(1000, 300, 1.0)
    pace.finished(0.003)
    found = pace.per_character, pace.tokens_per_character, pace.frame
    assert found == pytest.approx((0.0006, 0.22, 0.0022))


def cost(counts) -> float:
    """The seconds of spans that so many of the first candidates run, one by one."""
    return sum(n_layers * (0.01 + 0.001 * TOKENS[:n].sum()) for n_layers, n in zip(LAYERS, counts, strict=True) if n)


@pytest.mark.parametrize("seconds", [-1, 0, 0.05, 0.09, 0.2, 0.35, 0.5, 0.62, 0.8, 1.1, 1.4, 2])
def test_as_many_go_on_as_fit_with_one_share_at_all_heads(seconds):
    found = paced().go_on(TOKENS, LAYERS, seconds)
    plans = [[n, int(n * n / 8 + 1e-9), int(n * (n / 8) ** 2 + 1e-9)] for n in range(9)]
    assert found == max(n for n in range(9) if n == 0 or cost(plans[n]) <= seconds)
    if found < 8:
        assert cost(plans[found + 1]) > seconds


@pytest.mark.parametrize("seconds", [-1, 0.05, 0.09, 0.2, 0.35, 0.5, 0.62, 0.7, 0.8, 1.1])
@pytest.mark.parametrize("per_character", [0, 0.0005])
def test_as_many_begin_as_leave_time_for_the_best(seconds, per_character):
    pace = paced(per_character=per_character)
    characters = 5 * TOKENS

    def all_in_all(n):
        return cost([n, int(n * LEAST_SHARE), int(n * LEAST_SHARE**2)]) + per_character * characters[:n].sum()

    found = pace.begin(TOKENS, LAYERS, seconds, characters)
    assert found == max(n for n in range(9) if n == 0 or all_in_all(n) <= seconds)
    assert pace.begin(TOKENS, LAYERS, 100.0, characters) == 8


def test_nobody_goes_on_of_nobody():
    nobody = np.empty(0, dtype=np.int64)
    assert paced().go_on(nobody, LAYERS, 1.0) == paced().begin(nobody, LAYERS, 1.0) == 0


def test_more_time_never_means_fewer():
    times = np.linspace(0, 2, 60)
    for decide in (paced().go_on, paced().begin):
        found = [decide(TOKENS, LAYERS, seconds) for seconds in times]
        assert all(one <= two for one, two in itertools.pairwise(found)) and found[0] == 0 and found[-1] == 8
