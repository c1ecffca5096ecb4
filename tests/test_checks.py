"""Checks of settings, and warnings that point at the user's own line."""

import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from pyterrier_cascade import checks


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("flor", "rounding must be one of floor, nearest, not 'flor' (did you mean 'floor'?)"),
        ("up", "rounding must be one of floor, nearest, not 'up'"),
        (None, "rounding must be one of floor, nearest, not None"),
    ],
)
def test_a_choice_among_names(value, message):
    checks.check_choices(rounding=("floor", ("floor", "nearest")))
    with pytest.raises(ValueError, match=re.escape(message) + "$"):
        checks.check_choices(rounding=(value, ("floor", "nearest")))


def test_a_misspelt_name():
    class Settings(checks.KnownSettings):
        def __init__(self, alpha, verbose=False):
            self.alpha = alpha

    assert Settings(1).alpha == Settings(alpha=1).alpha == 1
    expected = "Settings has no setting 'alhpa' (did you mean 'alpha'?); its settings are alpha, verbose"
    with pytest.raises(TypeError, match=re.escape(expected)):
        Settings(alhpa=1)
    with pytest.raises(TypeError, match=re.escape("Settings has no setting 'zzz'; its settings are alpha, verbose")):
        Settings(1, zzz=2)


@pytest.mark.parametrize(
    ("value", "least", "is_one"),
    [(1, 1, True), (np.int64(3), 1, True), (0, 1, False), (0, 0, True), (True, 1, False), (2.0, 1, False),
     ("2", 1, False), (None, 1, False)],
)  # fmt: skip
def test_counts(value, least, is_one):
    assert checks.is_count(value, least) is is_one


def test_a_warning_points_at_the_line_outside_of_the_package():
    source = "def deep():\n    from pyterrier_cascade.checks import warn_user\n    warn_user('careful')\n"
    inner = {"__name__": "pyterrier_cascade.somewhere"}
    exec(compile(source, "inner.py", "exec"), inner)
    outer = {"__name__": "pyterrier.pipelines", "deep": inner["deep"]}
    exec(compile("def through():\n    deep()\n", "outer.py", "exec"), outer)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        line = inspect.currentframe().f_lineno + 1
        outer["through"]()
    assert [(str(one.message), Path(one.filename), one.lineno) for one in seen] == [("careful", Path(__file__), line)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "docno 'a'"),
        (["a", "b"], "2 docnos ('a', 'b')"),
        (list("abcdefg"), "7 docnos ('a', 'b', 'c', 'd', 'e', ...)"),
    ],
)
def test_names_in_errors(names, message):
    assert checks.listed(names, "docno") == message


@pytest.mark.parametrize("value", ["d" * 5_000_000, "\n" * 1_000, ["long " * 100] * 100, {"a": "b" * 1_000}, object()])
def test_long_values_are_shortened_for_messages(value):
    assert len(checks.shown(value)) < 700 if isinstance(value, list) else len(checks.shown(value)) <= 100


def test_short_values_are_shown_whole():
    for value in ("d1", 1, 2.5, None, "the ship is in the town", np.float64(1.5), [1, "a"]):
        assert checks.shown(value) == repr(value)
    assert (
        checks.listed(["d" * 1_000, "e"], "docno").endswith(", 'e')")
        and len(checks.listed(["d" * 1_000, "e"], "docno")) < 120
    )


def test_scores_that_are_no_numbers():
    checks.check_scores(np.array([[1.0, -1e30]]), "scores", "fp16")
    broken, weights = np.array([1.0, np.nan, np.inf, -np.inf]), "the model's weights are broken (a diverged training?)"
    for precision in ("fp32", "bf16"):
        with pytest.raises(ValueError, match=re.escape(f"3 of 4 scores after layer 2 are NaN or infinite; {weights}")):
            checks.check_scores(broken, "scores after layer 2", precision)
    message = (
        "3 of 4 scores are NaN or infinite; fp16 holds no number above 65,504, and some models need larger ones: use "
        f"precision='bf16' or 'fp32'; if that changes nothing, {weights}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        checks.check_scores(broken, "scores", "fp16")
