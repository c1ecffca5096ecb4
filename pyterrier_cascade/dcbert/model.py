"""DC-BERT: one BERT for questions, one for documents, and an interaction on top of both (DC-1 to DC-6)."""

from collections.abc import Mapping

import torch
import transformers
from torch import nn

from pyterrier_cascade.dcbert.joint import Encoded, JointLayers, bare_encoder
from pyterrier_cascade.dcbert.one_way import OneWayLayers
from pyterrier_cascade.dcbert.variants import LinearInteraction, LSTMInteraction
from pyterrier_cascade.encoder.families import family_of
from pyterrier_cascade.encoder.pretrained import config_of

LAYERED = {"transformer": JointLayers, "one_way": OneWayLayers}
"""The variants with joint layers."""

OTHERS = {"linear": LinearInteraction, "lstm": LSTMInteraction}
"""The variants without."""

VARIANTS = (*LAYERED, *OTHERS)

TOGETHER = 8
"""How many texts go through an encoder together in training."""


class DCBertConfig(transformers.PretrainedConfig):
    """The configuration of a DC-BERT.

    Args:
        encoder: The configuration of the Hugging Face encoder, at its full depth, as a dictionary with ``model_type``.
        variant: The interaction: ``"transformer"`` is K joint layers (DC-5); ``"one_way"`` is K layers that compute
            the question's rows only; ``"linear"`` and ``"lstm"`` are the variants that the paper compares with (DC-35).
        joint_layers: K (DC-9).
        lower_layers: The depth of the two encoders; full unless given (DC-3).
        tied: Whether one encoder serves both questions and documents (DC-4).
        head: ``"paper"`` reads both CLS outputs side by side (DC-6); ``"compare"`` their product and difference too;
            ``"late"`` does so and adds late interaction's score of the encoders' states, with a trained weight.
        trained_on: The record of the training; empty while it is not trained.
    """

    model_type = "dc_bert"

    def __init__(
        self,
        encoder: dict | None = None,
        variant: str = "transformer",
        joint_layers: int = 1,
        lower_layers: int | None = None,
        tied: bool = False,
        head: str = "late",
        trained_on: dict | None = None,
        **kwargs,
    ):
        self.encoder, self.variant, self.joint_layers = encoder or {}, variant, joint_layers
        self.lower_layers, self.tied, self.head = lower_layers, tied, head
        self.trained_on = trained_on or {}
        super().__init__(**kwargs)

    def encoder_config(self, layers: int | None = None) -> transformers.PretrainedConfig:
        """Returns the encoder's configuration as its own class, perhaps with fewer layers."""
        config = config_of(self.encoder)
        if layers is not None:
            family_of(config).truncate(config, layers)
        return config


class DCBert(transformers.PreTrainedModel):
    """Two encoders and the interaction that joins their states; see :class:`DCBertConfig`."""

    config_class = DCBertConfig
    base_model_prefix = "encoders"
    supports_gradient_checkpointing = False
    _supports_sdpa = True

    def __init__(self, config: DCBertConfig):
        super().__init__(config)
        sides = ("question",) if config.tied else ("question", "document")
        self.encoders = nn.ModuleDict({s: bare_encoder(config.encoder_config(config.lower_layers)) for s in sides})
        width = config.encoder_config().hidden_size
        if config.variant in LAYERED:
            self.joint = LAYERED[config.variant](config.encoder_config(config.joint_layers), config.head)
        else:
            self.joint = OTHERS[config.variant](width)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(0.0, 0.02)
            if module.bias is not None:
                module.bias.data.zero_()

    def get_input_embeddings(self) -> nn.Module:
        """Returns the word embeddings of the question's encoder."""
        return self.encoders["question"].get_input_embeddings()

    def encoder_of(self, side: str) -> transformers.PreTrainedModel:
        """Returns the encoder of ``"question"`` or ``"document"``."""
        return self.encoders["question" if self.config.tied else side]

    def encoded(self, side: str, inputs: Mapping[str, torch.Tensor]) -> Encoded:
        """Returns the states of padded texts, without pads, or the states that are given instead."""
        if "states" in inputs:
            return Encoded(**inputs)
        encoder, mask = self.encoder_of(side), inputs["attention_mask"].bool()
        lengths, found = mask.sum(1), {}
        # A few of similar length at a time: a paragraph is many pads beside a page.
        for part in lengths.argsort().split(TOGETHER):
            longest = int(lengths[part].max())
            states = encoder(**{name: values[part, :longest] for name, values in inputs.items()}).last_hidden_state
            parts = states[mask[part, :longest]].split(lengths[part].tolist())
            found |= dict(zip(part.tolist(), parts, strict=True))
        return Encoded(torch.cat([found[number] for number in range(len(lengths))]), lengths)

    def forward(
        self,
        question_of: torch.Tensor,
        document_of: torch.Tensor,
        questions: Mapping[str, torch.Tensor],
        documents: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:
        """Returns the log-odds of relevance of pairs, ``(n_pairs,)``.

        Args:
            question_of: The question of each pair as a number, ``(n_pairs,)``.
            document_of: Its document, likewise.
            questions: Padded token ids and their mask, each ``(n_questions, longest)``, or the fields of
                :class:`Encoded`.
            documents: The same of documents.
        """
        sides = self.encoded("question", questions), self.encoded("document", documents)
        return self.joint(*sides, question_of, document_of)


transformers.AutoConfig.register(DCBertConfig.model_type, DCBertConfig)
transformers.AutoModel.register(DCBertConfig, DCBert)
