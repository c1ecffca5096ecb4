"""What all recipes share: a ranker, steps of training, and the table of what happened."""

from abc import abstractmethod
from pathlib import Path

import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.ranker import HELP_URL, Ranker
from pyterrier_cascade.tanda.overlap import refuse_overlap

NO_DEV = "a recipe stops early in every step, by MAP on the target's development questions: give some"


class Recipe(pt.Estimator):
    """Trains a ranker in one or more steps, and ranks by what came of it.

    A subclass implements :meth:`fit_candidates`.

    Args:
        ranker: The ranker to train, any ranker of this package that can be fitted. Its weights stay as they are;
            afterwards the recipe's :attr:`ranker` has the new ones.
        folder: Where to keep checkpoints, or None.
    """

    def __init__(self, ranker, folder: str | None):
        if not isinstance(ranker, Ranker) or not hasattr(ranker, "fit_candidates"):
            raise ValueError(
                f"{ranker!r} cannot be fitted; give a CrossEncoder, a Cascade or another ranker with weights"
            )
        self.source, self.ranker = ranker, ranker
        self.folder = None if folder is None else Path(folder)
        self.steps: list[pd.DataFrame] = []

    @abstractmethod
    def fit_candidates(self, train: pd.DataFrame, dev: pd.DataFrame | None = None):
        """Trains on labelled lists and returns the recipe.

        Args:
            train: The target's training questions: ``qid``, ``query``, ``docno``, the text and ``label``.
            dev: Its development questions.
        """

    def fit(self, topics_or_res_tr, qrels_tr, topics_or_res_va=None, qrels_va=None):
        """Trains on retrieved candidates, as ``(retriever >> recipe).fit(...)`` does.

        Args:
            topics_or_res_tr: Results frame of the target's training queries.
            qrels_tr: Its judgements.
            topics_or_res_va: Results frame of the target's development queries.
            qrels_va: Their judgements.
        """
        if topics_or_res_va is None or qrels_va is None:
            raise ValueError(NO_DEV)
        train = frames.labelled(topics_or_res_tr, qrels_tr)
        return self.fit_candidates(train, frames.labelled(topics_or_res_va, qrels_va))

    def begin(self, train: pd.DataFrame, dev: pd.DataFrame | None) -> None:
        """Forgets earlier steps; raises where the target's lists are useless, before hours are spent on the transfer.

        Args:
            train: The target's training questions.
            dev: Its development questions.
        """
        _need(dev)
        for name, frame in (("training", train), ("development", dev)):
            frames.validate(frame, context=self, text_field=self.source.text_field)
            frames.binary(frame, name, self.source.relevant_from)
        self.steps = []

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the candidates as the ranker ranks them."""
        return self.ranker.transform(inp)

    @property
    def history(self) -> pd.DataFrame:
        """The course of all steps: ``step`` and what ``ranker.history`` has, one below the other."""
        return pd.concat(self.steps, ignore_index=True) if self.steps else pd.DataFrame()

    def plot(self, ax=None):
        """Draws development MAP over the epochs of all steps, and returns the axes.

        ``fine_tune.plot(tanda.plot())`` sets one recipe beside another. With the test questions in place of the
        development ones, and a patience of all epochs, these are the curves of the paper's figure 4 (TA-22).

        Args:
            ax: Where to draw; a new figure unless given.
        """
        from pyterrier_cascade.tanda.plots import course

        if not self.steps:
            raise ValueError("nothing was trained yet: call fit first")
        return course(self.history, ax)

    def trained(self, ranker, step: str, train: pd.DataFrame, dev: pd.DataFrame, settings: dict):
        """Returns a ranker that goes on from another's weights, with a fresh optimiser, and notes the step.

        Args:
            ranker: Whose weights to go on from; it keeps them.
            step: The name of the step.
            train: Labelled candidates.
            dev: Labelled candidates of the target's development questions.
            settings: Of the training.
        """
        _need(dev)
        folder = None if self.folder is None else str(self.folder / f"training-{step}")
        ranker = ranker.apart()
        # On the same weights; the settings are the step's and end with it.
        training = ranker.with_training(**{"folder": folder, **settings})
        training.fit_candidates(train, dev)
        self.steps.append(training.history.assign(step=step))
        return ranker

    def transfer_set(self, data, test, allow_overlap: bool) -> pd.DataFrame:
        """Returns the candidates of a transfer set, once they are checked.

        Args:
            data: A frame, or a dataset with ``get_candidates``.
            test: The target's test questions, or None.
            allow_overlap: Whether the transfer set may ask them.
        """
        candidates = data.get_candidates() if hasattr(data, "get_candidates") else data
        frames.validate(candidates, context=self, text_field=self.source.text_field)
        frames.binary(candidates, "transfer", self.source.relevant_from)
        if test is not None and not allow_overlap:
            refuse_overlap(candidates, test)
        return candidates

    def __repr__(self):
        """Returns what is trained, and how."""
        return f"<{type(self).__name__} of {self.source!r}>"

    def subtransformers(self) -> dict:
        """Returns no inner transformers: a recipe is one box."""
        return {}

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the box that PyTerrier draws."""
        return {"label": type(self).__name__, "help_url": HELP_URL}


def _need(dev: pd.DataFrame | None) -> None:
    if dev is None or not len(dev):
        raise ValueError(NO_DEV)
