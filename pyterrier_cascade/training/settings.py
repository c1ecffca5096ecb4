"""The settings of a training, as one value."""

from dataclasses import dataclass, fields
from typing import ClassVar

from pyterrier_cascade.checks import KnownSettings, check_choices, is_count, is_number

PRECISIONS = ("auto", "fp32", "bf16", "fp16")
MOST_SEEDS = 2**32
"""The number of seeds that NumPy's global generator takes, which transformers sets."""


@dataclass(frozen=True)
class Training(KnownSettings):
    """The settings of a ranker's ``fit``. Settings are values: they compare by value and print as an expression.

    The defaults are those of a single fine-tuning step (TA-7: rate up to 2e-5, Adam). The recipe of each paper has
    defaults of its own (X-2).

    Args:
        learning_rate: The peak learning rate. The rate rises linearly during the warm-up, then falls linearly to zero.
        head_learning_rate: The peak learning rate of all weights that do not belong to the pre-trained encoder;
            ``learning_rate`` unless given.
        epochs: The most passes over the training questions.
        tokens_per_batch: The most tokens of a batch, pads included (CT-21). It is the same on every device, because it
            decides what is learnt: a larger batch means fewer updates, which need another learning rate.
        accumulate: The number of batches whose gradients are added up before an update.
        warmup: The share of all updates in which the rate rises; a value of 1 or more is a number of updates.
        negatives: The number of each question's negatives to train on, drawn anew in every epoch; all unless given.
        patience: The training stops after this many measurements on the development questions in a row without a
            better MAP.
        evaluations_per_epoch: The number of measurements on the development questions in each epoch.
        precision: ``"bf16"``, ``"fp32"``, ``"fp16"`` (on CUDA GPUs), or ``"auto"``: bf16 where the hardware has it,
            else fp16 on CUDA GPUs and fp32 elsewhere.
        weight_decay: The weight decay of AdamW; with 0 AdamW is Adam.
        seed: The seed of the order of the data, of dropout, and of the drawn negatives.
        relevant_from: The least label that counts as relevant; labels below it are irrelevant.
        folder: The folder for checkpoints. A training that was killed continues from there when it is started again.
            Without a folder no checkpoints are kept.
        save_every: The number of updates between two checkpoints.
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
            rate = getattr(self, name)
            if not is_number(rate, above=0) and (rate is not None or name == "learning_rate"):
                raise ValueError(f"{name} must be a number above 0, not {rate!r}")
        for name in ("warmup", "weight_decay"):
            if not is_number(getattr(self, name), least=0):
                raise ValueError(f"{name} must be a number from 0, not {getattr(self, name)!r}")
        if not is_count(self.seed, 0) or self.seed >= MOST_SEEDS:
            raise ValueError(f"seed must be a whole number from 0 to {MOST_SEEDS - 1}, not {self.seed!r}")
        if self.negatives is not None and not is_count(self.negatives):
            raise ValueError(f"negatives must be at least 1 for each question, or None for all, not {self.negatives!r}")

    @property
    def watched(self) -> str:
        """The measure on the development questions that chooses the best weights and stops the training early."""
        return "dev_map"

    @property
    def rate_of_heads(self) -> float:
        """The peak learning rate of all weights that do not belong to the pre-trained encoder."""
        return self.head_learning_rate or self.learning_rate

    def __repr__(self):
        """Returns an expression that makes the settings again; it leaves out settings at their default."""
        changed = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
