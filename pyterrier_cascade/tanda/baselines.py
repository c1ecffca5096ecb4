"""Fine-tuning in a single step, the baseline of TANDA (TA-4)."""

import pandas as pd

from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.tanda.recipe import Recipe

ON = ("target", "transfer", "union")
"""The training sets of a single step (TA-4)."""


class FineTune(Recipe):
    """Trains a ranker in one step: on the target, on a transfer set, or on both together (TA-4).

    Args:
        ranker: The ranker to train. Its weights stay as they are; after the training, :attr:`ranker` has the new ones.
        on: The training set: ``"target"``, ``"transfer"`` or ``"union"``.
        transfer: Labelled candidates of a general set, or a dataset with ``get_candidates``; not needed for
            ``"target"``.
        rate: The peak learning rate; the paper uses 1e-6 to 2e-5 (TA-7).
        epochs: The most epochs.
        test: The target's test questions, as a frame with ``query`` or a dataset. A transfer set that asks one of them
            is an error.
        allow_overlap: Whether the transfer set may ask test questions nevertheless.
        training: Further settings of the training, such as ``{"negatives": 4}``.
        folder: The folder for checkpoints, or None to keep none.
    """

    def __init__(
        self,
        ranker,
        on: str = "target",
        transfer=None,
        *,
        rate: float = 2e-5,
        epochs: int = 9,
        test: pd.DataFrame | None = None,
        allow_overlap: bool = False,
        training: dict | None = None,
        folder: str | None = None,
    ):
        super().__init__(ranker, folder)
        check_choices(on=(on, ON))
        if on != "target" and transfer is None:
            raise ValueError(f"on={on!r} needs a transfer set: give transfer=...")
        self.on, self.settings = on, dict(learning_rate=rate, epochs=epochs, **(training or {}))
        ranker.with_training(**self.settings)
        self.transfer = None if on == "target" else self.transfer_set(transfer, test, allow_overlap)

    def fit_candidates(self, train: pd.DataFrame, dev: pd.DataFrame | None = None) -> "FineTune":
        """Trains the ranker on the set that ``on`` names, and returns the recipe.

        Args:
            train: The candidates of the target's training questions: ``qid``, ``query``, ``docno``, the text and
                ``label``.
            dev: The candidates of its development questions. They are required, because the training stops early by
                them.
        """
        self.begin(train, dev)
        data = {"target": train, "transfer": self.transfer}
        if self.on == "union":
            data["union"] = union(self.transfer, train)
        self.ranker = self.trained(self.source, self.on, data[self.on], dev, self.settings)
        return self


def union(transfer: pd.DataFrame, target: pd.DataFrame) -> pd.DataFrame:
    """Returns the candidates of both sets in one frame, with the columns that both have (TA-4).

    The question ids of the transfer set get a prefix, so that equal ids of the two sets stay different questions.

    Args:
        transfer: Labelled candidates of the general set.
        target: Labelled candidates of the target.
    """
    columns = [name for name in target.columns if name in transfer.columns]
    marked = transfer[columns].assign(qid="transfer-" + transfer["qid"].astype(str))
    return pd.concat([marked, target[columns]], ignore_index=True)
