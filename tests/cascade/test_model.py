"""Encoder and heads (CT-9 to CT-14), beside Hugging Face's own forward pass."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from pyterrier_cascade.cascade.loading import load
from pyterrier_cascade.cascade.model import CascadeTransformer
from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.encoder.pairs import tokenize
from tests import tiny

TEXTS = ["a ship", "the ship launched in the town " * 4, "b", "was the town of the ship founded"]
QUERIES = ["who founded the town"] * 4


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("pooling", ["mean_nocls", "mean", "cls"])
def test_heads_read_the_librarys_own_states(family, pooling, tmp_path):
    """CT-10, CT-12: the engine, and the module that is trained, are heads over Hugging Face's forward pass."""
    source = tiny.save(tmp_path, family=family, layers=4, outputs=None)
    model = load(source, layers=(1, 3, 4), pooling=pooling)
    module = model.module
    pairs = tokenize(model.tokenizer, QUERIES, TEXTS, max_length=64)
    batch = pairs.batch(np.arange(4))
    encoder = transformers.AutoModel.from_pretrained(source).eval()
    stack = getattr(encoder, "encoder", None) or getattr(encoder, "transformer", None) or encoder
    name = "layer" if hasattr(stack, "layer") else "layers"
    every, expected = getattr(stack, name), []
    with torch.no_grad():
        for layer, head in zip((1, 3, 4), module.heads, strict=True):
            setattr(stack, name, every[:layer])
            states, real = encoder(**batch).last_hidden_state, batch["attention_mask"].bool()
            if pooling == "mean_nocls":
                real[:, 0] = False
            pooled = torch.stack(
                [s[0] if pooling == "cls" else s[r].mean(0) for s, r in zip(states, real, strict=True)]
            )
            first, tanh, _, second, _, _, last = head
            logits = last(torch.tanh(second(tanh(first(pooled)))))
            expected.append(logits)
        trained = module(**batch)
    for ours, theirs in zip(trained, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    scores = run(model.executors.get("torch", "fp32", "cpu", pairs), pairs)
    relevance = torch.stack([logits[:, 1] - logits[:, 0] for logits in expected], 1)
    np.testing.assert_allclose(scores, relevance.numpy(), atol=1e-5)


def test_shape_of_a_head(encoder):
    """CT-12: three layers, 768 hidden units, tanh, dropout .1."""
    head = load(encoder).module.heads[0]
    assert [type(part).__name__ for part in head] == [
        "Linear",
        "Tanh",
        "Dropout",
        "Linear",
        "Tanh",
        "Dropout",
        "Linear",
    ]
    assert [tuple(part.weight.shape) for part in head[::3]] == [(768, 32), (768, 768), (2, 768)]
    assert head[2].p == head[5].p == 0.1


def test_one_output(encoder):
    model = load(encoder, outputs=1)
    pairs = tokenize(model.tokenizer, QUERIES, TEXTS, max_length=64)
    logits = model.module(heads=[4], **pairs.batch(np.arange(4)))[0]
    scores = run(model.executors.get("torch", "fp32", "cpu", pairs), pairs)[:, 4]
    np.testing.assert_allclose(scores, logits[:, 0].detach().numpy(), atol=1e-5)


def test_scores_do_not_depend_on_padding(encoder):
    """CT-10."""
    module, tokenizer = load(encoder).module, load(encoder).tokenizer
    short = tokenize(tokenizer, QUERIES[:1], TEXTS[:1], max_length=64)
    together = tokenize(tokenizer, QUERIES, TEXTS, max_length=64)
    alone, padded = module(**short.batch(np.arange(1))), module(**together.batch(np.arange(4)))
    for one, four in zip(alone, padded, strict=True):
        torch.testing.assert_close(one[0], four[0], atol=1e-5, rtol=1e-5)


def test_a_step_on_one_head_reaches_all_below_it_and_nothing_above(encoder):
    """CT-15: with heads at 2, 3, 4, 5, 6, the second reads layer 3."""
    model = load(encoder)
    pairs = tokenize(model.tokenizer, QUERIES, TEXTS, max_length=64)
    (logits,) = model.module(heads=[1], **pairs.batch(np.arange(4)))
    logits.sum().backward()
    module = model.module
    has = [
        all(p.grad is not None and p.grad.any() for p in layer.parameters()) for layer in module.encoder.encoder.layer
    ]
    nothing = [all(p.grad is None for p in layer.parameters()) for layer in module.encoder.encoder.layer]
    # A bias of the keys changes no attention, so its gradient is 0 up to rounding; the weights tell.
    weights = [layer.output.dense.weight.grad for layer in module.encoder.encoder.layer]
    assert [w is not None and bool(w.any()) for w in weights] == [True] * 3 + [False] * 3
    assert nothing == [False] * 3 + [True] * 3 and not any(has[3:])
    assert module.encoder.embeddings.word_embeddings.weight.grad.any()
    heads = [head[0].weight.grad is not None for head in module.heads]
    assert heads == [False, True, False, False, False]


@pytest.mark.parametrize("heads", [[2], None])
def test_a_stopped_gradient_stays_above_the_head_before(encoder, heads):
    """CT-17: with one head, only layer 4 and it are trained; with all, each layer by one head."""
    model = load(encoder)
    pairs = tokenize(model.tokenizer, QUERIES, TEXTS, max_length=64)
    logits = model.module(heads=heads, stop_gradient=True, **pairs.batch(np.arange(4)))
    plain = model.module(heads=heads, **pairs.batch(np.arange(4)))
    torch.testing.assert_close(logits, plain)
    logits[0 if heads else 2].sum().backward()
    weights = [layer.output.dense.weight.grad for layer in model.module.encoder.encoder.layer]
    assert [w is not None and bool(w.any()) for w in weights] == [False, False, False, True, False, False]


def test_the_module_is_whole_after_a_step(encoder):
    module = load(encoder).module
    pairs = tokenize(load(encoder).tokenizer, QUERIES, TEXTS, max_length=64)
    module(heads=[0], **pairs.batch(np.arange(4)))
    assert len(module.encoder.encoder.layer) == 6
    assert not any(layer._forward_hooks for layer in module.encoder.encoder.layer)


def test_saved_the_hugging_face_way(saved):
    config = json.loads((Path(saved) / "config.json").read_text())
    assert config["model_type"] == "cascade_transformer" and config["layers"] == [2, 3, 4, 5, 6]
    assert config["encoder"]["model_type"] == "bert" and "_name_or_path" not in config["encoder"]
    module = CascadeTransformer.from_pretrained(saved)
    auto = transformers.AutoModel.from_pretrained(saved)
    for (name, one), two in zip(module.state_dict().items(), auto.state_dict().values(), strict=True):
        assert torch.equal(one, two), name
    assert load(saved).untrained is None


def test_a_classifier_gives_its_encoder(tmp_path):
    source = tiny.save(tmp_path)
    model = load(source)
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(source)
    theirs = classifier.bert.encoder.layer[1].output.dense.weight
    assert torch.equal(model.module.encoder.encoder.layer[1].output.dense.weight, theirs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": (4, 14)}, "heads at layers (4, 14), but the encoder {source!r} has 6; use layers 1 to 6"),
        ({"layers": (4, 2)}, "heads at layers (4, 2): give layers from 1 in ascending order, each once"),
        ({"layers": (2, 2)}, "heads at layers (2, 2): give layers from 1 in ascending order, each once"),
        ({"layers": (0, 2)}, "heads at layers (0, 2): give layers from 1 in ascending order, each once"),
        ({"layers": ()}, "heads at layers (): give layers from 1 in ascending order, each once"),
        ({"pooling": "max"}, "pooling must be one of mean_nocls, mean, cls, mean_cls, not 'max'"),
        ({"outputs": 3}, "a head has 1 or 2 outputs, not 3"),
    ],
)
def test_heads_that_cannot_be(encoder, options, message):
    with pytest.raises(ValueError, match=re.escape(message.format(source=encoder))):
        load(encoder, **options)


