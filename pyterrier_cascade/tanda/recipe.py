"""The base of all recipes: a ranker, steps of training, and the history of all steps."""

from abc import abstractmethod
from pathlib import Path

import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.ranker import HELP_URL, Ranker
from pyterrier_cascade.tanda.overlap import refuse_overlap

NO_DEV = "a recipe stops early in every step, by MAP on the target's development questions: give some"


class Recipe(pt.Estimator):
    """Trains a ranker in one or more steps, and ranks with the trained ranker.

    A subclass implements :meth:`fit_candidates`.

    Args:
        ranker: The ranker to train, any ranker of this package that can be fitted. Its weights stay as they are.
        folder: The folder for checkpoints, or None to keep none.

    Attributes:
        source: The given ranker.
        ranker: The trained ranker; before the training the given one.
        steps: The history of each step that was trained.
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
        """Trains on labelled candidates and returns the recipe.

        Args:
            train: The candidates of the target's training questions: ``qid``, ``query``, ``docno``, the text and
                ``label``.
            dev: The candidates of its development questions.
        """

    def fit(self, topics_or_res_tr, qrels_tr, topics_or_res_va=None, qrels_va=None):
        """Trains on retrieved candidates, as ``(retriever >> recipe).fit(...)`` does, and returns the recipe.

        Args:
            topics_or_res_tr: The results frame of the target's training queries.
            qrels_tr: The judgements of the training queries.
            topics_or_res_va: The results frame of the target's development queries.
            qrels_va: The judgements of the development queries.
        """
        if topics_or_res_va is None or qrels_va is None:
            raise ValueError(NO_DEV)
        train = frames.labelled(topics_or_res_tr, qrels_tr)
        return self.fit_candidates(train, frames.labelled(topics_or_res_va, qrels_va))

    def begin(self, train: pd.DataFrame, dev: pd.DataFrame | None) -> None:
        """Checks the target's data before hours are spent on the transfer step, and forgets the steps of earlier fits.

        Args:
            train: The candidates of the target's training questions.
            dev: The candidates of its development questions.
        """
        _check_dev(dev)
        for name, frame in (("training", train), ("development", dev)):
            frames.validate(frame, context=self, text_field=self.source.text_field)
            frames.binary(frame, name, self.source.relevant_from)
        self.steps = []

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the candidates as the trained ranker ranks them.

        Args:
            inp: A results frame with ``qid``, ``query``, ``docno`` and the text.
        """
        return self.ranker.transform(inp)

    @property
    def history(self) -> pd.DataFrame:
        """The history of all steps, one below the other: the columns of ``ranker.history``, and ``step``."""
        return pd.concat(self.steps, ignore_index=True) if self.steps else pd.DataFrame()

    def plot(self, ax=None):
        """Draws development MAP over the epochs of all steps, and returns the axes.

        ``fine_tune.plot(tanda.plot())`` draws two recipes on the same axes. If the test questions are given as
        development questions, and the patience is the number of epochs, the plot shows the curves of the paper's
        figure 4 (TA-22).

        Args:
            ax: The axes to draw on; a new figure unless given.
        """
        from pyterrier_cascade.tanda.plots import course

        if not self.steps:
            raise ValueError("nothing was trained yet: call fit first")
        return course(self.history, ax)

    def trained(self, ranker, step: str, train: pd.DataFrame, dev: pd.DataFrame, settings: dict):
        """Trains a copy of a ranker with a fresh optimiser, adds the history to :attr:`steps`, and returns the copy.

        Args:
            ranker: The ranker whose weights the training starts from; it keeps these weights.
            step: The name of the step.
            train: Labelled candidates to train on.
            dev: Labelled candidates of the target's development questions.
            settings: The settings of the step's training.
        """
        _check_dev(dev)
        folder = None if self.folder is None else str(self.folder / f"training-{step}")
        ranker = ranker.apart()
        # `training` trains the weights of `ranker`. Only `training` has the settings of the step.
        training = ranker.with_training(**{"folder": folder, **settings})
        training.fit_candidates(train, dev)
        self.steps.append(training.history.assign(step=step))
        return ranker

    def transfer_set(self, data, test, allow_overlap: bool) -> pd.DataFrame:
        """Checks a transfer set and returns its candidates.

        Args:
            data: A frame of labelled candidates, or a dataset with ``get_candidates``.
            test: The target's test questions, or None.
            allow_overlap: Whether the transfer set may ask test questions.
        """
        candidates = data.get_candidates() if hasattr(data, "get_candidates") else data
        frames.validate(candidates, context=self, text_field=self.source.text_field)
        frames.binary(candidates, "transfer", self.source.relevant_from)
        if test is not None and not allow_overlap:
            refuse_overlap(candidates, test)
        return candidates

    def __repr__(self):
        """Returns the name of the recipe and the ranker that it trains."""
        return f"<{type(self).__name__} of {self.source!r}>"

    def subtransformers(self) -> dict:
        """Returns no inner transformers: PyTerrier draws a recipe as one box."""
        return {}

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the box that PyTerrier draws."""
        return {"label": type(self).__name__, "help_url": HELP_URL}


def _check_dev(dev: pd.DataFrame | None) -> None:
    if dev is None or not len(dev):
        raise ValueError(NO_DEV)
