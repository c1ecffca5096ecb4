"""The Cascade Transformer: one encoder with a classifier after several of its layers (CT-9 to CT-14)."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from pyterrier_cascade.encoder.families import family_of
from pyterrier_cascade.encoder.heads import Head, Relevance
from pyterrier_cascade.encoder.pair_model import PairModel
from pyterrier_cascade.encoder.pretrained import config_of


class CascadeConfig(transformers.PretrainedConfig):
    """The configuration of a Cascade Transformer.

    Args:
        encoder: The configuration of the Hugging Face encoder, as a dictionary with ``model_type``.
        layers: The layers that a head reads, ascending; the last is the encoder's last (CT-9).
        pooling: How a head reads a layer: ``"mean_nocls"``, ``"mean"`` or ``"cls"`` (CT-10), or ``"mean_cls"``.
        head_width: The hidden units of a head (CT-12).
        outputs: The logits of a head: 2 with a softmax, or 1 with a sigmoid (CT-12).
        dropout: Of the heads (CT-13); the encoder has its own.
        converted: Whether the last head is the classifier of the cross-encoder that the cascade was made of. Then
            ``encoder`` is the configuration of that cross-encoder, and ``pooling``, ``head_width`` and ``outputs``
            describe the other heads.
        seen: The number of queries that the heads learned from, whose hashes are among the weights.
        trained_on: The record of the heads' training or distillation (:class:`~pyterrier_cascade.model.TrainedOn`);
            empty before it.
        certificates: The certificates of these weights, each as ``Certificate.to_config`` returns it.
        probability: Slope and offset of each head's curve from its scores to probabilities, by the number of its layer
            (:meth:`Cascade.fit_probability`); empty before the fit.
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
        converted: bool = False,
        seen: int = 0,
        trained_on: dict | None = None,
        certificates: Sequence[dict] = (),
        probability: dict | None = None,
        **kwargs,
    ):
        self.encoder, self.layers, self.pooling = encoder or {}, list(layers), pooling
        self.head_width, self.outputs, self.dropout = head_width, outputs, dropout
        self.converted, self.seen = converted, seen
        self.trained_on, self.certificates = trained_on or {}, list(certificates)
        self.probability = probability or {}
        super().__init__(**kwargs)

    @property
    def encoder_config(self) -> transformers.PretrainedConfig:
        """The encoder's configuration as its own class."""
        return config_of(self.encoder)


class CascadeTransformer(transformers.PreTrainedModel):
    """One encoder and its heads; see :class:`CascadeConfig`."""

    config_class = CascadeConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = False
    _supports_sdpa = True

    def __init__(self, config: CascadeConfig):
        super().__init__(config)
        if config.converted:
            whole = transformers.AutoModelForSequenceClassification.from_config(
                config.encoder_config, trust_remote_code=False
            )
            self.encoder, self.classifier = whole.base_model, family_of(whole.config).classifier(whole)
        else:
            self.encoder = transformers.AutoModel.from_config(config.encoder_config, trust_remote_code=False)
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None
        n_heads = len(config.layers) - config.converted
        self.heads = nn.ModuleList(fresh_head(config, self.encoder.config.hidden_size) for _ in range(n_heads))
        self.register_buffer("seen_queries", torch.zeros(config.seen, dtype=torch.int64))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(0.0, 0.02)
            module.bias.data.zero_()

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *more: Any) -> None:
        # A model that learned holds more hashes of queries than the one that it was made of.
        if (seen := state_dict.get(f"{prefix}seen_queries")) is not None:
            self.seen_queries, self.config.seen = torch.empty_like(seen), len(seen)
        super()._load_from_state_dict(state_dict, prefix, *more)

    @property
    def scorers(self) -> list[tuple[int, str, nn.Module]]:
        """For each head its layer, its pooling, and the module from pooled states ``(n, width)`` to logits."""
        config = self.config
        own = [(config.pooling, head) for head in self.heads]
        if config.converted:
            own.append((family_of(self.encoder.config).classifier_pooling(self.encoder.config), self.classifier))
        return [(layer, *one) for layer, one in zip(config.layers, own, strict=True)]

    def forward(
        self, heads: Sequence[int] | None = None, stop_gradient: bool = False, **inputs: torch.Tensor
    ) -> list[torch.Tensor]:
        """Returns the logits of some heads, each ``(n, outputs)``; no layer above the deepest of them is run.

        Args:
            heads: The numbers of the heads from 0, ascending; all unless given.
            stop_gradient: Whether a head trains no layer that an earlier head trains (CT-17, an ablation).
            **inputs: The encoder's: ``input_ids`` ``(n, longest)`` and so on.
        """
        scorers, layers = self.scorers, self.config.layers
        wanted = range(len(scorers)) if heads is None else heads
        family = family_of(self.encoder.config)
        owner, name = family.layer_list(self.encoder)
        every, states, hooks = getattr(owner, name), {}, []

        def keep_states(layer):
            def hook(module, given, output):
                states[layer] = output[0] if isinstance(output, tuple) else output
                # The layers above go on from a copy without gradient.
                if stop_gradient:
                    cut = states[layer].detach()
                    return (cut, *output[1:]) if isinstance(output, tuple) else cut

            return hook

        deepest = layers[wanted[-1]]
        before = [layer for layer in layers if layer < deepest]
        hooks = [every[layer - 1].register_forward_hook(keep_states(layer)) for layer in before]
        setattr(owner, name, every[:deepest])
        try:
            last = self.encoder(**inputs).last_hidden_state
        finally:
            setattr(owner, name, every)
            for hook in hooks:
                hook.remove()
        norm = family.final_norm(self.encoder)
        mask = inputs["attention_mask"]
        read = {layers.index(layer): norm(states[layer]) for layer in before} | {wanted[-1]: last}
        return [module(pooled(read[head], mask, how)) for head in wanted for _, how, module in [scorers[head]]]


