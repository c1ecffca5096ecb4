"""Loading a cascade: one that was saved, a bare encoder with fresh heads, or a cross-encoder with its classifier."""

from collections.abc import Sequence

import transformers

from pyterrier_cascade.cascade.model import CascadeConfig, CascadeModel, CascadeTransformer
from pyterrier_cascade.checkpoint import check_folder
from pyterrier_cascade.checks import check_choices, warn_user
from pyterrier_cascade.crossencoder import model as crossencoder
from pyterrier_cascade.early_exit.certificate import Certificate
from pyterrier_cascade.early_exit.policy import are_layers, default_heads
from pyterrier_cascade.encoder.families import family_of
from pyterrier_cascade.encoder.layout import POOLINGS
from pyterrier_cascade.encoder.pretrained import (
    CONFIG,
    config_fields,
    config_from,
    fixed_seed,
    is_classifier,
    portable,
    pretrained,
    silenced,
    tokenizer_for,
    undamaged,
)
from pyterrier_cascade.registry import refuse_others

BEFORE_CLASSIFIER = {"pooling": "mean_cls", "outputs": 1, "head_width": 256}
"""The heads before a classifier: they read mean and first symbol, and their one output learns the last score."""


def load(
    source: str,
    layers: Sequence[int] | None = None,
    pooling: str | None = None,
    outputs: int | None = None,
    trust_remote_code: bool = False,
    convert: bool = False,
) -> CascadeModel:
    """Returns the Cascade Transformer in a folder or on the Hub, or another model with fresh heads.

    Args:
        source: A folder or a Hub name.
        layers: The layers with heads; unless given, the checkpoint's, or for a bare encoder
            :func:`~pyterrier_cascade.early_exit.policy.default_heads`.
        pooling: How heads read; as the checkpoint says, or for a bare encoder ``"mean_nocls"`` (CT-10).
        outputs: The logits of a head, 1 or 2; as the checkpoint says, or for a bare encoder 2 (CT-12).
        trust_remote_code: Whether code that comes with another model may run.
        convert: Whether the source is a cross-encoder whose classifier becomes the last head.
    """
    if convert:
        return _converted(source, layers, trust_remote_code)
    check_folder(source)
    check_heads(layers, pooling, outputs)
    found = config_fields(source)
    refuse_others(source, "Cascade", found)
    with silenced():
        if found.get("model_type") == CascadeConfig.model_type:
            module, untrained = _saved(source, {"layers": layers, "pooling": pooling, "outputs": outputs})
        else:
            module = _fresh(source, layers, pooling or POOLINGS[0], outputs or 2, trust_remote_code)
            untrained = fresh_heads(source, module.config)
    return CascadeModel(module.eval(), tokenizer_for(module, source, trust_remote_code), untrained)


def _saved(source: str, wanted: dict) -> tuple[CascadeTransformer, str | None]:
    config = config_from(source, cls=CascadeConfig)
    with undamaged(source, CONFIG):
        family_of(config.encoder_config)
        check_heads(tuple(config.layers), config.pooling, config.outputs)
        _check_depth(config.layers, config.encoder_config, source)
        _ = [Certificate.from_config(one) for one in config.certificates]
    layers = wanted.pop("layers") if config.converted else None
    for name, value in wanted.items():
        has = getattr(config, name)
        if value is not None and (list(value) if name == "layers" else value) != has:
            shown = tuple(has) if name == "layers" else has
            raise ValueError(f"{source!r} was made with {name}={shown!r}, not {value!r}; leave {name} out")
    module, info = pretrained(CascadeTransformer, source, config, ignore_mismatched_sizes=True)
    for what, names in (
        ("are missing", info["missing_keys"]),
        ("have other shapes", [name for name, *_ in info["mismatched_keys"]]),
        ("are left over", [name for name in info["unexpected_keys"] if name.startswith("heads.")]),
    ):
        if names:
            raise ValueError(
                f"{source!r} says that it is a Cascade Transformer with heads at layers {tuple(config.layers)}, but "
                f"these weights {what}: {', '.join(sorted(names)[:5])}{' ...' * (len(names) > 5)}; save it again"
            )
    if layers is not None and list(layers) != config.layers:
        place_heads(module, layers, source)
        return module, fresh_heads(source, module.config)
    untrained = None if config.trained_on else f"the heads of {source!r} were saved before they were trained"
    return module, untrained


