"""The statistics of a certificate, by hand."""

import json
import math
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy.stats import binom

from pyterrier_cascade.early_exit.certificate import Certificate, last_passed, p_value, path_of, queries_needed
from pyterrier_cascade.early_exit.policy import Policy


@pytest.mark.parametrize(
    ("total", "n", "at_most", "expected"),
    [
        (0, 2, 0.5, 0.25),
        (1, 2, 0.5, 0.75),
        (2, 2, 0.5, 1.0),
        (1, 4, 0.25, 189 / 256),  # .75^4 + 4 x .25 x .75^3
        (0, 59, 0.05, 0.95**59),
    ],
)
def test_losses_of_0_and_1_have_the_exact_p_value(total, n, at_most, expected):
    assert p_value(total, n, at_most, True) == pytest.approx(expected, rel=1e-12)


def test_the_exact_p_value_is_that_of_scipy():
    for total, n, at_most in [(0, 60, 0.05), (7, 500, 0.03), (30, 300, 0.1), (299, 300, 0.9), (40, 10_000, 0.005)]:
        assert p_value(total, n, at_most, True) == pytest.approx(binom.cdf(total, n, at_most), rel=1e-9)


@pytest.mark.parametrize(
    ("total", "n", "at_most", "expected"),
    [
        # Hoeffding: without a loss .9^20.
        (0.0, 20, 0.1, 0.9**20),
        # Hoeffding: (.42 / .75)^-4.2 x (.58 / .25)^-5.8.
        (4.2, 10, 0.75, (0.42 / 0.75) ** -4.2 * (0.58 / 0.25) ** -5.8),
        # Bentkus: e x P(Bin(10, .75) <= 5) = e x .078, where Hoeffding has (3 / 4)^5 = .237.
        (5.0, 10, 0.75, math.e * 81922 / 2**20),
        # Bentkus rounds the sum up: e x P(Bin(10, .75) <= 5), where Hoeffding has .225.
        (4.95, 10, 0.75, math.e * 81922 / 2**20),
        # At the bound and above it nothing is certain.
        (1.0, 10, 0.1, 1.0),
        (3.0, 10, 0.1, 1.0),
    ],
)
def test_other_losses_have_the_p_value_of_hoeffding_and_bentkus(total, n, at_most, expected):
    assert p_value(total, n, at_most, False) == pytest.approx(expected, rel=1e-9)


def test_rounding_adds_no_loss():
    assert p_value(1.0 + 1e-12, 100, 0.05, True) == p_value(1.0, 100, 0.05, True)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("at_most", "confidence", "needed"),
    [(0.05, 0.95, 59), (0.05, 0.9, 45), (0.1, 0.95, 29), (0.01, 0.99, 459), (0.9, 0.99, 2), (0.5, 0.75, 2)],
)
def test_so_many_queries_without_a_loss_are_needed(at_most, confidence, needed, binary):
    assert queries_needed(at_most, confidence) == needed
    for n, place in ((needed, 1), (needed - 1, 0)):
        passes = p_value(0.0, n, at_most, binary) <= 1 - confidence + 1e-12
        assert passes == bool(place)


def test_the_path_goes_from_dear_to_cheap():
    """Costs and risks by hand; 0 is the full cascade, 1 beats 2 and 3, 5 beats 4."""
    risks = np.array([0.0, 0.1, 0.1, 0.2, 0.5, 0.4])
    costs = np.array([1.0, 0.95, 0.97, 0.96, 0.94, 0.93])
    # The step at .98 has the dearest of the settings with the least risk; that at .96 has the one on the front.
    assert path_of(risks, costs).tolist() == [0, 2, 1, 5]
    # A setting that loses nothing and costs less takes the place of nobody: the full cascade stays first.
    assert path_of(np.zeros(3), np.array([1.0, 0.999, 0.995])).tolist() == [0, 2]
    assert path_of(np.zeros(2), np.array([1.0, 1.0])).tolist() == [0]
    assert path_of(np.zeros(3), np.array([1.0, 0.5, 0.9])).tolist() == [0, 2, 1]


def losses(*totals: int, n: int = 30) -> np.ndarray:
    return np.array([[1.0] * total + [0.0] * (n - total) for total in totals])


def test_the_sequence_ends_at_the_first_that_fails():
    """At .1 and 80%, of 30 queries one may lose: P(Bin(30, .1) <= 1) = .184, <= 2 = .411."""
    assert last_passed(losses(0, 1, 1, 2, 0), 0.1, 0.8, True) == (2, pytest.approx(0.9**30 + 3 * 0.9**29))
    assert last_passed(losses(0, 2, 0), 0.1, 0.8, True) == (0, pytest.approx(0.9**30))
    assert last_passed(losses(0, 0, 0), 0.1, 0.8, True)[0] == 2
    # The p-value for losses of other kinds is larger: e x .184 does not pass.
    assert last_passed(losses(0, 1), 0.1, 0.8, False)[0] == 0


CERTIFICATE = Certificate(
    settings=asdict(Policy(alpha=(0.3, np.float64(0.15)), batch_size=8)),
    cost=0.52341,
    risk="the share of queries that lose the full cascade's first answer",
    at_most=0.05,
    confidence=0.95,
    observed=0.012,
    learned=251,
    tested=250,
    p_value=0.00071234,
    fingerprint="abc",
)


def test_it_is_a_sentence():
    assert str(CERTIFICATE) == repr(CERTIFICATE) == (
        "With 95% confidence, the share of queries that lose the full cascade's first answer is at most 5% on new "
        "queries of the same kind, at 52.3% of the layers with alpha=(0.3, 0.15), batch_size=8 (on 250 tested queries: "
        "1.2%, p = 0.00071)."
    )  # fmt: skip
    full = replace(CERTIFICATE, settings=asdict(Policy()), cost=1.0, observed=0.0)
    assert str(full) == (
        "No setting that drops candidates passed the test on 250 queries: for none is it sure, with 95% confidence, "
        "that the share of queries that lose the full cascade's first answer is at most 5% on new queries of the same "
        "kind. The full cascade loses nothing and costs 100% of the layers (alpha=0.0)."
    )


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(alpha=np.float32(0.25)),
        Policy(counts=(np.int64(5), 2), exited="drop"),
        Policy(margin=4, margin_k=np.int64(10), plan=[4, 12]),
    ],
    ids=repr,
)
def test_it_comes_back_from_json(policy):
    one = replace(CERTIFICATE, settings=asdict(policy))
    config = one.to_config()
    back = Certificate.from_config(json.loads(json.dumps(config)))
    assert back == one and Policy(**back.settings) == policy
    assert set(config["settings"]) <= {"alpha", "counts", "exited", "margin", "margin_k", "plan"}
    assert re.fullmatch(r"\w+=.*", one.setting)
