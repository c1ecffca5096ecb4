from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyterrier_cascade.dcbert import late


def documents(states, lengths):
    return SimpleNamespace(states=np.asarray(states), lengths=np.asarray(lengths))


def by_hand(question, states, lengths, specials):
    """Two loops over single vectors."""
    scores, start = [], 0
    for length in lengths:
        document = states[start : start + length].astype(np.float64)
        start += length
        asked = question.numpy().astype(np.float64)
        if not specials:
            document, asked = document[1:-1], asked[1:-1]
        best = []
        for q in asked:
            cosines = [q @ d / np.linalg.norm(q) / np.linalg.norm(d) for d in document]
            best.append(max(cosines, default=-1.0))
        scores.append(sum(best) / len(best))
    return torch.tensor(scores, dtype=torch.float32)


@pytest.mark.parametrize("specials", [True, False])
def test_equal_to_two_loops(specials):
    generator = torch.Generator().manual_seed(0)
    question, lengths = torch.randn(7, 16, generator=generator), [3, 1, 40, 2, 12, 12]
    states = torch.randn(sum(lengths), 16, generator=generator).numpy()
    expected = by_hand(question, states, lengths, specials)
    torch.testing.assert_close(late.score(question, documents(states, lengths), specials), expected, rtol=0, atol=1e-6)
