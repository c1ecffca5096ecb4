"""The monolithic transformer: an encoder and a classifier on its first symbol (CT-4, TA-2)."""

from pathlib import Path

import transformers
from torch import nn

from pyterrier_cascade.checkpoint import check_folder
from pyterrier_cascade.encoder.families import MODEL_TYPES, family_of
from pyterrier_cascade.encoder.heads import Head, Relevance
from pyterrier_cascade.encoder.pair_model import PairModel
from pyterrier_cascade.encoder.pretrained import (
    config_fields,
    config_from,
    fixed_seed,
    is_classifier,
    pretrained,
    silenced,
    tokenizer_for,
)
from pyterrier_cascade.registry import refuse_others


class CrossEncoderModel(PairModel):
    """A Hugging Face sequence classifier with its tokenizer."""

    @property
    def heads(self) -> list[Head]:
        """The classifier, as the engine's one head."""
        config = self.module.config
        family = family_of(config)
        return [Head(self.layers, family.classifier_pooling(config), Relevance(family.classifier(self.module)))]

    @property
    def encoder_config(self) -> transformers.PretrainedConfig:
        """The encoder's configuration."""
        return self.module.config


def load(
    source: str, layers: int | None = None, dense: bool = True, trust_remote_code: bool = False
) -> CrossEncoderModel:
    """Returns the classifier in a folder or on the Hub; a bare encoder gets a fresh head, which is untrained.

    Args:
        source: A folder or a Hub name.
        layers: Keep only the first so many layers (CT-6: the encoder truncated at layer rho(i)).
        dense: Whether a fresh head has a dense layer before its tanh, as Hugging Face's heads have (TA-2).
        trust_remote_code: Whether code that comes with the model may run.
    """
    check_folder(source)
    refuse_others(source, "CrossEncoder", config_fields(source))
    config = config_from(source, trust_remote_code)
    family, depth = family_of(config), config.num_hidden_layers
    config.full_layers = getattr(config, "full_layers", None) or depth
    if layers is not None:
        if not 1 <= layers <= depth:
            raise ValueError(f"layers={layers}, but the encoder {source!r} has {depth} layers; use 1 to {depth}")
        family.truncate(config, layers)
    _check_head(source, config, dense)
    with fixed_seed(), silenced():
        cls = transformers.AutoModelForSequenceClassification
        options = {"trust_remote_code": trust_remote_code, "truncated": layers is not None}
        module, info = pretrained(cls, source, config, **options)
    if not getattr(config, "dense_head", True):
        _leave_out_dense(module)
    untrained = None
    if fresh := sorted(info["missing_keys"]):
        untrained = f"the head of {source!r} is fresh ({', '.join(fresh)})"
        if _is_bi_encoder(source):
            untrained = f"{source!r} is a bi-encoder of sentence-transformers without a classifier, and {untrained}"
        module.config.trained_on = {}
    elif getattr(config, "trained_on", None) == {}:
        untrained = f"the head of {source!r} was saved before it was trained"
    elif layers is not None and layers < depth:
        untrained = f"the head of {source!r} was trained on layer {depth} and now reads layer {layers}"
    return CrossEncoderModel(module.eval(), tokenizer_for(module, source, trust_remote_code), untrained)


def check_outputs(source: str, config: transformers.PretrainedConfig) -> None:
    """Raises where a classifier has too many outputs to rerank."""
    if config.num_labels > 2:
        raise ValueError(
            f"{source!r} tells {config.num_labels} classes apart; a reranker needs a head of 1 or 2 outputs: give "
            "another model, or save the encoder alone with transformers' AutoModel and train it"
        )


def _is_bi_encoder(source: str) -> bool:
    """Returns whether a folder of sentence-transformers makes one vector of a text."""
    modules = Path(source) / "modules.json"
    return modules.is_file() and "Pooling" in modules.read_text(encoding="utf-8")


def _check_head(source: str, config: transformers.PretrainedConfig, dense: bool) -> None:
    """Raises where a classifier cannot rerank; gives the configuration of a bare encoder two outputs."""
    if not is_classifier(config):
        config.num_labels = 2
        if not dense:
            config.dense_head = False
    elif not dense and getattr(config, "dense_head", True):
        raise ValueError(f"dense=False, but the head of {source!r} was trained with a dense layer; give a bare encoder")
    else:
        check_outputs(source, config)


def _leave_out_dense(module: transformers.PreTrainedModel) -> None:
    """Fixes the dense layer of a head as the identity, so that the head is W_T tanh(x) + B_T of the encoder's x (TA-2).

    Hugging Face's own class still reads the checkpoint, with the same scores.
    """
    family = family_of(module.config)
    if not family.has_tanh_head:
        names = ", ".join(name for name, one in MODEL_TYPES.items() if one.has_tanh_head)
        raise ValueError(
            f"dense=False is for heads of a dense layer and a tanh ({names}), not for those of "
            f"{module.config.model_type}"
        )
    dense = family.dense_before_tanh(module)
    nn.init.eye_(dense.weight)
    nn.init.zeros_(dense.bias)
    dense.requires_grad_(False)
