"""DistilBERT layer by layer is Hugging Face's own forward pass."""

import numpy as np
import pytest

from pyterrier_cascade.encoder.layout import POOLINGS
from tests.encoder import spans


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("padding", [None, 0.5], ids=["packed", "padded"])
def test_every_layer_is_hugging_faces(encoder, padding, pooling):
    """With and without pads; equal lengths and ragged ones. A lone first symbol has no mean of the others."""
    for lengths in ([9] * 4, [length for length in spans.RAGGED if length > 1]):
        got = spans.assert_equals_hugging_face(encoder("distilbert"), spans.inputs(lengths), pooling, padding=padding)
        assert (np.ptp(got, axis=0) > 0.05).all()


def test_one_token_and_the_longest_input(encoder):
    spans.assert_equals_hugging_face(encoder("distilbert"), spans.inputs([1, 512]), "cls")
