"""How a hierarchical ranker is trained: the settings and the joint loss of a question (HR-8, HR-12 to HR-18, HR-30)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from pyterrier_cascade.checks import check_choices, is_count, is_number
from pyterrier_cascade.training.losses import PAIRS, cross_entropy, list_divergence, pair_hinge
from pyterrier_cascade.training.settings import Training


@dataclass(frozen=True, repr=False)
class HierarchicalTraining(Training):
    """The settings of a hierarchical ranker's ``fit``; the defaults are the paper's for WikiQA (HR-8, HR-15, HR-17).

    Most settings are those of :class:`~pyterrier_cascade.Training`, with these differences. A step has
    ``questions_per_batch`` questions with all their candidates. ``tokens_per_batch`` is about the number of words that
    one core computes at a time; it only bounds the memory, and a question is never divided (HR-11). The learning rate
    stays constant after the warm-up. With a ``folder`` the training is kept after every ``save_every`` updates and at
    its end; 30 updates are about one epoch of WikiQA.

    Args:
        questions_per_batch: The questions of a step (HR-30).
        embedding_rate: The learning rate of pre-trained word vectors; None freezes them. Vectors that are learnt from
            scratch have ``learning_rate``.
        pairs: The pairs that the pair level compares: ``"all"``, or each positive with the ``"hardest"`` negative.
        margin: By how much a positive must exceed a negative to cause no pair loss.
        sigmoid: Whether the pair level's scores pass through a sigmoid before they are compared.
        point_weight: The weight of the point level's loss, where there are several levels.
        pair_weight: The weight of the pair level's loss.
        list_weight: The weight of the list level's loss.
    """

    learning_rate: float = 5e-4
    epochs: int = 50
    tokens_per_batch: int = 4_000
    warmup: float = 0.0
    patience: int = 10
    save_every: int = 30
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
        """Returns the paper's settings for TREC-QA: raw scores and frozen vectors (HR-8, HR-15, HR-17).

        Args:
            **more: Settings that differ from the paper's.
        """
        paper = {"pairs": "hardest", "margin": 1.0, "sigmoid": False, "point_weight": 1.0, "embedding_rate": None}
        return cls(**(paper | more))

    def __post_init__(self):
        super().__post_init__()
        check_choices(pairs=(self.pairs, PAIRS))
        if not is_count(self.questions_per_batch):
            raise ValueError(f"questions_per_batch must be a whole number from 1, not {self.questions_per_batch!r}")
        if self.embedding_rate is not None and not is_number(self.embedding_rate, above=0):
            raise ValueError(
                f"embedding_rate must be a number above 0, or None for frozen vectors, not {self.embedding_rate!r}"
            )
        if not is_number(self.margin, above=0):
            raise ValueError(f"margin must be a number above 0, not {self.margin!r}")
        weights = self.point_weight, self.pair_weight, self.list_weight
        if not all(is_number(weight, least=0) for weight in weights) or not any(weights):
            raise ValueError(
                f"the weights of the levels must be numbers from 0, and one above 0, but they are {weights}"
            )
        if not isinstance(self.sigmoid, bool):
            raise ValueError(f"sigmoid must be True or False, not {self.sigmoid!r}")
        # A user would take a setting that is silently ignored for one that works.
        for name, unused, instead in (
            ("head_learning_rate", None, "embedding_rate sets the rate of the word vectors"),
            ("negatives", None, "it is trained on all candidates (HR-30)"),
            ("accumulate", 1, "questions_per_batch sets the size of a step; leave it at 1"),
            ("evaluations_per_epoch", 1, "it is measured after every epoch; leave it at 1"),
        ):
            if getattr(self, name) != unused:
                raise ValueError(f"{name}={getattr(self, name)!r} has no use in a hierarchical ranker: {instead}")


def question_losses(
    outputs: Mapping[str, torch.Tensor],
    objectives: Mapping[str, str],
    labels: torch.Tensor,
    settings: HierarchicalTraining,
) -> dict[str, torch.Tensor]:
    """Returns the loss of each level for one question.

    A question without positives or without negatives has no pairs, and one without positives has no list: their losses
    are 0 (HR-18).

    Args:
        outputs: The output of each level: ``(n, 2)`` for the objective ``"point"``, otherwise ``(n, 1)``.
        objectives: The name of each level's loss.
        labels: ``(n,)``, 0 or 1.
        settings: The settings of the pair loss.
    """
    found = {}
    for level, output in outputs.items():
        match objectives[level]:
            case "point":
                found[level] = cross_entropy(output, labels)
            case "pair":
                found[level] = pair_hinge(output[:, 0], labels, settings.margin, settings.pairs, settings.sigmoid)
            case "list":
                found[level] = list_loss(output[:, 0], labels)
    return found


def list_loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns KL(Y || p) divided by the number of candidates; 0 for a question without positives (eq. 9, HR-16).

    p is the softmax of the scores over the question's candidates, and Y the labels divided by their sum. The paper
    prints KL(p || Y), which is infinite wherever a label is 0; libraries compute KL(Y || p).

    Args:
        scores: ``(n,)``.
        labels: ``(n,)``, 0 or 1.
    """
    if not labels.any():
        return scores.sum() * 0
    return list_divergence(scores, labels / labels.sum()) / len(scores)


def joint_loss(
    losses: Mapping[str, torch.Tensor], objectives: Mapping[str, str], settings: HierarchicalTraining
) -> torch.Tensor:
    """Returns the weighted sum of the levels' losses (eq. 10, HR-17); a single objective has no weight (HR-27).

    Args:
        losses: The loss of each level.
        objectives: The name of each level's loss, which is also the name of its weight.
        settings: The settings with the weights.
    """
    if len(losses) == 1:
        return next(iter(losses.values()))
    return sum(getattr(settings, f"{objectives[level]}_weight") * loss for level, loss in losses.items())
