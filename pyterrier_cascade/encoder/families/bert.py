"""BERT and MiniLM, RoBERTa, XLM-R and CamemBERT, and ELECTRA."""

from typing import Any

from torch import nn

from pyterrier_cascade.encoder.families.base import LayerParts, PostNormFamily, first_of_sequence


class Bert(PostNormFamily):
    """BERT and MiniLM, which has the same architecture."""

    model_types = ("bert",)
    has_tanh_head = True

    def layer_parts(self, encoder: nn.Module) -> list[LayerParts]:
        """Returns the Hugging Face modules of each layer."""
        return [
            LayerParts(
                *(layer.attention.self.query, layer.attention.self.key, layer.attention.self.value),
                *(layer.attention.output.dense, layer.attention.output.LayerNorm),
                *(layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm),
            )
            for layer in encoder.encoder.layer
        ]

    def classifier(self, module: nn.Module) -> nn.Module:
        """Returns the pooler, which takes the states of all tokens and reads the first, and the linear classifier."""
        return nn.Sequential(first_of_sequence(), module.base_model.pooler, module.classifier)

    def dense_before_tanh(self, module: nn.Module) -> nn.Linear:
        """Returns the pooler's dense layer."""
        return module.base_model.pooler.dense


class Electra(Bert):
    """ELECTRA: BERT's layers, embeddings that may be narrower, and a classifier with a GELU."""

    model_types = ("electra",)
    has_tanh_head = False

    def classifier(self, module: nn.Module) -> nn.Module:
        """Returns the classifier, which takes the states of all tokens and reads the first."""
        return nn.Sequential(first_of_sequence(), module.classifier)


class Roberta(Bert):
    """RoBERTa, XLM-R and CamemBERT: positions are counted from the id of the padding token plus 1."""

    model_types = ("roberta", "xlm-roberta", "camembert")

    def first_position(self, config: Any) -> int:
        """Returns the row of the position table that the first token uses."""
        return config.pad_token_id + 1

    def deciding_fields(self, config: Any) -> dict[str, Any]:
        """Returns the row of the first position."""
        return {"first_position": self.first_position(config)}

    def classifier(self, module: nn.Module) -> nn.Module:
        """Returns the classifier, which takes the states of all tokens and reads the first."""
        return nn.Sequential(first_of_sequence(), module.classifier)

    def dense_before_tanh(self, module: nn.Module) -> nn.Linear:
        """Returns the classifier's dense layer."""
        return module.classifier.dense
