"""The pieces of an identity: weights, arrays, tokenizers and configurations."""

import numpy as np
import pytest
import torch
import transformers

from pyterrier_cascade.identity import combined, deciding_fields, of_arrays, of_tokenizer, of_weights
from tests import tiny

WEIGHTS = {"a": torch.ones(2, 3), "b": torch.zeros(0, dtype=torch.int64), "c": torch.tensor(1.5)}


def test_weights_in_any_order():
    assert of_weights(WEIGHTS) == of_weights(dict(reversed(WEIGHTS.items())))
    assert of_weights(WEIGHTS) == of_weights({name: tensor.clone() for name, tensor in WEIGHTS.items()})
    assert of_weights({"a": torch.ones(3, 2).T}) == of_weights({"a": torch.ones(2, 3)})


@pytest.mark.parametrize(
    "other",
    [
        WEIGHTS | {"a": torch.ones(3, 2)},
        WEIGHTS | {"a": torch.ones(2, 3).bfloat16()},
        WEIGHTS | {"c": torch.tensor(1.25)},
        {"d" if name == "c" else name: tensor for name, tensor in WEIGHTS.items()},
    ],
    ids=["shape", "type", "value", "name"],
)
def test_other_weights(other):
    assert of_weights(other) != of_weights(WEIGHTS)


def test_arrays_are_told_apart_by_their_edges_and_types():
    one = np.arange(4)
    found = {
        of_arrays(arrays) for arrays in ([one], [one[:2], one[2:]], [one[:3], one[3:]], [one.astype(np.int32)], [])
    }
    assert len(found) == 5 and of_arrays([one[::2]]) == of_arrays([np.array([0, 2])])


def test_numbers_of_numpy_are_numbers():
    assert combined({"rate": np.float64(0.5)}, np.int64(3)) == combined({"rate": 0.5}, 3) != combined(3, {"rate": 0.5})


def test_a_tokenizer_that_was_saved_and_used_is_the_same(tmp_path):
    for number, tokenizer in enumerate((tiny.wordpiece(types=True), tiny.byte_level())):
        before = of_tokenizer(tokenizer)
        tokenizer("some words", truncation=True, max_length=4, padding="max_length")
        tokenizer.save_pretrained(tmp_path / str(number))
        again = transformers.AutoTokenizer.from_pretrained(tmp_path / str(number), trust_remote_code=False)
        assert of_tokenizer(again) == of_tokenizer(tokenizer) == before
        again.add_tokens(["another"])
        assert of_tokenizer(again) != before


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_deciding_fields_of_a_family(family):
    config = tiny.config(family, 2, tiny.wordpiece(types=True))
    found = deciding_fields(config)
    assert found["model_type"] == family and found["num_attention_heads"] == found["num_hidden_layers"] == 2
    assert {"hidden_act", "activation", "hidden_activation"} & found.keys()
    assert ("first_position" in found) is family.endswith("roberta")
    training = deciding_fields(config, training=True)
    assert found.items() <= training.items() and any("dropout" in name for name in training.keys() - found.keys())


def test_modernbert_is_the_same_in_transformers_4_and_5():
    """The two versions have other names for the kinds of layers and the rotary positions."""

    class Four:
        model_type, num_hidden_layers, local_attention = "modernbert", 3, 16
        global_attn_every_n_layers, global_rope_theta, local_rope_theta = 3, 160000.0, 10000.0

    found = deciding_fields(Four())
    five = deciding_fields(tiny.config("modernbert", 3, tiny.byte_level()))
    assert {name: found[name] for name in ("layer_types", "window", "rotary")} == {
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "window": 8,
        "rotary": five["rotary"],
    }
    assert found["layer_types"] == five["layer_types"] and found["window"] == five["window"]


def test_the_encoder_inside_a_configuration():
    fields = {"model_type": "distilbert", "n_heads": 4, "_attn_implementation": "somebody/kernel"}
    found = deciding_fields({"model_type": "cascade_transformer", "encoder": fields, "trained_on": {"questions": 3}})
    assert found["encoder"]["num_attention_heads"] == 4 and found.keys() == {"model_type", "encoder"}
