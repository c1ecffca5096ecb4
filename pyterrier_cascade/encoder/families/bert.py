"""BERT and MiniLM, RoBERTa, XLM-R and CamemBERT, and ELECTRA."""

from typing import Any

from torch import nn

from pyterrier_cascade.encoder.families.base import Encoder, LayerParts, PostNormFamily, Stack, Weights


class Bert(PostNormFamily):
    """BERT and MiniLM, which has the same architecture."""

    model_types = ("bert",)
    has_tanh_head = True

    def take_apart(self, encoder: nn.Module, weights: Weights) -> Encoder:
        """Returns the encoder as layers that can be run one by one."""
        tables = encoder.embeddings
        embeddings = weights.embeddings(
            {
                "input_ids": tables.word_embeddings,
                "positions": tables.position_embeddings,
                "token_type_ids": tables.token_type_embeddings,
            },
            tables.LayerNorm,
            project=self._projection(encoder),
            padding_id=self._padding_id(encoder.config),
        )
        return Encoder(embeddings, self.layers(encoder, weights), nn.Identity(), encoder.config.hidden_size)

    def _projection(self, encoder: nn.Module) -> nn.Linear | None:
        """Returns the map from the width of the embeddings to that of the layers; None if the widths are equal."""
        return None

    def _padding_id(self, config: Any) -> int | None:
        """Returns the id of the padding token if positions are counted from it, or None if they are counted from 0."""
        return None

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
        return Stack((module.base_model.pooler, True), (module.classifier, False))

    def dense_before_tanh(self, module: nn.Module) -> nn.Linear:
        """Returns the pooler's dense layer."""
        return module.base_model.pooler.dense


class Electra(Bert):
    """ELECTRA: BERT's layers, embeddings that may be narrower, and a classifier with a GELU."""

    model_types = ("electra",)
    has_tanh_head = False

    def _projection(self, encoder: nn.Module) -> nn.Linear | None:
        return getattr(encoder, "embeddings_project", None)

    def classifier(self, module: nn.Module) -> nn.Module:
        """Returns the classifier, which takes the states of all tokens and reads the first."""
        return Stack((module.classifier, True))


class Roberta(Bert):
    """RoBERTa, XLM-R and CamemBERT: positions are counted from the id of the padding token plus 1."""

    model_types = ("roberta", "xlm-roberta", "camembert")

    def _padding_id(self, config: Any) -> int:
        return config.pad_token_id

    def first_position(self, config: Any) -> int:
        """Returns the row of the position table that the first token uses."""
        return config.pad_token_id + 1

    def classifier(self, module: nn.Module) -> nn.Module:
        """Returns the classifier, which takes the states of all tokens and reads the first."""
        return Stack((module.classifier, True))

    def dense_before_tanh(self, module: nn.Module) -> nn.Linear:
        """Returns the classifier's dense layer."""
        return module.classifier.dense
