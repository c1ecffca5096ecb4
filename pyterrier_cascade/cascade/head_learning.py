"""Learning a head's scores from pooled states: the encoder stays as it is, and the last head is the teacher."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.checks import KnownSettings, is_count, is_number
from pyterrier_cascade.early_exit.groups import group_starts


@dataclass(frozen=True)
class Distillation(KnownSettings):
    """How heads learn the scores of the last head, without labels.

    The loss of a question is the squared error of each candidate's score, and ``lists`` times the divergence of the
    head's ranking from the last head's: KL(softmax(sharpness * last scores) || softmax(sharpness * scores)). Scores are
    standardised in both, so that the scale of the last head does not matter.

    Args:
        epochs: The most passes over the questions.
        patience: A head stops after this many passes without a better agreement on the held-out questions.
        learning_rate: The peak learning rate of Adam; it falls to zero along a cosine.
        candidates_per_batch: The number of candidates of an update, about; questions stay whole.
        lists: The weight of the divergence.
        sharpness: The factor of standardised scores before the softmax; a large one looks at the first places only.
        held_out: The share of questions that no head learns from; they end the learning and measure the agreement.
        seed: The seed of the split and of the order.
    """

    epochs: int = 30
    patience: int = 5
    learning_rate: float = 1e-3
    candidates_per_batch: int = 128
    lists: float = 1.0
    sharpness: float = 1.0
    held_out: float = 0.2
    seed: int = 0

    def __post_init__(self):
        for name in ("epochs", "patience", "candidates_per_batch"):
            if not is_count(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)!r}: give a whole number, 1 or more")
        for name in ("learning_rate", "sharpness"):
            if not is_number(getattr(self, name), above=0):
                raise ValueError(f"{name}={getattr(self, name)!r}: give a number above 0")
        if not is_number(self.lists, least=0):
            raise ValueError(f"lists={self.lists!r}: give a number from 0")
        if not is_number(self.held_out, above=0) or self.held_out >= 1:
            raise ValueError(f"held_out={self.held_out!r}: give a share between 0 and 1")
        if not is_count(self.seed, 0):
            raise ValueError(f"seed={self.seed!r}: give a whole number from 0")


RESOLUTION = 2**-8
"""What rounding to bf16 changes at most in a number, as a share of it.

