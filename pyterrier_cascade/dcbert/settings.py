"""The settings of DC-BERT's training."""

from dataclasses import dataclass
from typing import ClassVar

from pyterrier_cascade.checks import check_choices, is_count, is_number
from pyterrier_cascade.training.settings import Training

LOSSES = ("listwise", "pointwise")
WATCH = ("MAP", "P@10")
PARTS = {"variant": str, "joint_layers": int, "lower_layers": int, "tied": bool, "head": str}
"""The parts of a DC-BERT that a bare encoder does not decide, with their types. A cache may name them and no others."""


@dataclass(frozen=True, repr=False)
class DCBertTraining(Training):
    """The settings of ``DCBERT.fit``, which trains in two phases; either phase may be left out.

    In the first phase, for ``frozen_epochs``, only the joint layers learn, on states that are encoded once; this takes
    a fraction of the time. In the second phase, for ``epochs``, everything learns. There are two rates: the joint
    layers and the classifier learn at ``head_learning_rate``, the encoders at ``learning_rate`` (DC-9: 4e-5).

    The candidates of a question are trained on together. If the training lists have a column ``teacher``, such as the
    scores of a cross-encoder, the model learns the ranking of that teacher too.

    Args:
        frozen_epochs: The passes over the training questions with the encoders frozen.
        epochs: The most passes in which everything learns; here it may be 0.
        head_learning_rate: The peak rate of joint layers and classifier.
        tokens_per_batch: The most tokens of a step in which everything learns. A step with frozen encoders, which need
            no memory for a backward pass, has four times as many.
        negatives: How many of a question's negatives, drawn anew in every epoch, are trained on.
        random_first: The share of the first phase in which negatives are documents of other questions, drawn at random;
            afterwards they are the question's own candidates. It helps a classifier that starts from nothing, such as
            the paper's.
        loss: ``"pointwise"``, the paper's (DC-7), or ``"listwise"``: cross-entropy over the question's candidates.
        teacher_weight: The share of the teacher in the loss, if there is a teacher.
        watch: The measure on the development questions that chooses the weights: ``"MAP"``, or the paper's ``"P@10"``
            (DC-20: the share of questions with a positive among the first ten).
    """

    learning_rate: float = 4e-5
    head_learning_rate: float | None = 3e-4
    frozen_epochs: int = 1
    epochs: int = 2
    negatives: int | None = 7
    random_first: float = 0.0
    loss: str = "listwise"
    teacher_weight: float = 0.5
    watch: str = "MAP"

    min_epochs: ClassVar[int] = 0

    def __post_init__(self):
        super().__post_init__()
        check_choices(loss=(self.loss, LOSSES), watch=(self.watch, WATCH))
        if not is_count(self.frozen_epochs, 0) or self.epochs + self.frozen_epochs < 1:
            raise ValueError(
                f"frozen_epochs={self.frozen_epochs!r} and epochs={self.epochs!r} are no training; "
                "give whole numbers, one of them at least 1"
            )
        for name in ("random_first", "teacher_weight"):
            if not is_number(getattr(self, name), least=0, most=1):
                raise ValueError(f"{name} must be a share from 0 to 1, not {getattr(self, name)!r}")

    @classmethod
    def as_published(cls, **more) -> "DCBertTraining":
        """Returns the settings that the paper gives: everything learns at 4e-5, point by point (DC-7, DC-9).

        Args:
            **more: Settings that differ.
        """
        return cls(**({"head_learning_rate": 4e-5, "frozen_epochs": 0, "loss": "pointwise"} | more))

    @property
    def watched(self) -> str:
        """The measure on the development questions that chooses the weights and ends the training."""
        return "dev_map" if self.watch == "MAP" else "dev_p10"
