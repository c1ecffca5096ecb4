"""Training the heads: one sampled head in a step, as in the paper, or all of them in every step (CT-15 to CT-18)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pyterrier_cascade.checks import check_choices, is_count, is_number
from pyterrier_cascade.training.losses import cross_entropy, distillation
from pyterrier_cascade.training.settings import Training

HEADS = ("joint", "distilled", "sampled")
SAMPLING = ("uniform", "round_robin", "early_bias")


@dataclass(frozen=True, repr=False)
class CascadeTraining(Training):
    """How a cascade's ``fit`` trains: the settings of :class:`~pyterrier_cascade.Training`, and how heads share steps.

    ``"joint"`` is the default because over three seeds it had the best development MAP (``benchmarks/results``). Unless
    ``head_learning_rate`` is given, heads learn at ten times the encoder's rate. 6e-5 does well for a small encoder.

    Args:
        heads: ``"sampled"`` trains one head in a step, as the paper does (CT-15); ``"joint"`` trains all of them in
            every step; ``"distilled"`` does too, and each but the last learns half from the labels and half from the
            last one's softened scores.
        sampling: Which head a step trains, if sampled: ``"uniform"``, which the paper found best, ``"round_robin"``,
            or ``"early_bias"`` (CT-16).
        bias: With ``"early_bias"``, how much likelier each head is than the next one, above 1.
        bias_epochs: With ``"early_bias"``, for how many epochs; then all are equally likely.
        stop_gradient: Whether a head trains only the layers above the head before it; the paper's ablation, which
            harms the later heads (CT-17).
        temperature: The divisor of scores, if distilled.
        watch: The layer whose head's development MAP chooses the weights and ends the training; the last by default.
    """

    learning_rate: float = 3e-5
    heads: str = "joint"
    sampling: str = "uniform"
    bias: float = 2.0
    bias_epochs: int = 1
    stop_gradient: bool = False
    temperature: float = 2.0
    watch: int | None = None

    @property
    def rate_of_heads(self) -> float:
        """The peak rate of the heads, which are fresh."""
        return self.head_learning_rate or 10 * self.learning_rate

    @classmethod
    def as_published(cls, **more) -> "CascadeTraining":
        """Returns the paper's settings: uniformly sampled heads, a triangle up to 1e-6, 16,000 tokens (CT-15 to CT-21).

        Args:
            **more: Settings that differ; ``epochs`` decides the length of the triangle.
        """
        rates = {"learning_rate": 1e-6, "head_learning_rate": 1e-6, "warmup": 4_000}
        return cls(**({"heads": "sampled", **rates, "tokens_per_batch": 2_000, "accumulate": 8} | more))

    def __post_init__(self):
        super().__post_init__()
        check_choices(heads=(self.heads, HEADS), sampling=(self.sampling, SAMPLING))
        if not is_number(self.bias, above=1):
            raise ValueError(f"bias must be a number above 1, not {self.bias!r}; without one use sampling='uniform'")
        if not is_count(self.bias_epochs):
            raise ValueError(f"bias_epochs must be a whole number and at least 1, not {self.bias_epochs!r}")
        if not is_number(self.temperature, above=0):
            raise ValueError(f"temperature must be a number above 0, not {self.temperature!r}")
        if self.watch is not None and not is_count(self.watch):
            raise ValueError(f"watch must be the number of a layer with a head, or None, not {self.watch!r}")
        if not isinstance(self.stop_gradient, bool):
            raise ValueError(f"stop_gradient must be True or False, not {self.stop_gradient!r}")


def drawn_heads(settings: CascadeTraining, n_heads: int, batches_of_epochs: Sequence[int]) -> np.ndarray:
    """Returns the head that each batch of a training trains, ``(n_batches,)`` (CT-16).

    Args:
        settings: The strategy and the seed.
        n_heads: How many heads there are.
        batches_of_epochs: The batches of each epoch.
    """
    n_batches = sum(batches_of_epochs)
    if settings.sampling == "round_robin":
        return np.arange(n_batches) % n_heads
    rng = np.random.default_rng([settings.seed, n_heads])
    heads = rng.integers(n_heads, size=n_batches)
    if settings.sampling == "early_bias":
        n_biased = sum(batches_of_epochs[: settings.bias_epochs])
        odds = settings.bias ** -np.arange(n_heads, dtype=float)
        heads[:n_biased] = rng.choice(n_heads, size=n_biased, p=odds / odds.sum())
    return heads


def loss_of(settings: CascadeTraining, n_heads: int, batches_of_epochs: Sequence[int]) -> Callable:
    """Returns the loss of a batch, given the module, the batch's inputs, its labels and its number in the training."""
    if settings.heads == "sampled":
        heads = drawn_heads(settings, n_heads, batches_of_epochs)

        def compute(module, inputs, labels, number):
            (logits,) = module(heads=[int(heads[number])], stop_gradient=settings.stop_gradient, **inputs)
            return cross_entropy(logits, labels)

        return compute

    def compute_all(module, inputs, labels, number):
        logits = module(stop_gradient=settings.stop_gradient, **inputs)
        losses = torch.stack([cross_entropy(one, labels) for one in logits])
        if settings.heads == "distilled" and n_heads > 1:
            lessons = [distillation(one, logits[-1], settings.temperature) for one in logits[:-1]]
            losses = torch.cat([(losses[:-1] + torch.stack(lessons)) / 2, losses[-1:]])
        return losses.mean()

    return compute_all
