"""How a hierarchical ranker trains, as one value."""

from dataclasses import dataclass

from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.hierarchical.losses import METHODS
from pyterrier_cascade.training.settings import Training


@dataclass(frozen=True, repr=False)
class HierarchicalTraining(Training):
    """How a hierarchical ranker's ``fit`` trains; the defaults are the paper's for WikiQA (HR-8, HR-15, HR-17, HR-30).

    What :class:`~pyterrier_cascade.Training` says holds but for this: a step is ``questions_per_batch`` questions with
    all their candidates; ``tokens_per_batch`` are the words that one core computes at a time, about, and only bound the
    memory, but a question is never divided (HR-11); the rate is constant after the warm-up; a training with a
    ``folder`` is kept after every epoch.

    Args:
        questions_per_batch: The questions of a step (HR-30).
        embedding_rate: The rate of pre-trained word vectors; None freezes them. Vectors that are learnt from scratch
            have ``learning_rate``.
        pairs: Which pairs the pair level compares: ``"all"``, or each positive with the ``"hardest"`` negative.
        margin: By how much a positive shall exceed a negative.
        sigmoid: Whether the pair level's scores pass through a sigmoid before they are compared.
        point_weight: Of the point level's loss, where there are several levels.
        pair_weight: Of the pair level's.
        list_weight: Of the list level's.
    """

    learning_rate: float = 5e-4
    epochs: int = 50
    tokens_per_batch: int = 4_000
    warmup: float = 0.0
    patience: int = 10
    questions_per_batch: int = 30
    embedding_rate: float | None = 5e-5
    pairs: str = "all"
    margin: float = 0.8
    sigmoid: bool = True
    point_weight: float = 2.0
    pair_weight: float = 1.0
    list_weight: float = 1.0

    @classmethod
    def for_trecqa(cls, **more) -> "HierarchicalTraining":
        """Returns the paper's settings for TREC-QA: raw scores, frozen vectors (HR-8, HR-15, HR-17).

        Args:
            **more: Settings that differ.
        """
        paper = {"pairs": "hardest", "margin": 1.0, "sigmoid": False, "point_weight": 1.0, "embedding_rate": None}
        return cls(**(paper | more))

    def __post_init__(self):
        super().__post_init__()
        check_choices(pairs=(self.pairs, METHODS))
        if self.questions_per_batch < 1:
            raise ValueError(f"questions_per_batch must be at least 1, not {self.questions_per_batch!r}")
        if self.embedding_rate is not None and not self.embedding_rate > 0:
            raise ValueError(f"embedding_rate must be above 0, or None for frozen vectors, not {self.embedding_rate!r}")
        if not self.margin > 0:
            raise ValueError(f"margin must be above 0, not {self.margin!r}")
        weights = self.point_weight, self.pair_weight, self.list_weight
        if min(weights) < 0 or not any(weights):
            raise ValueError(f"the weights of the levels must not be negative nor all 0, but they are {weights}")
        # A setting that is silently ignored would be taken for one that works.
        for name, instead in (
            ("head_learning_rate", "embedding_rate sets the vectors' own"),
            ("negatives", "all candidates are trained on (HR-30)"),
        ):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}={getattr(self, name)!r} has no use in a hierarchical ranker: {instead}")
        for name in ("accumulate", "evaluations_per_epoch"):
            if getattr(self, name) != 1:
                raise ValueError(f"{name}={getattr(self, name)!r} has no use in a hierarchical ranker; leave it at 1")
