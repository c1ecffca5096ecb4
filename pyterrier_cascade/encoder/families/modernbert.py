"""ModernBERT: norms first, rotary positions, gated feed-forward layers, and attention in windows."""

from typing import Any

import torch
from torch import nn

from pyterrier_cascade.encoder.families.base import Encoder, Family, Weights
from pyterrier_cascade.encoder.layers import ModernLayer

LOCAL, FULL = "sliding_attention", "full_attention"
"""The names of the two kinds of layers: attention in a window, and attention to the whole input."""


class ModernBert(Family):
    """ModernBERT."""

    model_types = ("modernbert",)
    has_position_table = False

    def take_apart(self, encoder: nn.Module, weights: Weights) -> Encoder:
        """Returns the encoder as layers that can be run one by one."""
        config, tables = encoder.config, encoder.embeddings
        embeddings = weights.embeddings({"input_ids": tables.tok_embeddings}, tables.norm)
        rotary: dict[str, tuple[torch.Tensor, ...]] = {}
        layers = []
        for layer in encoder.layers:
            attention, feed = layer.attn, layer.mlp
            kind = LOCAL if _is_local(layer) else FULL
            if kind not in rotary:
                rotary[kind] = tuple(table.to(weights.device) for table in _rotary(encoder, layer, kind))
            query, key_value, query_key_value = weights.divided(config.hidden_size, attention.Wqkv)
            up, gate, up_gate = weights.divided(config.intermediate_size, feed.Wi, activation=config.hidden_activation)
            layers.append(
                ModernLayer(
                    weights.norm(layer.attn_norm),
                    query,
                    key_value,
                    weights.linear(attention.Wo),
                    weights.norm(layer.mlp_norm),
                    up,
                    gate,
                    weights.linear(feed.Wo),
                    *rotary[kind],
                    config.num_attention_heads,
                    config.local_attention // 2 if kind == LOCAL else None,
                    query_key_value,
                    up_gate,
                )
            )
        return Encoder(embeddings, layers, weights.norm(encoder.final_norm), config.hidden_size)

    def layer_list(self, encoder: nn.Module) -> tuple[nn.Module, str]:
        """Returns the module that holds the layers, and the name of its attribute with the list of layers."""
        return encoder, "layers"

    def final_norm(self, encoder: nn.Module) -> nn.Module:
        """Returns the norm behind the last layer."""
        return encoder.final_norm

    def truncate(self, config: Any, layers: int) -> None:
        """Changes a configuration, in place, to that of an encoder with only the first layers."""
        super().truncate(config, layers)
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]

    def deciding_fields(self, config: Any) -> dict[str, Any]:
        """Returns the kind of each layer's attention, the window, and the rotary positions."""
        kinds = getattr(config, "layer_types", None)
        if kinds is None:
            every = config.global_attn_every_n_layers
            kinds = [LOCAL if number % every else FULL for number in range(config.num_hidden_layers)]
        rotary = getattr(config, "rope_parameters", None)
        if rotary is None:
            thetas = {FULL: config.global_rope_theta, LOCAL: config.local_rope_theta or config.global_rope_theta}
            rotary = {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()}
        return {"layer_types": list(kinds), "window": config.local_attention // 2, "rotary": rotary}

    def classifier_pooling(self, config: Any) -> str:
        """Returns the pooling of Hugging Face's classifier, which is a field of the configuration."""
        return config.classifier_pooling

    def classifier(self, module: nn.Module) -> nn.Module:
        """Returns the prediction head and the linear classifier."""
        return nn.Sequential(module.head, module.classifier)


def _is_local(layer) -> bool:
    """Returns whether a layer attends in a window only; transformers 4 and 5 have different attributes for this."""
    if hasattr(layer, "attention_type"):
        return layer.attention_type == LOCAL
    return layer.attn.local_attention != (-1, -1)


def _rotary(encoder, layer, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the cosines and sines that transformers itself computes, each ``(positions, head_width)``."""
    positions = torch.arange(encoder.config.max_position_embeddings, device=encoder.final_norm.weight.device)[None]
    like = encoder.final_norm.weight.detach().float()
    shared = getattr(encoder, "rotary_emb", None)
    if shared is not None:
        cos, sin = shared(like, positions, kind)
    else:
        cos, sin = layer.attn.rotary_emb(like, position_ids=positions)
    return cos[0], sin[0]
