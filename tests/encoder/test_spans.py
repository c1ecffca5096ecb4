"""Layers one by one are Hugging Face's own forward pass."""

import re

import numpy as np
import pytest
import torch
import transformers

from pyterrier_cascade.crossencoder.model import load
from pyterrier_cascade.encoder import linear, torch_executor
from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.encoder.families import Weights, family_of, take_apart
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.layout import POOLINGS, Packed, Padded
from pyterrier_cascade.encoder.torch_executor import TorchExecutor
from tests import tiny
from tests.encoder import spans

CPU = torch.device("cpu")
RAGGED = [3, 40, 40, 7, 1, 25, 2, 26, 27, 90]


def executor(encoder, pooling: str = "mean_nocls", precision: str = "fp32", **more) -> TorchExecutor:
    made = TorchExecutor(encoder, spans.heads(pooling), CPU, precision)
    for name, value in more.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("padding", [None, 0.5], ids=["packed", "padded"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_layer_is_hugging_faces(encoder, family, padding, pooling):
    """With and without pads; equal lengths and ragged ones. A lone first symbol has no mean of the others."""
    model = encoder(family)
    for lengths in ([9] * 4, [length for length in RAGGED if length > 1]):
        pairs = spans.inputs(lengths)
        got = run(executor(model, pooling, padding=padding), pairs)
        np.testing.assert_allclose(got, spans.reference(model, pairs, pooling), atol=1e-5, rtol=0)
        assert (np.ptp(got, axis=0) > 0.05).all()


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_one_token_and_the_longest_input(encoder, family):
    pairs = spans.inputs([1, 512])
    model = encoder(family)
    np.testing.assert_allclose(
        run(executor(model, "cls"), pairs), spans.reference(model, pairs, "cls"), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta"])
def test_a_text_that_spells_the_padding_token_keeps_its_positions(encoder, family):
    """RoBERTa counts positions past padding tokens, wherever they stand."""
    pairs = spans.inputs([12, 30])
    pairs.columns["input_ids"][[4, 15, 16]] = 1
    model = encoder(family)
    np.testing.assert_allclose(
        run(executor(model), pairs), spans.reference(model, pairs, "mean_nocls"), atol=1e-5, rtol=0
    )


def test_token_types_count(encoder):
    pairs = spans.inputs([9, 14])
    plain = run(executor(encoder("bert")), pairs)
    pairs.columns["token_type_ids"] = (np.arange(23) % 2).astype(np.int32)
    pairs.pad["token_type_ids"] = 0
    got = run(executor(encoder("bert")), pairs)
    np.testing.assert_allclose(got, spans.reference(encoder("bert"), pairs, "mean_nocls"), atol=1e-5, rtol=0)
    assert np.abs(got - plain).max() > 0.01


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"])
def test_every_activation(encoder, activation):
    model = encoder("bert", hidden_act=activation)
    pairs = spans.inputs(RAGGED[1:4])
    np.testing.assert_allclose(
        run(executor(model), pairs), spans.reference(model, pairs, "mean_nocls"), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("merge", [1.0, 0.75, 0.01])
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_bf16_is_near_whatever_attends_side_by_side(encoder, family, merge):
    pairs = spans.inputs(RAGGED)
    exact = run(executor(encoder(family), "mean"), pairs)
    near = run(executor(encoder(family), "mean", "bf16", merge=merge), pairs)
    assert 0 < np.abs(near - exact).max() < 0.08
    assert np.corrcoef(near[:, 2], exact[:, 2])[0, 1] > 0.999


def test_only_what_the_head_reads_is_computed(encoder, monkeypatch):
    """The last layer of a span that ends in a CLS head gives one row an input; a mean needs all."""
    rows = {}
    for pooling in ("cls", "mean"):
        made = executor(encoder("bert"), pooling)
        seen = []
        for layer in made.encoder.layers:
            layer.register_forward_hook(lambda module, given, out, seen=seen: seen.append(len(out)))
        run(made, spans.inputs([5, 5, 5]))
        rows[pooling] = seen
    assert rows == {"cls": [16, 16, 16, 3], "mean": [16, 16, 16, 16]}


def test_prepacked_maps_are_plain_ones():
    torch.manual_seed(0)
    weight, bias, x, add = torch.randn(24, 16), torch.randn(24), torch.randn(5, 16), torch.randn(5, 24)
    for activation in (None, "gelu", "gelu_new", "relu", "silu"):
        for b in (bias, None):
            plain, packed = (cls(weight, b, activation) for cls in (linear.Linear, linear.PackedLinear))
            torch.testing.assert_close(packed(x), plain(x), atol=1e-5, rtol=0)
    plain, packed = linear.Linear(weight, bias), linear.PackedLinear(weight, bias)
    torch.testing.assert_close(packed(x, add=add), plain(x, add=add), atol=1e-5, rtol=0)
    assert linear.linear_for(CPU, torch.float32) is linear.PackedLinear


def test_a_torch_without_these_operators_falls_back(encoder, monkeypatch):
    def missing(*args, **kwargs):
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")

    monkeypatch.setattr(linear.PackedLinear, "forward", missing)
    assert linear.linear_for(CPU, torch.float32) is linear.Linear
    pairs = spans.inputs(RAGGED)
    made = executor(encoder("bert"))
    assert type(made.encoder.layers[0].out) is linear.Linear
    np.testing.assert_allclose(run(made, pairs)[:, 2], run(made, pairs, budget=64)[:, 2], atol=1e-5)


def test_layouts_spread_and_pack():
    lengths = np.array([1, 2, 2])
    tokens = torch.arange(5)
    padded = Padded.of(lengths, CPU)
    assert padded.spread(tokens).tolist() == [[0, 0], [1, 2], [3, 4]]
    assert padded.pack(padded.spread(tokens)).tolist() == [0, 1, 2, 3, 4]
    packed = Packed(lengths)
    assert packed.spread(tokens + 1).tolist() == [1, 2, 3, 4, 5] + 11 * [0]
    assert packed.pack(packed.spread(tokens)).tolist() == [0, 1, 2, 3, 4]
    assert packed.positions[:5].tolist() == [0, 0, 1, 0, 1]
    assert [(block.rows, block.tokens, block.longest) for block in packed.blocks] == [
        (slice(0, 1), slice(0, 1), 1),
        (slice(1, 3), slice(1, 5), 2),
    ]
    assert [(block.rows, block.longest) for block in Packed(lengths, merge=0.5).blocks] == [(slice(0, 3), 8)]


def test_pooling_by_hand():
    """CT-10: the mean of all symbols but the first, of all, or the first."""
    states = torch.tensor([[1.0], [5.0], [2.0], [4.0], [9.0]])
    lengths = np.array([2, 3])
    for layout, hidden in (
        (Packed(lengths), Packed(lengths).spread(states)),
        (Padded.of(lengths, CPU), Padded.of(lengths, CPU).spread(states)),
    ):
        got = {pooling: layout.pooled(hidden, pooling).flatten().tolist() for pooling in POOLINGS}
        assert got == {"mean_nocls": [5, 6.5], "mean": [3, 5], "cls": [1, 2]}


def test_other_architectures_are_named_at_the_door(tmp_path):
    transformers.AlbertConfig().save_pretrained(tmp_path)
    message = (
        "encoders of type 'albert' cannot be run layer by layer; supported are bert, camembert, distilbert, electra, "
        "modernbert, roberta, xlm-roberta (MiniLM is one of bert)"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        load(str(tmp_path))


def test_variants_that_would_score_wrongly_are_refused():
    config = transformers.BertConfig()
    config.position_embedding_type = "relative_key"
    with pytest.raises(ValueError, match="this bert encoder has 'relative_key' positions; only 'absolute'"):
        family_of(config)
    with pytest.raises(ValueError, match=re.escape("is a decoder (is_decoder=True in its config.json); give an")):
        family_of(transformers.BertConfig(is_decoder=True))


def test_the_users_weights_are_not_moved_or_changed(encoder):
    """Heads are copied for inference: a head under training keeps its dropout, and stays where it is."""
    head = torch.nn.Sequential(torch.nn.Dropout(0.9), spans.Sum()).train()
    model = encoder("bert")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    made = TorchExecutor(model, [Head(2, "mean", head)], CPU)
    first, second = (run(made, spans.inputs([6, 8])) for _ in range(2))
    assert (first == second).all() and head.training and isinstance(head[1].map, torch.nn.Linear)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_embeddings_are_shared_not_copied(encoder):
    model = encoder("bert")
    apart = take_apart(model, Weights(CPU, torch.float32))
    assert apart.embeddings.tables["input_ids"].data_ptr() == model.embeddings.word_embeddings.weight.data_ptr()


def test_large_chunks_for_other_devices(encoder, monkeypatch):
    """A device with a queue of its own gets padded blocks from the calling thread; meta stands for it here."""
    monkeypatch.setattr(
        torch_executor, "take_apart", lambda *a: take_apart(encoder("bert"), Weights(CPU, torch.float32))
    )
    monkeypatch.setattr(Head, "to", lambda self, device: self)
    made = TorchExecutor(encoder("bert"), spans.heads(), torch.device("meta"))
    assert (made.budget, made.padding, made.workers.__name__) == (65_536, 0.08, "here")
    made.device = CPU
    pairs = spans.inputs(RAGGED[:4])
    np.testing.assert_allclose(
        run(made, pairs), spans.reference(encoder("bert"), pairs, "mean_nocls"), atol=1e-5, rtol=0
    )
