"""A DC-BERT in memory: texts to states, states to scores."""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from pyterrier_cascade.checks import warn_user
from pyterrier_cascade.dcbert import late
from pyterrier_cascade.dcbert.interaction import Interaction, tensor
from pyterrier_cascade.dcbert.joint import LATE_SCALE, Encoded, JointLayers
from pyterrier_cascade.dcbert.model import LAYERED, DCBert
from pyterrier_cascade.dcbert.one_way import OneWay, OneWayLayers
from pyterrier_cascade.encoder.families import Weights
from pyterrier_cascade.encoder.lengths import default_length, length_limit
from pyterrier_cascade.encoder.linear import linear_for
from pyterrier_cascade.encoder.texts import TextEncoder
from pyterrier_cascade.encoder.weight_cache import WeightCache
from pyterrier_cascade.forks import cached_property
from pyterrier_cascade.identity import combined, deciding_fields, of_weights
from pyterrier_cascade.model import LoadedModel

QUERY_LENGTH = 64
"""The most tokens of a query, unless the user gives another number."""

Scorer = Callable[[torch.Tensor, Any], torch.Tensor]
"""Returns the score of each document, given a question's states and the documents'
:class:`~pyterrier_cascade.store.states.States`."""


class DCBertModel(LoadedModel):
    """A DC-BERT with its tokenizer.

    Args:
        module: The model, in evaluation mode.
        tokenizer: Its fast tokenizer.
        untrained: The reason why its scores mean nothing yet, as the beginning of a sentence; None if it is trained.
    """

    module: DCBert
    tokenizer: transformers.PreTrainedTokenizerBase

    @cached_property
    def _from_weights(self) -> WeightCache:
        return WeightCache(self.module)

    @cached_property
    def _encoder_config(self) -> transformers.PretrainedConfig:
        return self.module.config.encoder_config()

    @property
    def lower_layers(self) -> int:
        """The layers of the encoders."""
        return self.module.config.lower_layers or self.full_layers

    @property
    def joint_layers(self) -> int:
        """The joint layers, one-way ones too; the other variants have none."""
        return self.module.config.joint_layers if self.module.config.variant in LAYERED else 0

    @property
    def is_one_way(self) -> bool:
        """Whether joint layers compute the question's tokens only."""
        return self.module.config.variant == "one_way"

    @property
    def full_layers(self) -> int:
        """The layers of the encoder that this was made of, by which relative cost is counted."""
        return self._encoder_config.num_hidden_layers

    @cached_property
    def length_limit(self) -> int:
        """The most tokens of question and document together."""
        return length_limit(self._encoder_config, self.tokenizer)

    @property
    def width(self) -> int:
        """The numbers in a token's state."""
        return self._encoder_config.hidden_size

    def lengths(self, query: int | None = None, document: int | None = None) -> tuple[int, int]:
        """Returns the most tokens of a query and of a passage.

        Each is an input of its encoder, so that by default neither is longer than :func:`default_length` says.

        Args:
            query: The wanted number of a query; :data:`QUERY_LENGTH`, or a quarter of the positions, unless given.
            document: The wanted number of a passage; all that the query leaves unless given.
        """
        usual = default_length(self._encoder_config, self.tokenizer)
        query = query or min(QUERY_LENGTH, self.length_limit // 4, usual)
        return query, min(self.length_limit - query, usual) if document is None else document

    def encoder(self, side: str, device: torch.device, precision: str) -> TextEncoder:
        """Returns the encoder of questions or of documents.

        Args:
            side: ``"question"`` or ``"document"``.
            device: Where to compute.
            precision: ``"fp32"``, ``"bf16"`` or ``"fp16"``.
        """
        module = self.module.encoder_of(side)
        return self._from_weights.get((id(module), device, precision), lambda: TextEncoder(module, device, precision))

    def scorer(self, device: torch.device) -> Scorer:
        """Returns the function that joins a question and documents."""
        return self._from_weights.get(("joint", device), lambda: _scorer(self.module.joint, device))

    def document_fingerprint(self, settings: Sequence | None = None) -> str:
        """Returns a hash of everything that documents' states depend on, so that one cache serves many joint layers.

        Args:
            settings: The settings that they depend on: the most tokens of a passage, whether further passages are
                kept, and the precision; those of a :class:`DCBERT` with defaults unless given.
        """
        settings = (self.lengths()[1], False, "fp32") if settings is None else tuple(settings)
        encoder = self.module.encoder_of("document")
        weights = self._from_weights.get("document weights", lambda: of_weights(encoder.state_dict()))
        return combined(weights, self.tokenizer_identity, deciding_fields(encoder.config), settings)

    def warn_if_untrained(self) -> None:
        """Warns if the joint layers were never trained."""
        if self.untrained:
            warn_user(f"{self.untrained}: train them with fit() before scores mean anything, or use interaction='late'")

    def describe(self) -> dict[str, Any]:
        """Returns the facts that ``python -m pyterrier_cascade info`` prints."""
        config = self.module.config
        return {
            "encoder": self._encoder_config.model_type,
            "layers": self.full_layers,
            "width": self.width,
            "lower_layers": self.lower_layers,
            "joint_layers": self.joint_layers,
            "variant": config.variant,
            "tied": config.tied,
            "head": config.head,
            "tokens": self.length_limit,
            "trained_on": config.trained_on or None,
            "document_fingerprint": self.document_fingerprint(),
        }


def _scorer(joint: nn.Module, device: torch.device) -> Scorer:
    if isinstance(joint, JointLayers):
        make = linear_for(device, torch.float32)
        layers = joint.family.layers(joint.encoder, Weights(device, torch.float32, make, together=device.type != "cpu"))
        kind = OneWay if isinstance(joint, OneWayLayers) else Interaction
        interaction = kind(layers, joint.positions.weight, joint.types.weight, joint.head, device)
        if joint.late is None:
            return interaction.score
        weight, compared = LATE_SCALE * joint.late.item(), late.scorer(device)

        def with_late(question: torch.Tensor, found) -> torch.Tensor:
            if device.type != "cpu":
                # Both read the documents, which are uploaded once.
                found = dataclasses.replace(found, states=tensor(found.states, device))
            return interaction.score(question, found) + weight * compared(question, found)

        return with_late

    if device.type != "cpu":
        # The user's own module stays where it is.
        joint = copy.deepcopy(joint).to(device)

    @torch.inference_mode()
    def score(question: torch.Tensor, documents) -> torch.Tensor:
        lengths = torch.from_numpy(np.asarray(documents.lengths, dtype=np.int64)).to(device)
        states = tensor(documents.states, device).float()
        if documents.scales is not None:
            states = states * tensor(documents.scales, device)[:, None].float()
        asked = Encoded(question.to(device), torch.tensor([len(question)], device=device))
        numbers = torch.arange(len(lengths), device=device)
        return joint(asked, Encoded(states, lengths), torch.zeros_like(numbers), numbers).cpu()

    return score
