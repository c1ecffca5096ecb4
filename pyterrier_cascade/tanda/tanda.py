"""Fine-tuning in two steps, transfer and adapt, around any ranker that can be fitted (TA-3)."""

import copy
import json
from collections.abc import Sequence

import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.tanda.recipe import Recipe
from pyterrier_cascade.training.identity import identity

TRANSFER_RATES = (1e-6, 2e-5)
ADAPT_RATES = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5)
"""The ten pairs of rates that the paper searches (TA-7, without the repeated one)."""

DONE = "transferred.json"
READING = ("text_field", "max_length", "query_length", "document_length", "passages")
"""The settings of rankers that decide what of a text is read."""


class Tanda(Recipe):
    """Trains a ranker in two steps: transfer on a large general set of questions, then adapt to the target.

    Takes any ranker that can be fitted: a cross-encoder, a cascade, a sequential reranker, DC-BERT, a hierarchical
    ranker. The head is carried from one step to the next, the optimiser is not (TA-3). Both steps stop early by MAP on
    the *target's* development questions (TA-5)::

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
        test: The target's test questions, a frame with ``query`` or a dataset. A transfer set that asks one of them is
            refused.
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
        self.transfer = self.transfer_set(transfer, test, allow_overlap)
        self.transfer_rate, self.adapt_rate = transfer_rate, adapt_rate
        self.transfer_epochs, self.adapt_epochs = transfer_epochs, adapt_epochs
        self.transfer_training, self.adapt_training = transfer_training or {}, adapt_training or {}
        for settings in (self._transfer_settings, self._adapt_settings):
            ranker.with_training(**settings)

    @property
    def _transfer_settings(self) -> dict:
        return dict(learning_rate=self.transfer_rate, epochs=self.transfer_epochs, **self.transfer_training)

    @property
    def _adapt_settings(self) -> dict:
        return dict(learning_rate=self.adapt_rate, epochs=self.adapt_epochs, **self.adapt_training)

    def fit_candidates(self, train: pd.DataFrame, dev: pd.DataFrame | None = None) -> "Tanda":
        """Transfers, then adapts to labelled lists, and returns the recipe.

        Args:
            train: The target's training questions: ``qid``, ``query``, ``docno``, the text and ``label``.
            dev: Its development questions; without them this is an error, because every step stops early by them.
        """
        self.begin(train, dev)
        return self.adapt(self.transferred(dev), train, dev)

    def transferred(self, dev: pd.DataFrame):
        """Returns a ranker after the transfer step; from the folder, if it is there.

        Args:
            dev: The development questions of a target.
        """
        settings = self._transfer_settings
        if self.folder is None:
            return self.trained(self.source, "transfer", self.transfer, dev, settings)
        kept = self.folder / "transferred"
        made = self._identity(self.source.with_training(**settings))
        if (kept / DONE).is_file():
            note = json.loads((kept / DONE).read_text(encoding="utf-8"))
            differing = [
                f"{name} was {note.get(name)!r} and is {one!r}" for name, one in made.items() if note.get(name) != one
            ]
            if differing:
                raise ValueError(
                    f"{str(kept)!r} holds the weights of another transfer: {', '.join(differing)}; "
                    "give another folder, or remove this one"
                )
            self.steps.append(pd.DataFrame(note["history"]))
            return self.source.loaded_from(str(kept))
        ranker = self.trained(self.source, "transfer", self.transfer, dev, settings)
        ranker.save_pretrained(str(kept))
        with pt.io.finalized_open(str(kept / DONE), "t") as file:
            json.dump({**made, "history": self.steps[-1].to_dict("records")}, file, indent=1)
        return ranker

    def _identity(self, ranker) -> dict[str, object]:
        """Returns what decides the transferred weights but for the target's development questions."""
        models = ranker.weight_holders()
        made = {"transfer_set": frames.digest([self.transfer], ranker.text_field)}
        for number, one in enumerate(models):
            where = f"model {number}: " * (len(models) > 1)
            read = {name: getattr(one, name) for name in READING if hasattr(one, name)}
            same = identity(one.training, one.model.loaded.module, [], None) | read
            made |= {where + name: value for name, value in same.items()}
        return made

    def adapt(self, transferred, train: pd.DataFrame, dev: pd.DataFrame, step: str = "adapt"):
        """Adapts transferred weights, which stay as they are, to a target, and returns the recipe.

        Where the transfer set is not at hand, kept weights are adapted by one step on the target alone:
        ``FineTune(ranker.loaded_from("folder/transferred"), rate=1e-6, epochs=3)``.

        Args:
            transferred: What :meth:`transferred` returned, perhaps for another target.
            train: The target's training questions.
            dev: Its development questions.
            step: What the table and the folder call this step; another name for each target.
        """
        self.ranker = self.trained(transferred, step, train, dev, self._adapt_settings)
        return self

    def search(
        self,
        train: pd.DataFrame,
        dev: pd.DataFrame,
        transfer_rates: Sequence[float] = TRANSFER_RATES,
        adapt_rates: Sequence[float] = ADAPT_RATES,
    ) -> pd.DataFrame:
        """Tries all pairs of rates, keeps the ranker with the best development MAP, and returns a table (TA-7).

        Of a sequential reranker, the MAP is that of its last model.

        Args:
            train: The target's training questions.
            dev: Its development questions.
            transfer_rates: Rates of the transfer step.
            adapt_rates: Rates of the adapt step; each starts from the same transferred weights.
        """
        self.begin(train, dev)
        for rate in (*transfer_rates, *adapt_rates):
            self.source.with_training(learning_rate=rate)
        rows, best = [], None
        # The recipe stays as it is until all is done, so that an interrupted search can be called again.
        one = copy.copy(self)
        for one.transfer_rate in transfer_rates:
            one.folder = self.folder and self.folder / f"rate-{one.transfer_rate}"
            transferred = one.transferred(dev)
            for one.adapt_rate in adapt_rates:
                one.adapt(transferred, train, dev, f"adapt at {one.adapt_rate}")
                rows.append((one.transfer_rate, one.adapt_rate, _best_map(one.steps[-1])))
                if best is None or rows[-1][-1] > best[-1]:
                    best = one.ranker, *rows[-1]
        self.ranker, self.transfer_rate, self.adapt_rate, _ = best
        return pd.DataFrame(rows, columns=["transfer_rate", "adapt_rate", "dev_map"])


def _best_map(history: pd.DataFrame) -> float:
    if "layers" in history:
        history = history[history["layers"] == history["layers"].max()]
    return history["dev_map"].max()