Some channels of an encoder's states are large and nearly the same for all inputs. Divided by their own tiny deviation,
rounding alone would move them far, and drive a head's hidden units into saturation.
"""

Features = Callable[[np.ndarray], np.ndarray]
"""A function that returns the pooled states of some candidates, given their numbers: ``(n,)`` to ``(n, width)``."""


def learn_head(
    head: nn.Sequential,
    features: Features,
    target: np.ndarray,
    questions: np.ndarray,
    held_out: np.ndarray,
    settings: Distillation,
) -> np.ndarray:
    """Trains a head in place to give the scores of the last head, and returns its scores of all candidates, ``(n,)``.

    It learns without dropout: the held-out questions end the learning, and the result is the same in every thread.

    Args:
        head: A fresh head with one output, in evaluation mode; its first and last modules are linear maps.
        features: The pooled states that it reads.
        target: The last head's scores, ``(n,)``.
        questions: The question of each candidate as a number, ascending, ``(n,)``.
        held_out: Which candidates no head learns from, boolean, ``(n,)``.
        settings: The settings.
    """
    learned = np.flatnonzero(~held_out)
    shift, scale = _moments(features, learned, settings.candidates_per_batch)
    centre, spread = float(target[learned].mean()), float(target[learned].std())
    wanted = torch.from_numpy(((target - centre) / spread).astype(np.float32))
    batches = _batches(questions, learned, settings.candidates_per_batch)
    optimizer = torch.optim.Adam(head.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.epochs * len(batches))
    rng, best, waited = np.random.default_rng(settings.seed), (-np.inf, None), 0
    asked = np.flatnonzero(held_out)
    for _ in range(settings.epochs):
        for number in rng.permutation(len(batches)):
            rows = batches[number]
            scores = head((torch.from_numpy(features(rows)) - shift) / scale)[:, 0]
            loss = _loss(scores, wanted[rows], questions[rows], settings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        found = _scores(head, features, asked, shift, scale, settings.candidates_per_batch)
        value = -_loss(torch.from_numpy(found), wanted[asked], questions[asked], settings).item()
        if value > best[0] and all(weights.isfinite().all() for weights in head.parameters()):
            best, waited = (value, copy.deepcopy(head.state_dict())), 0
        elif (waited := waited + 1) == settings.patience:
            break
    if best[1] is None:
        raise FloatingPointError(
            f"a head has scores that are NaN or infinite after each pass with learning_rate={settings.learning_rate}; "
            "use a smaller one"
        )
    head.load_state_dict(best[1])
    _fold(head, shift, scale, centre, spread)
    return _scores(head, features, np.arange(len(target)), 0, 1, settings.candidates_per_batch)


def _loss(scores: torch.Tensor, wanted: torch.Tensor, questions: np.ndarray, settings: Distillation) -> torch.Tensor:
    """Returns the mean loss of whole questions, from standardised scores and targets, each ``(n,)``."""
    loss = (scores - wanted).square().mean()
    if not settings.lists:
        return loss
    # The softmax of each question's candidates: sums over segments of one array.
    owner = torch.from_numpy(np.cumsum(np.diff(questions, prepend=questions[:1]) != 0))
    ours, theirs = (_log_softmax(settings.sharpness * one, owner) for one in (scores, wanted))
    return loss + settings.lists * (theirs.exp() * (theirs - ours)).sum() / (owner[-1] + 1)


def _log_softmax(scores: torch.Tensor, owner: torch.Tensor) -> torch.Tensor:
    n = int(owner[-1]) + 1
    most = scores.detach().new_full((n,), -torch.inf).scatter_reduce(0, owner, scores.detach(), "amax")
    shifted = scores - most[owner]
    return shifted - shifted.new_zeros(n).index_add(0, owner, shifted.exp()).log()[owner]


def _batches(questions: np.ndarray, rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Returns the rows of whole questions, about so many together."""
    edges = np.append(group_starts(questions[rows]), len(rows))
    first = np.unique(edges[:-1] // size, return_index=True)[1]
    return np.split(rows, edges[first[1:]])


def _moments(features: Features, rows: np.ndarray, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns mean and scale of the features of some rows, each ``(width,)``, read part by part.

    The scale is the standard deviation together with what rounding changes.
    """
    total, squares = 0.0, 0.0
    for part in np.array_split(rows, -(-len(rows) // size)):
        found = features(part).astype(np.float64)
        total, squares = total + found.sum(0), squares + (found**2).sum(0)
    mean = total / len(rows)
    variance = np.maximum(squares / len(rows) - mean**2, 1e-10) + (RESOLUTION * mean) ** 2
    return torch.from_numpy(mean.astype(np.float32)), torch.from_numpy(np.sqrt(variance).astype(np.float32))


@torch.no_grad()
def _scores(head: nn.Module, features: Features, rows: np.ndarray, shift, scale, size: int) -> np.ndarray:
    parts = np.array_split(rows, -(-len(rows) // size))
    return np.concatenate([head((torch.from_numpy(features(part)) - shift) / scale)[:, 0].numpy() for part in parts])


@torch.no_grad()
def _fold(head: nn.Sequential, shift, scale, centre: float, spread: float) -> None:
    """Takes the standardisation of states and scores into the head's first and last linear map."""
    first, last = head[0], head[-1]
    first.weight /= scale
    first.bias -= first.weight @ shift
    last.weight *= spread
    last.bias *= spread
    last.bias += centre


def agreement(scores: np.ndarray, target: np.ndarray, questions: np.ndarray) -> tuple[float, float, float]:
    """Returns how well scores agree with the last head's: correlation, share of equal first answers, mean NDCG@10.

    NDCG is that of the ranking by the scores, where the last head's first ten candidates have gains from 10 to 1.

    Args:
        scores: A head's scores, ``(n,)``.
        target: The last head's, ``(n,)``.
        questions: The question of each candidate, ascending, ``(n,)``.
    """
    first, gain = [], []
    for rows in np.split(np.arange(len(scores)), group_starts(questions)[1:]):
        ours, theirs = np.argsort(-scores[rows], kind="stable"), np.argsort(-target[rows], kind="stable")
        gains = np.zeros(len(rows))
        gains[theirs[:10]] = np.arange(10, 0, -1)[: len(rows)]
        discounts = 1 / np.log2(np.arange(len(rows)) + 2)
        gain.append((gains[ours] * discounts)[:10].sum() / (gains[theirs] * discounts)[:10].sum())
        first.append(ours[0] == theirs[0])
    constant = scores.std() == 0 or target.std() == 0
    correlation = 0.0 if constant else float(np.corrcoef(scores, target)[0, 1])
    return correlation, float(np.mean(first)), float(np.mean(gain))


def split(n_questions: int, settings: Distillation) -> np.ndarray:
    """Returns which questions are held out, boolean, ``(n_questions,)``: at least one, and at least one is not."""
    n_held = min(max(1, round(n_questions * settings.held_out)), n_questions - 1)
    held = np.zeros(n_questions, dtype=bool)
    held[np.random.default_rng(settings.seed).permutation(n_questions)[:n_held]] = True
    return held
