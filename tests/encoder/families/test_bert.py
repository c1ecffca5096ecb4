"""BERT, RoBERTa, XLM-R and ELECTRA layer by layer are Hugging Face's own forward pass.

These tests and those of the other families cover ``encoder/layers.py`` too.
"""

import numpy as np
import pytest

from pyterrier_cascade.encoder.layout import POOLINGS
from tests.encoder import spans

FAMILIES = ("bert", "roberta", "xlm-roberta", "electra")


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("padding", [None, 0.5], ids=["packed", "padded"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_is_hugging_faces(encoder, family, padding, pooling):
    """With and without pads; equal lengths and ragged ones. A lone first symbol has no mean of the others."""
    for lengths in ([9] * 4, [length for length in spans.RAGGED if length > 1]):
        got = spans.assert_equals_hugging_face(encoder(family), spans.inputs(lengths), pooling, padding=padding)
        assert (np.ptp(got, axis=0) > 0.05).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_one_token_and_the_longest_input(encoder, family):
    spans.assert_equals_hugging_face(encoder(family), spans.inputs([1, 512]), "cls")


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta"])
def test_a_text_that_spells_the_padding_token_keeps_its_positions(encoder, family):
    """RoBERTa counts positions past padding tokens, wherever they stand."""
    pairs = spans.inputs([12, 30])
    pairs.columns["input_ids"][[4, 15, 16]] = 1
    spans.assert_equals_hugging_face(encoder(family), pairs)


def test_token_types_count(encoder):
    pairs = spans.inputs([9, 14])
    plain = spans.assert_equals_hugging_face(encoder("bert"), pairs)
    pairs.columns["token_type_ids"] = (np.arange(23) % 2).astype(np.int32)
    pairs.pad["token_type_ids"] = 0
    got = spans.assert_equals_hugging_face(encoder("bert"), pairs)
    assert np.abs(got - plain).max() > 0.01


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"])
def test_every_activation(encoder, activation):
    spans.assert_equals_hugging_face(encoder("bert", hidden_act=activation), spans.inputs(spans.RAGGED[1:4]))
