"""Fine-tuning in a single step, which TANDA is measured against (TA-4)."""

import pandas as pd

from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.tanda.recipe import Recipe

ON = ("target", "transfer", "union")


class FineTune(Recipe):
    """Trains a ranker in one step: on the target, on a transfer set, or on both together.

    Args:
        ranker: What is trained. Its weights are left as they are; afterwards :attr:`ranker` has the new ones.
        on: ``"target"``, ``"transfer"`` or ``"union"``.
        transfer: Labelled candidates of a general set, or a dataset that has them; not needed for ``"target"``.
        rate: The peak learning rate, 1e-6 to 2e-5 in the paper (TA-7).
        epochs: The most epochs.
        test: The target's test questions, a frame with ``query`` or a dataset. A transfer set that asks one of them is
            refused.
        allow_overlap: Take such a transfer set nevertheless.
        training: Further settings of the training.
        folder: Where to keep checkpoints.
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
            raise ValueError(f"on={on!r} needs a transfer set")
        self.on, self.settings = on, dict(learning_rate=rate, epochs=epochs, **(training or {}))
        ranker.with_training(**self.settings)
        self.transfer = None if on == "target" else self.transfer_set(transfer, test, allow_overlap)

    def fit_candidates(self, train: pd.DataFrame, dev: pd.DataFrame | None = None) -> "FineTune":
        """Trains on the lists that ``on`` names, and returns the recipe.

        Args:
            train: The target's training questions: ``qid``, ``query``, ``docno``, the text and ``label``.
            dev: Its development questions; without them this is an error, because every step stops early by them.
        """
        self.begin(train, dev)
        data = {"target": train, "transfer": self.transfer}
        if self.on == "union":
            data["union"] = union(self.transfer, train)
        self.ranker = self.trained(self.source, self.on, data[self.on], dev, self.settings)
        return self


def union(transfer: pd.DataFrame, target: pd.DataFrame) -> pd.DataFrame:
    """Returns both sets as one, on their common columns; the transfer set's ids are marked, so that none meet (TA-4).

    Args:
        transfer: Labelled candidates.
        target: Likewise.
    """
    columns = [name for name in target.columns if name in transfer.columns]
    marked = transfer[columns].assign(qid="transfer-" + transfer["qid"].astype(str))
    return pd.concat([marked, target[columns]], ignore_index=True)
