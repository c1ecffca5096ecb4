"""The identity of a model: a hash of everything that its results depend on.

Traces, document caches, kept graphs, kept trainings and transfers recognise a model by what is made here. The weights,
the tokenizer as it encodes, and the deciding fields of the configuration make a difference. The folder that a model
came from, the version of transformers, the implementation of attention and the record of the training make none.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from pyterrier_cascade.encoder.families import MODEL_TYPES
from pyterrier_cascade.encoder.pretrained import config_of

SCORING = (
    *("model_type", "num_hidden_layers", "num_attention_heads"),
    *("hidden_act", "activation", "hidden_activation", "layer_norm_eps", "norm_eps"),
    *("classifier_pooling", "classifier_activation"),
    # A Cascade Transformer.
    *("layers", "pooling", "outputs", "converted"),
    # DC-BERT.
    *("variant", "joint_layers", "lower_layers", "tied", "head"),
    # A hierarchical ranker.
    *("scheme", "level", "architecture"),
)
"""The fields of configurations that scores depend on, beside the weights and their shapes."""

TRAINING = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "dropout", "attention_dropout"),
    *("seq_classif_dropout", "embedding_dropout", "mlp_dropout", "pad_token_id", "dense_head", "vectors"),
)
"""The further fields that a training depends on."""


def deciding_fields(config: Any, training: bool = False) -> dict[str, Any]:
    """Returns the fields of a configuration that results depend on, with those of an encoder inside it.

    Args:
        config: A configuration of transformers, or a mapping.
        training: Whether the results are those of a training and not of scoring alone.
    """
    get = config.get if isinstance(config, Mapping) else lambda name: getattr(config, name, None)
    found = {name: get(name) for name in (SCORING + TRAINING if training else SCORING)}
    found = {name: value for name, value in found.items() if value is not None}
    if (family := MODEL_TYPES.get(get("model_type"))) is not None:
        found |= family.deciding_fields(config)
    if isinstance(encoder := get("encoder"), Mapping):
        found["encoder"] = deciding_fields(config_of(encoder), training)
    return found


def of_weights(weights: Mapping[str, torch.Tensor]) -> str:
    """Returns the hash of named tensors; their order makes no difference.

    Args:
        weights: The tensors, as a module's ``state_dict()`` returns them.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """Returns the hash of arrays in their order."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def of_tokenizer(tokenizer: Any) -> str:
    """Returns the hash of a fast tokenizer as it encodes: words, rules, special tokens, and the model's inputs.

    The limits of the last call, which say how to cut and to pad, are no part of it.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
    """
    steps = json.loads(tokenizer.backend_tokenizer.to_str())
    encoding = {
        name: steps[name] for name in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "model")
    }
    names = ("model_input_names", "truncation_side", "split_special_tokens")
    return combined(encoding, {name: getattr(tokenizer, name) for name in names})


def combined(*parts: Any) -> str:
    """Returns one hash of several: of other hashes, and of values that JSON has."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Returns a number of NumPy as one of Python, and anything else as its ``repr``."""
    return value.item() if isinstance(value, np.generic) else repr(value)
