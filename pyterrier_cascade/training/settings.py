"""How a ranker trains, as one value."""

from dataclasses import dataclass, fields
from typing import ClassVar

from pyterrier_cascade.checks import KnownSettings, check_choices, is_count

PRECISIONS = ("auto", "fp32", "bf16")


@dataclass(frozen=True)
class Training(KnownSettings):
    """The settings of a ranker's ``fit``; the same object compares, prints and travels with the ranker.

    The defaults are those of a single fine-tuning step (TA-7: rate up to 2e-5, Adam); each paper's recipe brings its
    own (X-2).

    Args:
        learning_rate: The peak rate; it rises linearly during the warm-up, then falls linearly to zero.
        head_learning_rate: The peak rate of what is not the pre-trained encoder; the same unless given.
        epochs: The most passes over the training questions.
        tokens_per_batch: The most tokens of a step, pads included (CT-21).
        accumulate: Steps whose gradients are added up before an update.
        warmup: The share of all updates in which the rate rises; 1 or more is a number of updates.
        negatives: How many of a question's negatives, drawn anew in every epoch, are trained on; all unless given.
        patience: How many measurements on the development questions in a row may bring no better MAP.
        evaluations_per_epoch: How often the development questions are measured in an epoch.
        precision: ``"bf16"``, ``"fp32"``, or ``"auto"``: bf16 where the hardware has it.
        weight_decay: AdamW's; 0 is Adam.
        seed: Decides the order of the data, dropout, and the negatives.
        relevant_from: The least label that counts as relevant; labels below it are irrelevant.
        folder: The folder for checkpoints; a training that was killed goes on from there when it is started again.
            Without a folder nothing is kept.
        save_every: Updates between two checkpoints.
    """

    learning_rate: float = 2e-5
    head_learning_rate: float | None = None
    epochs: int = 3
    tokens_per_batch: int = 2_000
    accumulate: int = 1
    warmup: float = 0.1
    negatives: int | None = None
    patience: int = 2
    evaluations_per_epoch: int = 1
    precision: str = "auto"
    weight_decay: float = 0.0
    seed: int = 0
    relevant_from: int = 1
    folder: str | None = None
    save_every: int = 500

    min_epochs: ClassVar[int] = 1

    def __post_init__(self):
        check_choices(precision=(self.precision, PRECISIONS))
        least = {"epochs": self.min_epochs}
        counts = ("epochs", "tokens_per_batch", "accumulate", "patience", "evaluations_per_epoch", "save_every")
        for name in (*counts, "relevant_from"):
            if not is_count(getattr(self, name), least.get(name, 1)):
                raise ValueError(
                    f"{name} must be a whole number and at least {least.get(name, 1)}, not {getattr(self, name)!r}"
                )
        for name in ("learning_rate", "head_learning_rate"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)!r}")
        if self.negatives is not None and not is_count(self.negatives):
            raise ValueError(f"negatives must be at least 1 a question, or None for all, not {self.negatives!r}")

    @property
    def watched(self) -> str:
        """The measure on the development questions that chooses the weights and ends the training."""
        return "dev_map"

    @property
    def rate_of_heads(self) -> float:
        """The peak rate of what is not the pre-trained encoder."""
        return self.head_learning_rate or self.learning_rate

    def __repr__(self):
        """Returns an expression that makes the settings again; it names those that are not at their default."""
        changed = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
