"""Where candidates end under policies of any kind."""

from dataclasses import asdict

import numpy as np
import pytest

from pyterrier_cascade.early_exit import fates as module
from pyterrier_cascade.early_exit.fates import fates
from pyterrier_cascade.early_exit.policy import Policy
from pyterrier_cascade.early_exit.rank_measures import NOWHERE
from tests.drawn_traces import drawn_trace

ROWS = np.arange(3, 30)
POLICIES = [
    Policy(alpha=0.4),
    Policy(margin=2.0),
    Policy(counts=(6, 2), exited="drop"),
    Policy(alpha=(0.5, 0.1), batch_size=4),
    Policy(plan=(4, 6), alpha=0.7),
    Policy(margin=(0.0, 5.0), margin_k=3, exited="drop", batch_size=5),
    Policy(plan=(6,)),
]


@pytest.fixture(params=[False, True])
def trace(request):
    return drawn_trace([3, 12, 1, 14, 9], ties=request.param)


def test_they_are_those_of_the_results(trace):
    relevant = np.array([0, 4, 5, 11, 12, 13, 20, 26])
    found = fates(trace, ROWS, relevant, POLICIES)
    asked = trace.docnos[ROWS][relevant]
    for number, policy in enumerate(POLICIES):
        results = trace.results(**asdict(policy)).set_index("docno")
        ranks = results["rank"].reindex(asked).fillna(NOWHERE).astype(int)
        assert found.positions[number].tolist() == ranks.tolist()
        layers = np.array(policy.plan or trace.layers)
        there = ranks.to_numpy() < NOWHERE
        exits = results["exit_layer"].reindex(asked).to_numpy()
        assert layers[found.exits[number]][there].tolist() == exits[there].tolist()
        # The cost of a question is the same in each of its rows.
        rows = trace.results(**asdict(policy) | {"exited": "below"}).drop_duplicates("qid").set_index("qid")
        rows = rows.loc[["q1", "q2", "q3"]]
        assert found.costs[number] == pytest.approx((rows["q_cost"] / rows["q_cost_full"]).sum())
        assert found.token_costs[number] == pytest.approx((rows["q_token_cost"] / rows["q_token_cost_full"]).sum())


def test_the_fast_path_and_the_exact_one_are_equal(trace, monkeypatch):
    rng = np.random.default_rng(0)
    policies = [
        Policy(alpha=tuple(rng.choice([0, 0.2, 0.5, 0.8], 2).tolist()), batch_size=size) for size in (None, 3) * 9
    ]
    fast = fates(trace, np.arange(39), np.arange(39), policies)
    monkeypatch.setattr(module, "run_grid", module.run_one_by_one)
    exact = fates(trace, np.arange(39), np.arange(39), policies)
    np.testing.assert_array_equal(fast.positions, exact.positions)
    np.testing.assert_array_equal(fast.exits, exact.exits)
    np.testing.assert_allclose(fast.costs, exact.costs)
    np.testing.assert_allclose(fast.token_costs, exact.token_costs)


def test_nobody_is_watched(trace):
    found = fates(trace, ROWS, np.empty(0, np.int64), POLICIES)
    assert found.positions.shape == (len(POLICIES), 0) and (found.costs > 0).all()
