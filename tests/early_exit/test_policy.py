"""The settings of early exit as one value, and the plan that follows from them."""

import pickle
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pyterrier_cascade.early_exit.policy import Plan, Policy, default_heads, policies_of
from pyterrier_cascade.early_exit.rules.count import KeepCount
from pyterrier_cascade.early_exit.rules.fraction import KeepFraction
from pyterrier_cascade.early_exit.rules.margin import KeepWithin

HEADS = (4, 6, 8, 10, 12)
EVERYTHING, SIXTY = KeepFraction(Fraction(1)), KeepFraction(Fraction(3, 5))


@pytest.mark.parametrize(
    ("settings", "plan"),
    [
        ({}, Plan(HEADS, ((EVERYTHING,),) * 4 + ((),))),
        ({"alpha": 0.4}, Plan(HEADS, ((SIXTY,),) * 4 + ((),))),
        ({"alpha": 0.4, "plan": [4, 12], "batch_size": 3}, Plan((4, 12), ((SIXTY,), ()), 3)),
        ({"alpha": [0.4, 0], "plan": (4, 6, 12)}, Plan((4, 6, 12), ((SIXTY,), (EVERYTHING,), ()))),
        ({"counts": (9, 5, 5, np.int64(2))}, Plan(HEADS, (*((KeepCount(n),) for n in (9, 5, 5, 2)), ()))),
        ({"alpha": 0.4, "plan": (4, 12), "rounding": "nearest"},
         Plan((4, 12), ((KeepFraction(Fraction(3, 5), "nearest"),), ()))),
        ({"plan": (12,)}, Plan((12,), ((),))),
        ({"margin": 3}, Plan(HEADS, ((KeepWithin(3.0),),) * 4 + ((),))),
        ({"margin": [4.0, 0], "margin_k": 10, "plan": (4, 6, 12), "alpha": (0, 0)},
         Plan((4, 6, 12), ((KeepWithin(4.0, 10),), (KeepWithin(0.0, 10),), ()))),
    ],
    ids=repr,
)  # fmt: skip
def test_a_policy_becomes_a_plan(settings, plan):
    assert Policy(**settings).resolve(HEADS) == plan


def test_a_policy_is_a_value():
    one, two = Policy(alpha=[0.4, 0.2], plan=[4, 6, 12]), Policy(alpha=(0.4, 0.2), plan=(4, 6, 12))
    assert one == two and hash(one) == hash(two) and pickle.loads(pickle.dumps(one)) == two
    assert replace(one, alpha=0.0, counts=(5, 2)).resolve((4, 6, 12)).rules == ((KeepCount(5),), (KeepCount(2),), ())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 1.0}, "alpha=1.0 is not a fraction to drop"),
        ({"alpha": (0.3, -0.1)}, "alpha=-0.1 is not a fraction to drop"),
        ({"counts": (5, 8, 3)}, "counts=(5, 8, 3): a head cannot keep 8 candidates where the one before it keeps 5"),
        ({"counts": (5, 2), "alpha": 0.3}, "alpha=0.3 and counts=(5, 2) exclude each other; give one of them"),
        ({"margin": 0, "alpha": 0.3}, "alpha=0.3 and margin=0 exclude each other; give one of them"),
        ({"margin": 2.5, "counts": (9, 5)}, "counts=(9, 5) and margin=2.5 exclude each other; give one of them"),
        ({"margin": (1.0, -2)}, "margin=-2 is not a distance between scores; give a number in log-odds, 0 or more"),
        ({"margin_k": 0}, "margin_k=0: give the place of a candidate, 1 or more"),
        ({"plan": (12, 4)}, "plan=(12, 4): give layers in ascending order, each once"),
        ({"plan": 4}, "plan=4: give layers in ascending order"),
        ({"batch_size": 0}, "batch_size=0: give 1 or more, or None"),
        ({"batch_size": True}, "batch_size=True: give 1 or more, or None"),
        ({"rounding": "up"}, "rounding must be one of floor, nearest, not 'up'"),
        ({"exited": "blow"}, "exited must be one of below, drop, not 'blow' (did you mean 'below'?)"),
    ],
    ids=repr,
)
def test_bad_settings_are_errors_when_the_value_is_made(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Policy(**settings)


def test_a_misspelt_setting_names_the_nearest():
    with pytest.raises(TypeError, match=re.escape("Policy has no setting 'aplha' (did you mean 'alpha'?)")):
        Policy(aplha=0.4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"plan": (4, 5)}, "plan=(4, 5), but there are heads at layers (4, 6, 8, 10, 12) only"),
        ({"alpha": (0.3, 0.3)}, "alpha=(0.3, 0.3) has 2 values, but 4 heads drop candidates, those at layers"),
        ({"margin": (1.0,)}, "margin=(1.0,) has 1 values, but 4 heads drop candidates, those at layers (4, 6, 8, 10)"),
        ({"counts": [9]}, "counts=(9,) has 1 values, but 4 heads drop candidates"),
    ],
    ids=repr,
)
def test_settings_that_do_not_fit_a_model(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Policy(**settings).resolve(HEADS)


@pytest.mark.parametrize(
    ("depth", "layers"), [(12, HEADS), (6, (2, 3, 4, 5, 6)), (24, (8, 12, 16, 20, 24)), (2, (1, 2)), (1, (1,))]
)
def test_default_heads(depth, layers):
    """CT-7."""
    assert default_heads(depth) == layers


def test_settings_become_policies():
    found = policies_of([{"alpha": 0.3}, {"plan": (4, 12)}], {"exited": "drop", "plan": (6, 12)})
    assert found == [Policy(alpha=0.3, plan=(6, 12), exited="drop"), Policy(plan=(4, 12), exited="drop")]


@pytest.mark.parametrize("settings", [{"alpha": 0.3}, "alpha", [0.3]], ids=repr)
def test_what_are_no_settings(settings):
    message = f"settings={settings!r}: give a list of dictionaries, such as [{{'alpha': 0.3}}, {{'alpha': (0.5, 0.2)}}]"
    with pytest.raises(ValueError, match=re.escape(message)):
        policies_of(settings, {})
    with pytest.raises(ValueError, match="settings is empty; give at least one setting"):
        policies_of([], {})


@pytest.mark.parametrize(
    ("settings", "drops"),
    [
        ({}, False),
        ({"alpha": (0, 0, 0, 0.1)}, True),
        ({"counts": (900, 900, 900, 900)}, True),
        ({"margin": 99.0}, True),
        ({"plan": (12,), "alpha": 0.5}, False),
    ],
    ids=repr,
)
def test_whether_candidates_may_leave_early(settings, drops):
    assert Policy(**settings).resolve(HEADS).drops == drops
