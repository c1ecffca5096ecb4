"""A loaded model that reads query and document together: an encoder with one or several heads."""

from abc import abstractmethod
from typing import Any

import transformers

from pyterrier_cascade.encoder.executors import Executors
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.lengths import default_length, length_limit
from pyterrier_cascade.forks import cached_property
from pyterrier_cascade.model import LoadedModel


class PairModel(LoadedModel):
    """A loaded Hugging Face module whose encoder the engine runs layer by layer.

    A subclass implements :attr:`heads` and :attr:`encoder_config`.
    """

    @property
    @abstractmethod
    def heads(self) -> list[Head]:
        """The heads, in order of their layers."""

    @property
    @abstractmethod
    def encoder_config(self) -> transformers.PretrainedConfig:
        """The configuration of the encoder."""

    @cached_property
    def executors(self) -> Executors:
        """The executors of the encoder and its heads."""
        return Executors(self.module.base_model, self.heads)

    @property
    def head_layers(self) -> tuple[int, ...]:
        """The layers that heads read, ascending."""
        return tuple(head.layer for head in self.heads)

    @property
    def layers(self) -> int:
        """The layers that the encoder has."""
        return self.encoder_config.num_hidden_layers

    @property
    def full_layers(self) -> int:
        """The layers of the encoder before it was truncated; relative cost is counted by them (CT-34)."""
        return getattr(self.encoder_config, "full_layers", None) or self.layers

    @property
    def length_limit(self) -> int:
        """The most tokens that an input may have."""
        return length_limit(self.encoder_config, self.tokenizer)

    @property
    def default_length(self) -> int:
        """The most tokens of an input where the user gives no number."""
        return default_length(self.encoder_config, self.tokenizer)

    def describe(self) -> dict[str, Any]:
        """Returns the facts about the model that ``python -m pyterrier_cascade info`` prints."""
        return {
            "encoder": self.encoder_config.model_type,
            "layers": self.layers,
            "full_layers": self.full_layers,
            "width": self.encoder_config.hidden_size,
            "heads": list(self.head_layers),
            "pooling": self.heads[0].pooling,
            "tokens": self.length_limit,
        }
