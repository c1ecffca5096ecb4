"""Training DC-BERT on whole questions: first joint layers on states encoded once, then everything (DC-7 to DC-9)."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from pyterrier_cascade import frames
from pyterrier_cascade.checkpoint import weights_of
from pyterrier_cascade.checks import shown, warn_user
from pyterrier_cascade.dcbert.question_lists import QuestionLists, phases
from pyterrier_cascade.dcbert.scoring import Documents, join, score_candidates
from pyterrier_cascade.dcbert.settings import DCBertTraining
from pyterrier_cascade.encoder.device import device_of, has_bf16
from pyterrier_cascade.model import TrainedOn
from pyterrier_cascade.training.losses import cross_entropy, list_divergence
from pyterrier_cascade.training.trainer import train_model

if TYPE_CHECKING:
    from pyterrier_cascade.dcbert.ranker import DCBERT

LAST = 0.25
"""The share of a training, at its end, whose loss is compared with the base rate."""

LEARNT = 0.98
"""A loss above this share of the base rate counts as not learnt."""


def fit(ranker: "DCBERT", train: pd.DataFrame, dev: pd.DataFrame | None, dev_qrels: pd.DataFrame | None) -> None:
    """Trains a DC-BERT in place: the joint layers on frozen encoders, then everything.

    Args:
        ranker: The DC-BERT, with its settings.
        train: Labelled candidates, perhaps with another ranker's scores in the column ``teacher``.
        dev: Development candidates, or None to train for all epochs.
        dev_qrels: Their judgements.
    """
    settings, model, device = ranker.training, ranker.model.loaded, device_of(ranker.device)
    if settings.random_first and "teacher" in train.columns:
        raise ValueError("random_first has no scores of the teacher for random negatives; use one of them")
    examples, history, best = _question_lists(ranker, train), [], (-1.0, None)
    ours = ranker(interaction="joint")
    for frozen in (True, False):
        n_epochs = settings.frozen_epochs if frozen else settings.epochs
        if not n_epochs:
            continue
        name = "frozen" if frozen else "all"
        folder = settings.folder and str(Path(settings.folder) / name)
        given = dataclasses.replace(examples, states=_states(ours, examples)) if frozen else examples
        given, epochs = phases(given, settings, frozen)
        model.module.encoders.requires_grad_(not frozen)
        loss = Loss(settings, sum(map(len, epochs)))
        try:
            course = train_model(
                model.module,
                given,
                dataclasses.replace(settings, folder=folder, epochs=n_epochs),
                epochs=epochs,
                device=device,
                compute_loss=loss,
                measure_dev=None if dev is None else _measure(ours, dev, dev_qrels, frozen),
                dev=ranker.digest([dev, dev_qrels]),
                verbose=ranker.verbose,
            )
        finally:
            model.module.requires_grad_(True)
        loss.warn_if_nothing_was_learnt("the first phase, with frozen encoders," if frozen else "the whole training")
        before = history[-1]["epoch"] if history else 0
        history += [{**row, "phase": name, "epoch": before + row["epoch"]} for row in course]
        if dev is not None:
            reached = max(row[settings.watched] for row in course if settings.watched in row)
            if reached > best[0]:
                best = (reached, {name: w.clone() for name, w in weights_of(model.module).items()})
            else:
                model.module.load_state_dict(best[1])
    ranker.model.mark_fitted(history, TrainedOn.of(examples.question_of, examples.labels, settings))


def _question_lists(ranker: "DCBERT", frame: pd.DataFrame) -> QuestionLists:
    teacher = frame["teacher"].to_numpy(dtype=np.float32) if "teacher" in frame.columns else None
    if teacher is not None and not np.isfinite(teacher).all():
        row = frame.iloc[int(np.isfinite(teacher).argmin())]
        raise ValueError(
            f"{int((~np.isfinite(teacher)).sum())} of {len(frame)} teacher scores are no numbers, the first for "
            f"qid {shown(row['qid'])}, docno {shown(row['docno'])}; score all candidates, or leave out those without"
        )
    questions, asked = frames.distinct(frames.texts(frame, "query"))
    documents, texts = frames.distinct(frames.texts(frame, ranker.text_field))
    # Training reads the first passage of a long document.
    ours = ranker(passages="first")
    sides = ours.tokenized(asked, "question"), ours.tokenized(texts, "document")
    return QuestionLists(*sides, questions, documents, frame["label"].to_numpy(dtype=np.int64), teacher)


def _states(ranker: "DCBERT", examples: QuestionLists) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the states of all questions and of all documents in fp16, each ``(n_tokens, width)``."""
    fast = ranker(precision="bf16" if has_bf16(device_of(ranker.device)) else "fp32")
    questions = fast.text_encoder("question").states(examples.questions)
    return questions.half(), fast.text_encoder("document").states(examples.documents).half()


