"""The Cascade Transformer: one encoder with a classifier after several of its layers (CT-9 to CT-14)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import transformers
from torch import nn

from pyterrier_cascade.checkpoint import check_folder
from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.crossencoder.model import PairModel, relevance
from pyterrier_cascade.early_exit.pruning import are_layers
from pyterrier_cascade.encoder.families import Head, check_family, layers_of
from pyterrier_cascade.encoder.layout import POOLINGS
from pyterrier_cascade.encoder.pretrained import pretrained, silenced


class CascadeConfig(transformers.PretrainedConfig):
    """What a Cascade Transformer is made of.

    Args:
        encoder: The configuration of the Hugging Face encoder, as a dictionary with ``model_type``.
        layers: The layers that are read by a head, ascending; the last is the encoder's last (CT-9).
        pooling: How a head reads a layer: ``"mean_nocls"``, ``"mean"`` or ``"cls"`` (CT-10).
        head_width: The hidden units of a head (CT-12).
        outputs: The logits of a head: 2 with a softmax, or 1 with a sigmoid (CT-12).
        dropout: Of the heads (CT-13); the encoder has its own.
        trained_on: What the heads were trained on, for the model card; empty while they are not trained.
    """

    model_type = "cascade_transformer"

    def __init__(
        self,
        encoder: dict | None = None,
        layers: Sequence[int] = (),
        pooling: str = "mean_nocls",
        head_width: int = 768,
        outputs: int = 2,
        dropout: float = 0.1,
        trained_on: dict | None = None,
        **kwargs,
    ):
        self.encoder, self.layers, self.pooling = encoder or {}, list(layers), pooling
        self.head_width, self.outputs, self.dropout = head_width, outputs, dropout
        self.trained_on = trained_on or {}
        super().__init__(**kwargs)

    @property
    def encoder_config(self) -> transformers.PretrainedConfig:
        """The encoder's configuration as its own class."""
        return transformers.AutoConfig.for_model(**self.encoder)


class CascadeTransformer(transformers.PreTrainedModel):
    """One encoder and its heads; see :class:`CascadeConfig`."""

    config_class = CascadeConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = False
    _supports_sdpa = True

    def __init__(self, config: CascadeConfig):
        super().__init__(config)
        self.encoder = transformers.AutoModel.from_config(config.encoder_config)
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None
        width, inner = self.encoder.config.hidden_size, config.head_width
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, inner),
                nn.Tanh(),
                nn.Dropout(config.dropout),
                nn.Linear(inner, inner),
                nn.Tanh(),
                nn.Dropout(config.dropout),
                nn.Linear(inner, config.outputs),
            )
            for _ in config.layers
        )
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(0.0, 0.02)
            module.bias.data.zero_()

    def forward(
        self, heads: Sequence[int] | None = None, stop_gradient: bool = False, **inputs: torch.Tensor
    ) -> list[torch.Tensor]:
        """Returns the logits of some heads, each ``(n, outputs)``; no layer above the deepest of them is run.

        Args:
            heads: The numbers of the heads from 0, ascending; all unless given.
            stop_gradient: Whether a head trains no layer that an earlier head trains (CT-17, an ablation).
            **inputs: The encoder's: ``input_ids`` ``(n, longest)`` and so on.
        """
        wanted, layers = range(len(self.heads)) if heads is None else heads, self.config.layers
        owner, name = layers_of(self.encoder)
        every, states, hooks = getattr(owner, name), {}, []

        def note(layer):
            def hook(module, given, output):
                states[layer] = output[0] if isinstance(output, tuple) else output
                # What lies above goes on from a copy that leads no gradient back.
                if stop_gradient:
                    cut = states[layer].detach()
                    return (cut, *output[1:]) if isinstance(output, tuple) else cut

            return hook

        deepest = layers[wanted[-1]]
        before = [layer for layer in layers if layer < deepest]
        hooks = [every[layer - 1].register_forward_hook(note(layer)) for layer in before]
        setattr(owner, name, every[:deepest])
        try:
            last = self.encoder(**inputs).last_hidden_state
        finally:
            setattr(owner, name, every)
            for hook in hooks:
                hook.remove()
        norm = getattr(self.encoder, "final_norm", nn.Identity())
        mask = inputs["attention_mask"]
        read = {layers.index(layer): norm(states[layer]) for layer in before} | {wanted[-1]: last}
        return [self.heads[head](pooled(read[head], mask, self.config.pooling)) for head in wanted]


