"""DistilBERT: BERT's layers under other names, without token types."""

from typing import Any

from torch import nn

from pyterrier_cascade.encoder.families.base import LayerParts, PostNormFamily


class DistilBert(PostNormFamily):
    """DistilBERT."""

    model_types = ("distilbert",)

    def layer_list(self, encoder: nn.Module) -> tuple[nn.Module, str]:
        """Returns the module that holds the layers, and the name of its attribute with the list of layers."""
        return encoder.transformer, "layer"

    def layer_parts(self, encoder: nn.Module) -> list[LayerParts]:
        """Returns the Hugging Face modules of each layer."""
        return [
            LayerParts(
                *(layer.attention.q_lin, layer.attention.k_lin, layer.attention.v_lin),
                *(layer.attention.out_lin, layer.sa_layer_norm),
                *(layer.ffn.lin1, layer.ffn.lin2, layer.output_layer_norm),
            )
            for layer in encoder.transformer.layer
        ]

    def activation(self, config: Any) -> str:
        """Returns the name of the activation in the feed-forward part of a layer."""
        return config.activation

    def dropout(self, config: Any) -> float:
        """Returns the dropout probability of the layers."""
        return config.dropout

    def classifier(self, module: nn.Module) -> nn.Module:
        """Returns the dense layer, the ReLU and the linear classifier."""
        return nn.Sequential(module.pre_classifier, nn.ReLU(), module.classifier)
