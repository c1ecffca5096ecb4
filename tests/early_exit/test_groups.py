"""Groups of candidates: places, batches and slabs."""

import numpy as np

from pyterrier_cascade.early_exit.groups import batches, places, slabs


def test_places_count_from_the_first_of_a_group():
    place, sizes = places(np.array([3, 3, 3, 7, 1, 1]))
    assert place.tolist() == [0, 1, 2, 0, 0, 1] and sizes.tolist() == [3, 3, 3, 1, 2, 2]


def test_batches_are_of_a_question():
    """CT-26: in order, so many at a time."""
    questions = np.array([0, 0, 0, 0, 0, 1, 1, 2])
    assert batches(questions, 2).tolist() == [1, 1, 2, 2, 3, 4, 4, 5]
    assert batches(questions, None).tolist() == questions.tolist()


def test_slabs_hold_whole_groups():
    groups = np.repeat([3, 4, 7, 8], [5, 1, 20, 2])
    assert slabs(groups, 6) == [slice(0, 6), slice(6, 26), slice(26, 28)]
    assert slabs(groups, 1_000) == [slice(0, 28)]