def pooled(states: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Returns what a head reads, ``(n, width)``: means are over real symbols only (CT-10).

    Args:
        states: ``(n, longest, width)``.
        mask: 1 for real symbols, ``(n, longest)``.
        pooling: One of :data:`~pyterrier_cascade.encoder.layout.POOLINGS`.
    """
    if pooling == "cls":
        return states[:, 0]
    skipped = int(pooling == "mean_nocls")
    weights = mask[:, skipped:, None].to(states.dtype)
    return (states[:, skipped:] * weights).sum(1) / weights.sum(1)


class Relevance(nn.Module):
    """A head as the engine runs it: from pooled states ``(n, width)`` to the log-odds of relevance ``(n,)``.

    Args:
        module: From pooled states to logits.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Returns the log-odds: the order of p(positive), without its rounding to 1 (CT-12)."""
        return relevance(self.module(pooled))


@dataclass
class CascadeModel(PairModel):
    """A Cascade Transformer with its tokenizer."""

    @property
    def encoder_config(self) -> transformers.PretrainedConfig:
        """The encoder's configuration."""
        return self.module.encoder.config

    @cached_property
    def head_layers(self) -> tuple[int, ...]:
        """The layers that heads read, ascending."""
        return tuple(self.module.config.layers)

    @property
    def heads(self) -> list[Head]:
        """The heads, for the engine."""
        pooling, modules = self.module.config.pooling, self.module.heads
        return [Head(layer, pooling, Relevance(head)) for layer, head in zip(self.head_layers, modules, strict=True)]


def default_layers(depth: int) -> tuple[int, ...]:
    """Returns where heads are by default: 4, 6, 8, 10 and 12 of 12 layers (CT-7), and alike for other depths."""
    return tuple(sorted({max(1, depth * sixths // 6) for sixths in range(2, 7)}))


def load(
    source: str,
    layers: Sequence[int] | None = None,
    pooling: str | None = None,
    outputs: int | None = None,
    trust_remote_code: bool = False,
) -> CascadeModel:
    """Returns the Cascade Transformer in a folder or on the Hub, or a bare encoder with fresh heads.

    Args:
        source: A folder or a Hub name.
        layers: Where the heads are; those of the checkpoint, or for a bare encoder :func:`default_layers`.
        pooling: How heads read; as the checkpoint says, or for a bare encoder ``"mean_nocls"`` (CT-10).
        outputs: The logits of a head, 1 or 2; as the checkpoint says, or for a bare encoder 2 (CT-12).
        trust_remote_code: Whether code that comes with a bare encoder may run.
    """
    check_folder(source)
    check_heads(layers, pooling, outputs)
    found, _ = transformers.PretrainedConfig.get_config_dict(source)
    with silenced():
        if found.get("model_type") == CascadeConfig.model_type:
            module, untrained = _saved(source, {"layers": layers, "pooling": pooling, "outputs": outputs})
        else:
            module = _fresh(source, layers, pooling or POOLINGS[0], outputs or 2, trust_remote_code)
            untrained = f"the heads of {source!r} at layers {tuple(module.config.layers)} are fresh"
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
    if not tokenizer.is_fast:
        raise ValueError(f"{source!r} has no fast tokenizer; save one beside it (tokenizer.json)")
    return CascadeModel(module.eval(), tokenizer, untrained)


def _saved(source: str, wanted: dict) -> tuple[CascadeTransformer, str | None]:
    config = CascadeConfig.from_pretrained(source)
    check_family(config.encoder_config)
    check_heads(tuple(config.layers), config.pooling, config.outputs)
    _check_depth(config.layers, config.encoder_config, source)
    for name, value in wanted.items():
        has = getattr(config, name)
        if value is not None and (list(value) if name == "layers" else value) != has:
            shown = tuple(has) if name == "layers" else has
            raise ValueError(f"{source!r} was made with {name}={shown!r}, not {value!r}; leave {name} out")
    options = {"output_loading_info": True, "ignore_mismatched_sizes": True, "dtype": torch.float32}
    module, info = pretrained(CascadeTransformer, source, config=config, **options)
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
    untrained = None if config.trained_on else f"the heads of {source!r} were saved before they were trained"
    return module, untrained


def _fresh(
    source: str, layers: Sequence[int] | None, pooling: str, outputs: int, trust_remote_code: bool
) -> CascadeTransformer:
    trust = {"trust_remote_code": trust_remote_code}
    encoder_config = transformers.AutoConfig.from_pretrained(source, **trust)
    check_family(encoder_config)
    layers = default_layers(encoder_config.num_hidden_layers) if layers is None else tuple(layers)
    _check_depth(layers, encoder_config, source)
    encoder = pretrained(transformers.AutoModel, source, config=encoder_config, dtype=torch.float32, **trust)
    config = CascadeConfig(
        # Where the encoder lay here is nobody else's concern.
        encoder={name: value for name, value in encoder.config.to_dict().items() if name != "_name_or_path"},
        layers=layers,
        pooling=pooling,
        outputs=outputs,
    )
    # Fresh heads are drawn alike every time, so that two rankers on the same bare encoder are the same ranker.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
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


transformers.AutoConfig.register(CascadeConfig.model_type, CascadeConfig)
transformers.AutoModel.register(CascadeConfig, CascadeTransformer)