def fresh_head(config: CascadeConfig, width: int) -> nn.Module:
    """Returns a head with two hidden layers (CT-12), from pooled states of an encoder of a width to logits."""
    width, inner = width * (2 if config.pooling == "mean_cls" else 1), config.head_width
    return nn.Sequential(
        nn.Linear(width, inner),
        nn.Tanh(),
        nn.Dropout(config.dropout),
        nn.Linear(inner, inner),
        nn.Tanh(),
        nn.Dropout(config.dropout),
        nn.Linear(inner, config.outputs),
    )


def pooled(states: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Returns the pooled states that a head reads, ``(n, width)``; pads take no part in means (CT-10).

    Args:
        states: ``(n, longest, width)``.
        mask: 1 for real symbols, ``(n, longest)``.
        pooling: One of :data:`~pyterrier_cascade.encoder.layout.POOLINGS`.
    """
    if pooling == "cls":
        return states[:, 0]
    if pooling == "mean_cls":
        return torch.cat([pooled(states, mask, "mean"), states[:, 0]], 1)
    skipped = int(pooling == "mean_nocls")
    weights = mask[:, skipped:, None].to(states.dtype)
    return (states[:, skipped:] * weights).sum(1) / weights.sum(1)


class CascadeModel(PairModel):
    """A Cascade Transformer with its tokenizer."""

    @property
    def heads(self) -> list[Head]:
        """The heads, for the engine."""
        return [Head(layer, pooling, Relevance(module)) for layer, pooling, module in self.module.scorers]

    @property
    def head_layers(self) -> tuple[int, ...]:
        """The layers that heads read, ascending."""
        return tuple(self.module.config.layers)

    @property
    def encoder_config(self) -> transformers.PretrainedConfig:
        """The encoder's configuration."""
        return self.module.encoder.config

    def describe(self) -> dict[str, Any]:
        """Returns the description that ``info`` prints."""
        config = self.module.config
        found = {name: getattr(config, name) for name in ("outputs", "converted")}
        return super().describe() | found | {"trained_on": config.trained_on or None}

    def new_weights(self) -> None:
        """Drops the certificates, and the curves of :meth:`Cascade.fit_probability`."""
        self.module.config.update({"certificates": [], "probability": {}})

    @property
    def remedy(self) -> str:
        """What makes scores of fresh heads mean something."""
        if self.module.config.converted:
            return "call distil(candidates) before candidates are dropped by their scores"
        return super().remedy

    def has_seen(self, queries: Sequence[str]) -> np.ndarray:
        """Returns which queries the heads learned from, boolean ``(n,)``."""
        return np.isin(query_hashes(queries), self.module.seen_queries.cpu().numpy())

    def remember(self, queries: Iterable[str]) -> None:
        """Notes that the heads learned from queries."""
        new = torch.from_numpy(query_hashes(list(queries))).to(self.module.seen_queries.device)
        self.module.seen_queries = torch.cat([self.module.seen_queries, new]).unique()
        self.module.config.seen = len(self.module.seen_queries)


def query_hashes(queries: Sequence[str]) -> np.ndarray:
    """Returns a hash of each query's words, whatever their case and the spaces between them, int64 ``(n,)``."""
    words = (" ".join(query.casefold().split()).encode("utf-8", "surrogatepass") for query in queries)
    hashes = [int.from_bytes(hashlib.sha256(one).digest()[:8], "little", signed=True) for one in words]
    return np.array(hashes, dtype=np.int64)


transformers.AutoConfig.register(CascadeConfig.model_type, CascadeConfig)
transformers.AutoModel.register(CascadeConfig, CascadeTransformer)
