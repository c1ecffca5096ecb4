"""Fine-tuning in two steps, transfer and adapt, around any ranker that can be fitted (TA-3)."""

import copy
import json
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from pyterrier_cascade import frames
from pyterrier_cascade.encoder.device import device_of, training_precision
from pyterrier_cascade.store.publish import publish_file
from pyterrier_cascade.tanda.recipe import Recipe
from pyterrier_cascade.training.identity import identity, refuse_another

TRANSFER_RATES = (1e-6, 2e-5)
ADAPT_RATES = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5)
"""The ten pairs of rates that the paper searches (TA-7, without the repeated one)."""

DONE = "transferred.json"
"""The file beside the transferred weights that identifies them; it is written last."""


class Tanda(Recipe):
    """Trains a ranker in two steps: transfer on a large general set of questions, then adapt to the target (TA-3).

    The ranker may be any ranker that can be fitted: a cross-encoder, a cascade, a sequential reranker, DC-BERT, a
    hierarchical ranker. The adapt step starts from the encoder and the head of the transfer step, with a fresh
    optimiser (TA-3). Both steps stop early by MAP on the *target's* development questions (TA-5)::

        tanda = Tanda(cascade, transfer=asnq)
        tanda.fit_candidates(train, dev)
        bm25 >> tanda

    The defaults are those of the paper (TA-5, TA-6); the code of its authors runs two epochs of each step. They suit
    base models and millions of pairs. Small encoders need higher rates: see :meth:`search`.

    Args:
        ranker: The ranker to train. Its weights stay as they are; after the training, :attr:`ranker` has the new ones.
        transfer: Labelled candidates of the general set, or a dataset with ``get_candidates``.
        transfer_rate: The peak learning rate of the transfer step.
        adapt_rate: The peak learning rate of the adapt step.
        transfer_epochs: The most epochs of the transfer step.
        adapt_epochs: The most epochs of the adapt step.
        test: The target's test questions, as a frame with ``query`` or a dataset. A transfer set that asks one of them
            is an error.
        allow_overlap: Whether the transfer set may ask test questions nevertheless.
        transfer_training: Further settings of the transfer step's training, such as ``{"tokens_per_batch": 700}``.
        adapt_training: Further settings of the adapt step's training.
        folder: The folder for the transferred weights and for checkpoints, or None to keep none. A training that was
            killed continues from there, and the transferred weights can be adapted to other targets.
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
        """Runs the transfer step and the adapt step, and returns the recipe.

        Args:
            train: The candidates of the target's training questions: ``qid``, ``query``, ``docno``, the text and
                ``label``.
            dev: The candidates of its development questions. They are required, because both steps stop early by them.
        """
        self.begin(train, dev)
        return self.adapt(self.transferred(dev), train, dev)

    def transferred(self, dev: pd.DataFrame):
        """Runs the transfer step and returns the ranker; if the folder holds the step's weights, reads them instead.

        Args:
            dev: The candidates of a target's development questions.
        """
        settings = self._transfer_settings
        if self.folder is None:
            return self.trained(self.source, "transfer", self.transfer, dev, settings)
        kept = self.folder / "transferred"
        transfer = self._transfer_identity(self.source.with_training(**settings))
        if (kept / DONE).is_file():
            note = json.loads((kept / DONE).read_text(encoding="utf-8"))
            refuse_another(kept, note, transfer, Tanda, holds="the weights of another transfer")
            self.steps.append(pd.DataFrame(note["history"]))
            return self.source.loaded_from(str(kept))
        ranker = self.trained(self.source, "transfer", self.transfer, dev, settings)
        ranker.save_pretrained(str(kept))
        done = {**transfer, "history": self.steps[-1].to_dict("records")}
        publish_file(kept / DONE, json.dumps(done, indent=1).encode())
        return ranker

    def _transfer_identity(self, ranker) -> dict[str, object]:
        """Returns everything that decides the transferred weights, except the target's development questions."""
        models = ranker.weight_holders()
        found = {"transfer_set": frames.digest([self.transfer], ranker.text_field)}
        for number, one in enumerate(models):
            prefix = f"model {number}: " * (len(models) > 1)
            # On another machine "auto" may mean another precision.
            precision = training_precision(one.training.precision, device_of(getattr(one, "device", None)))
            fields = identity(replace(one.training, precision=precision), one.model.loaded.module, [], None)
            fields |= one.reading() | {"tokenizer": one.model.loaded.tokenizer_identity}
            found |= {prefix + name: value for name, value in fields.items()}
        return found

    def adapt(self, transferred, train: pd.DataFrame, dev: pd.DataFrame, step: str = "adapt"):
        """Runs the adapt step on a copy of transferred weights, and returns the recipe.

        Transferred weights in a folder can be adapted without the transfer set:
        ``FineTune(ranker.loaded_from("folder/transferred"), rate=1e-6, epochs=3)``.

        Args:
            transferred: The ranker that :meth:`transferred` returned, perhaps for another target.
            train: The candidates of the target's training questions.
            dev: The candidates of its development questions.
            step: The name of the step in the history and in the folder; each target needs a name of its own.
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

        For a sequential reranker, the table holds the MAP of its last model.

        Args:
            train: The candidates of the target's training questions.
            dev: The candidates of its development questions.
            transfer_rates: The rates of the transfer step.
            adapt_rates: The rates of the adapt step. For each transfer rate, all of them start from the same
                transferred weights.
        """
        self.begin(train, dev)
        for rate in (*transfer_rates, *adapt_rates):
            self.source.with_training(learning_rate=rate)
        rows, best = [], None
        # A copy is changed, and the recipe itself only at the end: an interrupted search can be called again.
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