def test_other_heads_than_those_of_the_checkpoint(saved):
    with pytest.raises(
        ValueError, match=re.escape("was made with layers=(2, 3, 4, 5, 6), not (2, 6); leave layers out")
    ):
        load(saved, layers=(2, 6))
    with pytest.raises(ValueError, match=re.escape("was made with pooling='mean_nocls', not 'cls'; leave pooling out")):
        load(saved, pooling="cls")
    assert load(saved, layers=[2, 3, 4, 5, 6]).head_layers == (2, 3, 4, 5, 6)


def test_a_checkpoint_that_lost_its_heads(saved, tmp_path):
    weights = load_file(f"{saved}/model.safetensors")
    load(saved).module.save_pretrained(tmp_path)
    load(saved).tokenizer.save_pretrained(tmp_path)
    kept = {name: value for name, value in weights.items() if not name.startswith("heads.4.6")}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    message = "these weights are missing: heads.4.6.bias, heads.4.6.weight; save it again"
    with pytest.raises(ValueError, match=re.escape(message)):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"layers": []}, "heads at layers (): give layers from 1 in ascending order, each once"),
        ({"layers": [6, 5, 4, 3, 2]}, "heads at layers (6, 5, 4, 3, 2): give layers from 1 in ascending order"),
        ({"layers": [2, 3, 4, 5, 9]}, "heads at layers (2, 3, 4, 5, 9), but the encoder {source!r} has 6; use layers"),
        ({"pooling": "max"}, "pooling must be one of mean_nocls, mean, cls, mean_cls, not 'max'"),
        ({"layers": [2, 6]}, "with heads at layers (2, 6), but these weights are left over: heads.2.0.bias"),
        (
            {"head_width": 100},
            "the sizes in '{source}/config.json' are not those of the weights beside it: heads.0.0.bias is of (768,) "
            "and should be of (100,); use the config.json that was saved with the weights",
        ),
    ],
)
def test_a_checkpoint_whose_heads_are_others_than_it_says(saved, tmp_path, changed, message):
    shutil.copytree(saved, tmp_path / "other")
    config = tmp_path / "other" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changed))
    source = str(tmp_path / "other")
    with pytest.raises(
        ValueError, match=re.escape(message.replace("{source!r}", repr(source)).replace("{source}", source))
    ):
        load(source)


def test_an_encoder_that_cannot_be_run(tmp_path):
    config = transformers.T5Config(num_layers=2, d_model=32, d_kv=8, d_ff=64, num_heads=2, vocab_size=80)
    config.save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match="encoders of type 't5' cannot be run layer by layer; supported are bert, camem"
    ):
        load(str(tmp_path))
