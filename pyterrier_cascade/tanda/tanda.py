"""Fine-tuning in two steps, transfer and adapt, around any ranker that can be fitted (TA-3)."""

import json
from collections.abc import Sequence

import pandas as pd
import pyterrier as pt

from pyterrier_cascade.tanda.overlap import refuse_overlap
from pyterrier_cascade.tanda.recipe import Recipe, labelled_lists

TRANSFER_RATES = (1e-6, 2e-5)
ADAPT_RATES = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5)
"""The ten pairs of rates that the paper searches (TA-7, without the repeated one)."""

DONE = "transferred.json"


class Tanda(Recipe):
    """Trains a ranker in two steps: transfer on a large general set of questions, then adapt to the target.

    Takes any ranker that can be fitted: a cross-encoder, a cascade, a sequential reranker. The head is carried from one
    step to the next, the optimiser is not (TA-3). Both steps stop early by MAP on the *target's* development questions
    (TA-5)::

        tanda = Tanda(cascade, transfer=asnq)
        tanda.fit_candidates(train, dev)
        bm25 >> tanda

    The defaults are the paper's (TA-5, TA-6; its authors' code takes two epochs of each). They suit base models and
    millions of pairs, while small encoders want higher rates: see :meth:`search`.

    Args:
        ranker: What is trained. Its weights are left as they are; afterwards :attr:`ranker` has the new ones.
        transfer: Labelled candidates of the general set, or a dataset that has them.
        transfer_rate: The peak learning rate of the transfer step.
        adapt_rate: That of the adapt step.
        transfer_epochs: The most epochs of the transfer step.
        adapt_epochs: Those of the adapt step.
        test: The target's test questions, a frame with ``query``. A transfer set that asks one of them is refused.
        allow_overlap: Take such a transfer set nevertheless.
        transfer_training: Further settings of the transfer step's training, such as ``{"tokens_per_batch": 700}``.
        adapt_training: Further settings of the adapt step's.
        folder: Where to keep the transferred weights and checkpoints: what was killed goes on from there, and the
            transferred weights serve other targets.
    """

    def __init__(
        self,
        ranker,
        transfer,
        *,
        transfer_rate: float = 2e-5,
        adapt_rate: float = 1e-6,
        transfer_epochs: int = 9,
        adapt_epochs: int = 3,
        test: pd.DataFrame | None = None,
        allow_overlap: bool = False,
        transfer_training: dict | None = None,
        adapt_training: dict | None = None,
        folder: str | None = None,
    ):
        super().__init__(ranker, folder)
        self.transfer = labelled_lists(transfer, "transfer")
        self.transfer_rate, self.adapt_rate = transfer_rate, adapt_rate
        self.transfer_epochs, self.adapt_epochs = transfer_epochs, adapt_epochs
        self.transfer_training, self.adapt_training = transfer_training or {}, adapt_training or {}
        if test is not None and not allow_overlap:
            refuse_overlap(self.transfer, test)

    def fit_candidates(self, train: pd.DataFrame, dev: pd.DataFrame):
        """Transfers, then adapts to labelled lists, and returns the recipe.

        Args:
            train: The target's training questions: ``qid``, ``query``, ``docno``, the text and ``label``.
            dev: Its development questions.
        """
        return self.adapt(self.transferred(dev), train, dev)

    def transferred(self, dev: pd.DataFrame):
        """Returns a ranker after the transfer step; from the folder, if it is there.

        Args:
            dev: The development questions of a target.
        """
        settings = {"learning_rate": self.transfer_rate, "epochs": self.transfer_epochs, **self.transfer_training}
        kept = None if self.folder is None else self.folder / "transferred"
        if kept is not None and (kept / DONE).is_file():
            note = json.loads((kept / DONE).read_text(encoding="utf-8"))
            if note["settings"] != settings:
                raise ValueError(
                    f"{str(kept)!r} holds the weights of another transfer, by {note['settings']} and not {settings}; "
                    "give another folder, or remove this one"
                )
            self.steps.append(pd.DataFrame(note["history"]))
            return self.source.loaded_from(str(kept))
        ranker = self.trained(self.source, "transfer", self.transfer, dev, settings)
        if kept is not None:
            ranker.save_pretrained(str(kept))
            with pt.io.finalized_open(str(kept / DONE), "t") as file:
                json.dump({"settings": settings, "history": self.steps[-1].to_dict("records")}, file, indent=1)
        return ranker

    def adapt(self, transferred, train: pd.DataFrame, dev: pd.DataFrame, step: str = "adapt"):
        """Adapts transferred weights, which stay as they are, to a target, and returns the recipe.

        Args:
            transferred: What :meth:`transferred` returned, perhaps for another target.
            train: The target's training questions.
            dev: Its development questions.
            step: What the table and the folder call this step; another name for each target.
        """
        settings = {"learning_rate": self.adapt_rate, "epochs": self.adapt_epochs, **self.adapt_training}
        self.ranker = self.trained(transferred, step, train, dev, settings)
        return self

    def search(
        self,
        train: pd.DataFrame,
        dev: pd.DataFrame,
        transfer_rates: Sequence[float] = TRANSFER_RATES,
        adapt_rates: Sequence[float] = ADAPT_RATES,
    ) -> pd.DataFrame:
        """Tries all pairs of rates, keeps the ranker with the best development MAP, and returns a table (TA-7).

        Args:
            train: The target's training questions.
            dev: Its development questions.
            transfer_rates: Rates of the transfer step.
            adapt_rates: Rates of the adapt step; each starts from the same transferred weights.
        """
        rows, best, folder = [], None, self.folder
        for self.transfer_rate in transfer_rates:
            self.folder = None if folder is None else folder / f"rate-{self.transfer_rate}"
            transferred = self.transferred(dev)
            for self.adapt_rate in adapt_rates:
                self.adapt(transferred, train, dev, f"adapt at {self.adapt_rate}")
                rows.append((self.transfer_rate, self.adapt_rate, self.steps[-1]["dev_map"].max()))
                if best is None or rows[-1][-1] > best[-1]:
                    best = self.ranker, *rows[-1]
        self.folder = folder
        self.ranker, self.transfer_rate, self.adapt_rate, _ = best
        return pd.DataFrame(rows, columns=["transfer_rate", "adapt_rate", "dev_map"])