def _measure(
    ranker: "DCBERT", dev: pd.DataFrame, qrels: pd.DataFrame, frozen: bool
) -> Callable[[str], dict[str, float]]:
    """Returns a function that measures the model on the development questions.

    Frozen encoders encode these questions and their documents once, in the first call.
    """
    blocks, queries, texts = frames.Blocks.of(dev), frames.texts(dev, "query"), frames.texts(dev, ranker.text_field)
    kept = {}

    def measure(precision: str) -> dict[str, float]:
        ours = ranker(precision=precision, verbose=False)
        if not frozen:
            scores = score_candidates(ours, dev, blocks, texts)["score"]
        else:
            if not kept:
                kept["documents"], kept["codes"] = ours.encoded_texts(texts)
                kept["questions"] = ours.questions([queries[block[0]] for block in blocks])
            values = np.empty((4, len(dev)))
            documents = Documents(None, kept["documents"])
            join(ours, kept["questions"], list(blocks), documents, -1 - kept["codes"], values)
            scores = values[0]
        return {
            "dev_map": frames.mean_average_precision(dev, scores, qrels),
            "dev_p10": frames.success(dev, scores, qrels, 10),
        }

    return measure


class Loss:
    """The loss of a batch. It also watches whether the training ever leaves the base rate.

    Args:
        settings: Which loss.
        n_batches: The batches of the training.
    """

    def __init__(self, settings: DCBertTraining, n_batches: int):
        self.settings, self.first_watched = settings, int((1 - LAST) * n_batches)
        self.losses, self.bases = [], []

    def __call__(self, module, inputs: dict, labels: torch.Tensor, number: int) -> torch.Tensor:
        """Returns the mean loss over questions, or over pairs where it is taken point by point."""
        teacher = inputs.pop("teacher", None)
        groups = inputs["question_of"]
        scores = module(**inputs).float()
        pointwise = self.settings.loss == "pointwise"
        loss = cross_entropy(scores, labels) if pointwise else listwise(scores, labels, groups)
        if number >= self.first_watched:
            self.losses.append(loss.item())
            self.bases.append(base_rate(self.settings.loss, labels, groups))
        if teacher is not None:
            weight = self.settings.teacher_weight
            loss = (1 - weight) * loss + weight * distilled(scores, teacher, groups)
        return loss

    def warn_if_nothing_was_learnt(self, phase: str) -> None:
        """Warns if the last part of the training is no better than knowing the share of positives alone.

        Args:
            phase: The phase, as the beginning of a sentence.
        """
        loss, base = np.mean(self.losses or [0.0]), np.mean(self.bases or [0.0])
        if loss > LEARNT * base:
            warn_user(
                f"{phase} did not learn: its loss is {loss:.4f} at the end, and knowing the share of positives alone "
                f"gives {base:.4f}; try head='compare', random_first=0.4, more questions, or another learning rate"
            )


def listwise(scores: torch.Tensor, labels: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Returns the mean divergence over questions; several positives of a question share its probability.

    Questions without a positive are left out.

    Args:
        scores: ``(n,)``.
        labels: 0 or 1, ``(n,)``.
        groups: The question of each, ``(n,)``, ascending.
    """
    found = [
        list_divergence(one, label / label.sum()) for one, label in _lists(groups, scores, labels) if (label == 1).any()
    ]
    return torch.stack(found).mean() if found else scores.sum() * 0


def distilled(scores: torch.Tensor, teacher: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Returns the mean divergence from the teacher's distribution over each question's candidates.

    Args:
        scores: ``(n,)``.
        teacher: The teacher's scores, ``(n,)``.
        groups: The question of each, ``(n,)``, ascending.
    """
    return torch.stack(
        [list_divergence(one, given.softmax(0)) for one, given in _lists(groups, scores, teacher)]
    ).mean()


def base_rate(loss: str, labels: torch.Tensor, groups: torch.Tensor) -> float:
    """Returns the least loss that equal scores for all candidates can have."""
    if loss == "pointwise":
        share = labels.float().mean()
        return float(F.binary_cross_entropy(share, share))
    return float(listwise(torch.zeros(len(labels)), labels.cpu(), groups.cpu()))


def _lists(groups: torch.Tensor, *values: torch.Tensor):
    sizes = torch.unique_consecutive(groups, return_counts=True)[1].tolist()
    return zip(*(value.split(sizes) for value in values), strict=True)
