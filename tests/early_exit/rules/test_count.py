"""The rule that keeps a number of candidates."""

import re

import numpy as np
import pytest

from pyterrier_cascade.early_exit.policy import Policy
from pyterrier_cascade.early_exit.rules.count import KeepCount


def test_it_keeps_as_many_as_there_are():
    assert KeepCount(5).n_kept(np.array([1, 5, 9])).tolist() == [1, 5, 5]


@pytest.mark.parametrize("count", [0, -1, 0.5, 2.0, True, "5", None], ids=repr)
def test_what_is_no_number(count):
    with pytest.raises(ValueError, match=re.escape(f"counts={count!r}: give whole numbers of candidates to keep")):
        KeepCount.from_setting("counts", count, Policy())


def test_numbers_that_grow_are_refused():
    """CT-2: a head returns fewer candidates than the one before it, or as many."""
    with pytest.raises(ValueError, match=re.escape("counts=(5, 8, 3): a head cannot keep 8 candidates where the one")):
        KeepCount.check_all("counts", (5, 8, 3), [KeepCount(5), KeepCount(8), KeepCount(3)])
    KeepCount.check_all("counts", (8, 8, 3), [KeepCount(8), KeepCount(8), KeepCount(3)])
