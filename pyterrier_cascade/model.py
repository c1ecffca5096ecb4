"""The contract of a model in memory, which every loader returns, and the record of its training."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from pyterrier_cascade.checks import is_count, warn_user
from pyterrier_cascade.forks import cached_property

if TYPE_CHECKING:
    from torch import nn

    from pyterrier_cascade.encoder.executors import Executors
    from pyterrier_cascade.encoder.weight_cache import WeightCache


@dataclass(frozen=True)
class TrainedOn:
    """The record of a training: the model's configuration keeps it, and the model card prints it.

    Attributes:
        questions: The number of training questions.
        candidates: The number of their candidates.
        positives: How many of these are relevant; None where heads were distilled, which needs no labels.
        training: The settings of the training, as their ``repr`` shows them.
        data: The name of the training data, if the user gave one.
        quality: Rows of the model card's table: a name, the relative cost, and MAP on the development questions.
        agreement: For each distilled head its layer, and on held-out questions the correlation with the last head's
            scores, the share of first answers that are the same, and NDCG against the last head's ranking.
    """

    questions: int
    candidates: int
    positives: int | None
    training: str
    data: str | None = None
    quality: tuple[tuple[str, float, float], ...] = ()
    agreement: tuple[tuple[int, float, float, float], ...] = ()

    @classmethod
    def of(cls, questions: Iterable[int], labels: np.ndarray, training: object, **more: Any) -> "TrainedOn":
        """Returns the record of a training.

        Args:
            questions: The question of each candidate as a number, ``(n,)``.
            labels: 0 or 1, ``(n,)``.
            training: The settings.
            **more: Further fields.
        """
        return cls(len(np.unique(questions)), len(labels), int(np.sum(labels)), repr(training), **more)

    @classmethod
    def from_config(cls, found: Mapping[str, Any] | None) -> "TrainedOn | None":
        """Returns the record that a configuration holds; None where it holds none."""
        if not found:
            return None
        known = {field.name for field in fields(cls)}
        found = {name: value for name, value in found.items() if name in known}
        return cls(**found | {name: tuple(map(tuple, found.get(name, ()))) for name in _TABLES})

    def to_config(self) -> dict[str, Any]:
        """Returns the record as JSON keeps it."""
        return asdict(self) | {name: [list(row) for row in getattr(self, name)] for name in _TABLES}


_TABLES = ("quality", "agreement")
"""The fields of a record that are tables; JSON has lists for them."""


class LoadedModel:
    """A model in memory: a module in evaluation mode with its tokenizer. Every loader returns a subclass of this.

    A subclass implements :attr:`full_layers` and :meth:`describe`. Rankers, checkpoints, recipes and the command line
    use nothing of a model that is not declared here or in the subclass of their own paper.

    Args:
        module: The module; ``module.config`` is its configuration and ``module.save_pretrained(folder)`` writes it.
        tokenizer: Its tokenizer, which has ``save_pretrained(folder)`` too.
        untrained: The reason why scores mean nothing yet, as the beginning of a sentence; None for a trained model.
    """

    def __init__(self, module: "nn.Module", tokenizer: Any, untrained: str | None = None):
        self.module, self.tokenizer, self.untrained = module, tokenizer, untrained

    @cached_property
    def _hashes(self) -> "WeightCache":
        from pyterrier_cascade.encoder.weight_cache import WeightCache

        return WeightCache(self.module)

    @property
    def identity(self) -> str:
        """The hash of everything that scores depend on: weights, tokenizer, deciding fields of the configuration.

        Weights and tokenizer are hashed again only after the weights changed.
        """
        from pyterrier_cascade import identity

        weights = self._hashes.get("weights", lambda: identity.of_weights(self.module.state_dict()))
        return identity.combined(weights, self.tokenizer_identity, identity.deciding_fields(self.module.config))

    @property
    def tokenizer_identity(self) -> str:
        """The hash of the tokenizer as it encodes."""
        from pyterrier_cascade.identity import of_tokenizer

        return self._hashes.get("tokenizer", lambda: of_tokenizer(self.tokenizer))

    @property
    def executors(self) -> "Executors | None":
        """The engine's executors of the encoder and its heads; None for a model that the engine does not run."""
        return None

    @property
    def full_layers(self) -> int:
        """The layers of the full encoder, by which relative cost is counted (CT-34)."""
        raise NotImplementedError

    @property
    def layer_size(self) -> int:
        """The multiply-adds of one layer for a token, by which layers of different models are compared.

        They are the weights of its linear maps. The products of attention are left out: they depend on the input, and
        are 5% of a layer of 384 at 128 tokens.
        """
        from pyterrier_cascade.encoder.families import MODEL_TYPES

        for part in self.module.modules():
            family = MODEL_TYPES.get(getattr(getattr(part, "config", None), "model_type", None))
            if family is not None:
                owner, name = family.layer_list(part.base_model)
                return sum(weight.numel() for weight in getattr(owner, name)[0].parameters() if weight.dim() == 2)
        raise NotImplementedError

    @property
    def full_model(self) -> tuple[int, int]:
        """The layers of the full model, and the multiply-adds of one of them for a token: the unit of all costs."""
        return self.full_layers, self.layer_size

    @property
    def n_parameters(self) -> int:
        """The number of weights."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    @property
    def trained_on(self) -> TrainedOn | None:
        """The record of this package's training; None for an untrained model, and for one that others trained."""
        return TrainedOn.from_config(self._config_field("trained_on"))

    def check(self) -> None:
        """Raises where the configuration holds values that only show when they are used, such as a damaged record."""
        _ = self.trained_on
        if not is_count(self.full_layers, least=0):
            raise ValueError(f"full_layers is {self.full_layers!r}, not a number of layers")

    def mark_trained(self, record: TrainedOn) -> None:
        """Notes that a training changed the weights, and its record."""
        self.untrained = None
        # What is not a parameter, such as the hashes of queries, may have changed too.
        self.__dict__.pop("_hashes", None)
        self.new_weights()
        self.keep_record(record)

    def keep_record(self, record: TrainedOn) -> None:
        """Keeps the record of a training in the configuration."""
        self.module.config.update({"trained_on": record.to_config()})

    def new_weights(self) -> None:
        """Drops from the configuration what was fitted to the weights from before a training; nothing by default."""
        return

    def warn_if_untrained(self) -> None:
        """Warns at the user's own line that scores of an untrained model mean nothing."""
        if self.untrained:
            warn_user(f"{self.untrained}: {self.remedy}")

    @property
    def remedy(self) -> str:
        """What makes the scores of an untrained model mean something, for the warning."""
        return "train it with fit() before its scores mean anything"

    def describe(self) -> dict[str, Any]:
        """Returns the description that ``python -m pyterrier_cascade info`` prints, in types that JSON has."""
        raise NotImplementedError

    def _config_field(self, name: str) -> Any:
        config = self.module.config
        return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
