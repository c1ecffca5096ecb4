"""The encoder families that the engine can run layer by layer. A new family is one file, and one entry here."""

from torch import nn

from pyterrier_cascade.encoder.families.base import Encoder, Family, Weights
from pyterrier_cascade.encoder.families.bert import Bert, Electra, Roberta
from pyterrier_cascade.encoder.families.distilbert import DistilBert
from pyterrier_cascade.encoder.families.modernbert import ModernBert

FAMILIES: tuple[Family, ...] = (Bert(), Roberta(), Electra(), DistilBert(), ModernBert())

MODEL_TYPES = {name: family for family in FAMILIES for name in family.model_types}
"""The family of each ``model_type``; the ``model_type`` of MiniLM is ``bert``."""


def family_of(config) -> Family:
    """Returns the family of an encoder's configuration; raises if the engine cannot run the encoder layer by layer."""
    name = config.model_type
    if name not in MODEL_TYPES:
        raise ValueError(
            f"encoders of type {name!r} cannot be run layer by layer; supported are {', '.join(sorted(MODEL_TYPES))} "
            f"(MiniLM is one of bert)"
        )
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    if positions != "absolute":
        raise ValueError(f"this {name} encoder has {positions!r} positions; only 'absolute' ones are supported")
    if getattr(config, "is_decoder", False):
        raise ValueError(f"this {name} model is a decoder (is_decoder=True in its config.json); give an encoder")
    return MODEL_TYPES[name]


def take_apart(encoder: nn.Module, weights: Weights) -> Encoder:
    """Returns the encoder as layers that can be run one by one.

    Args:
        encoder: A Hugging Face encoder without a head on top (``module.base_model`` of a model with a head).
        weights: The device, the type and the kind of linear maps of the copied weights.
    """
    return family_of(encoder.config).take_apart(encoder, weights)


def position_limit(config) -> int | None:
    """Returns the most tokens that an encoder has positions for; None if its configuration gives no limit."""
    positions = getattr(config, "max_position_embeddings", None)
    return None if positions is None else positions - family_of(config).first_position(config)