def _converted(source: str, layers: Sequence[int] | None, trust_remote_code: bool) -> CascadeModel:
    found = crossencoder.load(source, trust_remote_code=trust_remote_code)
    if found.untrained:
        raise ValueError(f"{found.untrained}: a cascade is made of a trained cross-encoder; train it with fit() first")
    config = CascadeConfig(
        encoder=portable(found.module.config),
        layers=default_heads(found.layers) if layers is None else layers,
        converted=True,
        **BEFORE_CLASSIFIER,
    )
    with fixed_seed():
        module = CascadeTransformer(config).float()
    module.encoder.load_state_dict(found.module.base_model.state_dict(), strict=False)
    module.classifier.load_state_dict(family_of(found.module.config).classifier(found.module).state_dict())
    return CascadeModel(module.eval(), found.tokenizer, fresh_heads(source, config))


def place_heads(module: CascadeTransformer, layers: Sequence[int], source: str) -> None:
    """Gives a cascade that was made of a cross-encoder fresh heads at other layers; its classifier stays the last.

    Args:
        module: The cascade, changed in place.
        layers: The layers, ascending.
        source: The name of the cascade, for errors.
    """
    config = module.config
    check_last(layers, config.encoder_config, source)
    config.update({"layers": list(layers), "seen": 0, "trained_on": {}, "certificates": [], "probability": {}})
    with fixed_seed():
        fresh = CascadeTransformer(config)
    module.heads, module.seen_queries = fresh.heads, fresh.seen_queries


def check_last(layers: Sequence[int], encoder: transformers.PretrainedConfig, source: str) -> None:
    """Raises unless the last head stands where a cross-encoder's classifier reads."""
    _check_depth(layers, encoder, source)
    if layers[-1] != encoder.num_hidden_layers:
        raise ValueError(
            f"layers={tuple(layers)}, but the classifier of {source!r} reads layer {encoder.num_hidden_layers} and is "
            f"the last head; let layers end with {encoder.num_hidden_layers}"
        )


def fresh_heads(source: str, config: CascadeConfig) -> str | None:
    """Returns the reason why the heads' scores mean nothing yet; None where a trained classifier is the only head."""
    fresh = config.layers[:-1] if config.converted else config.layers
    return f"the heads of {source!r} at layers {tuple(fresh)} are fresh" if fresh else None


def _fresh(
    source: str, layers: Sequence[int] | None, pooling: str, outputs: int, trust_remote_code: bool
) -> CascadeTransformer:
    encoder_config = config_from(source, trust_remote_code)
    family_of(encoder_config)
    layers = default_heads(encoder_config.num_hidden_layers) if layers is None else tuple(layers)
    _check_depth(layers, encoder_config, source)
    encoder, _ = pretrained(transformers.AutoModel, source, encoder_config, trust_remote_code=trust_remote_code)
    if is_classifier(encoder_config) and getattr(encoder_config, "trained_on", None) != {}:
        warn_user(
            f"the classifier of {source!r} is dropped, and all heads are fresh; "
            f"Cascade.from_cross_encoder({source!r}) keeps it as the last head, with the same scores"
        )
    config = CascadeConfig(
        encoder=portable(encoder.config),
        layers=layers,
        pooling=pooling,
        outputs=outputs,
    )
    with fixed_seed():
        module = CascadeTransformer(config).float()
    module.encoder.load_state_dict(encoder.state_dict(), strict=False)
    return module


def _check_depth(layers: Sequence[int], encoder: transformers.PretrainedConfig, source: str) -> None:
    depth = encoder.num_hidden_layers
    if layers[-1] > depth:
        raise ValueError(
            f"heads at layers {tuple(layers)}, but the encoder {source!r} has {depth}; use layers 1 to {depth}"
        )


def check_heads(layers: Sequence[int] | None, pooling: str | None, outputs: int | None) -> None:
    """Raises unless heads can be made like this, whatever the encoder; None stands for the default."""
    if layers is not None and not are_layers(layers):
        raise ValueError(f"heads at layers {layers!r}: give layers from 1 in ascending order, each once")
    if pooling is not None:
        check_choices(pooling=(pooling, POOLINGS))
    if outputs not in (None, 1, 2):
        raise ValueError(f"a head has 1 or 2 outputs, not {outputs!r}")
