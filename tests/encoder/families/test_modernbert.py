"""ModernBERT layer by layer is Hugging Face's own forward pass."""

import numpy as np
import pytest
import transformers

from pyterrier_cascade.encoder.families import family_of
from pyterrier_cascade.encoder.layout import POOLINGS
from tests.encoder import spans


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("padding", [None, 0.5], ids=["packed", "padded"])
def test_every_layer_is_hugging_faces(encoder, padding, pooling):
    """With and without pads; equal lengths and ragged ones. A lone first symbol has no mean of the others."""
    for lengths in ([9] * 4, [length for length in spans.RAGGED if length > 1]):
        got = spans.assert_equals_hugging_face(encoder("modernbert"), spans.inputs(lengths), pooling, padding=padding)
        assert (np.ptp(got, axis=0) > 0.05).all()


def test_one_token_and_the_longest_input(encoder):
    spans.assert_equals_hugging_face(encoder("modernbert"), spans.inputs([1, 512]), "cls")


def test_a_truncated_configuration_has_a_kind_for_each_layer():
    config = transformers.ModernBertConfig(num_hidden_layers=6)
    family_of(config).truncate(config, 4)
    assert config.num_hidden_layers == 4
    assert getattr(config, "layer_types", None) is None or len(config.layer_types) == 4
