"""Loading a DC-BERT: from its own folder, or made of a bare encoder or a trained cross-encoder."""

import copy
from typing import Any

import torch
import transformers

from pyterrier_cascade import registry
from pyterrier_cascade.checkpoint import check_folder
from pyterrier_cascade.checks import check_choices, is_count
from pyterrier_cascade.dcbert.inference import DCBertModel
from pyterrier_cascade.dcbert.joint import HEADS, JointLayers
from pyterrier_cascade.dcbert.model import VARIANTS, DCBert, DCBertConfig
from pyterrier_cascade.dcbert.settings import PARTS
from pyterrier_cascade.encoder.families import family_of
from pyterrier_cascade.encoder.pretrained import (
    CONFIG,
    config_fields,
    config_from,
    portable,
    pretrained,
    silenced,
    tokenizer_for,
    undamaged,
)


def load(source: str, trust_remote_code: bool = False, **parts: Any) -> DCBertModel:
    """Returns the DC-BERT in a folder or on the Hub, or one made of a bare encoder.

    Args:
        source: A folder or a Hub name: a DC-BERT, or an encoder with or without a classifier (a cross-encoder too).
        trust_remote_code: Whether code that comes with a bare encoder may run.
        **parts: Any of ``variant``, ``joint_layers``, ``lower_layers``, ``tied`` and ``head``, as in
            :class:`DCBertConfig`. A DC-BERT has its own; an encoder gets the defaults.
    """
    check_folder(source)
    check_parts(**parts)
    found = config_fields(source)
    registry.refuse_others(source, "DCBERT", found)
    with silenced():
        if found.get("model_type") == DCBertConfig.model_type:
            module, untrained = _saved(source, parts)
        else:
            module = _fresh(source, parts, trust_remote_code)
            untrained = f"the joint layers on {source!r} are fresh"
    return DCBertModel(module.eval(), tokenizer_for(module, source, trust_remote_code), untrained)


def check_parts(variant: str = VARIANTS[0], head: str = HEADS[0], **more: Any) -> None:
    """Raises unless a DC-BERT can be made of such parts, whatever the encoder."""
    check_choices(variant=(variant, VARIANTS), head=(head, HEADS))
    for name in ("joint_layers", "lower_layers"):
        if more.get(name) is not None and not is_count(more[name]):
            raise ValueError(f"{name} must be at least 1, not {more[name]!r}")
    if not isinstance(more.get("tied", False), bool):
        raise ValueError(f"tied must be True or False, not {more['tied']!r}")


def _saved(source: str, parts: dict[str, Any]) -> tuple[DCBert, str | None]:
    config = config_from(source, cls=DCBertConfig)
    with undamaged(source, CONFIG):
        check_parts(**{name: getattr(config, name) for name in PARTS})
        family_of(config.encoder_config())
    for name, value in parts.items():
        if value != getattr(config, name):
            raise ValueError(f"{source!r} was made with {name}={getattr(config, name)!r}, not {value!r}; leave it out")
    module, info = pretrained(DCBert, source, config)
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"{source!r} says that it is a DC-BERT, but these weights are missing: {', '.join(missing[:5])}"
            f"{' ...' * (len(missing) > 5)}; save it again"
        )
    return module, None if config.trained_on else f"the joint layers of {source!r} were saved before they were trained"


def _fresh(source: str, parts: dict[str, Any], trust_remote_code: bool) -> DCBert:
    encoder_config = config_from(source, trust_remote_code)
    if not family_of(encoder_config).has_position_table:
        raise ValueError(
            f"{source!r} is of type {encoder_config.model_type!r}, which has no table of positions to start the global "
            "ones from (DC-5); use a BERT, RoBERTa, XLM-R, ELECTRA, DistilBERT or MiniLM"
        )
    depth = encoder_config.num_hidden_layers
    for name in ("joint_layers", "lower_layers"):
        if parts.get(name, 1) > depth:
            raise ValueError(f"{name}={parts[name]}, but the encoder {source!r} has {depth} layers")
    bare, _ = pretrained(transformers.AutoModel, source, encoder_config, trust_remote_code=trust_remote_code)
    config = DCBertConfig(encoder=portable(bare.config), **parts)
    # Fresh parts are drawn alike every time, so that two rankers on the same bare encoder are the same ranker.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        module = DCBert(config).float()
    for encoder in module.encoders.values():
        # Fewer layers take the first of them.
        encoder.load_state_dict(bare.state_dict(), strict=False)
    if isinstance(module.joint, JointLayers):
        _start(module.joint, bare)
    return module


@torch.no_grad()
def _start(joint: JointLayers, encoder: transformers.PreTrainedModel) -> None:
    """Copies the last layers, the positions and the types of a pre-trained encoder into joint layers (DC-5)."""
    (owner, name), (source, _) = (joint.family.layer_list(one) for one in (joint.encoder, encoder))
    layers = getattr(owner, name)
    for own, given in zip(layers, getattr(source, name)[-len(layers) :], strict=True):
        own.load_state_dict(copy.deepcopy(given.state_dict()))
    tables = encoder.embeddings
    # ELECTRA's tables may be narrower than its states.
    project = getattr(encoder, "embeddings_project", None)
    positions = tables.position_embeddings.weight[-joint.positions.num_embeddings :]
    joint.positions.weight.copy_(positions if project is None else positions @ project.weight.T)
    types = getattr(tables, "token_type_embeddings", None)
    if types is None:
        joint.types.weight.zero_()
        return
    # RoBERTa knows one type only: both sides start from it.
    both = types.weight[[0, min(1, types.num_embeddings - 1)]]
    joint.types.weight.copy_(both if project is None else both @ project.weight.T)
