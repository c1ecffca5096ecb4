"""The provider of the data sets: from a name such as ``wikiqa/test`` to a data set."""

from collections.abc import Callable, Iterable
from functools import partial

import pyterrier as pt

from pyterrier_cascade.checks import did_you_mean
from pyterrier_cascade.datasets.asnq.dataset import Asnq, AsnqLike
from pyterrier_cascade.datasets.base import AnswerSelection, AS2Dataset, RetrievalDataset
from pyterrier_cascade.datasets.dl19 import Dl19, Dl19Folder
from pyterrier_cascade.datasets.facts import GeneratedFacts
from pyterrier_cascade.datasets.modes import Mode
from pyterrier_cascade.datasets.scifact import SPLITS, SciFactFolder
from pyterrier_cascade.datasets.squad import RELEASES, SquadFile, SquadOpen
from pyterrier_cascade.datasets.trecqa import TrecQA
from pyterrier_cascade.datasets.wikiqa import WikiQA

LABELLED = (Asnq, AsnqLike, GeneratedFacts, TrecQA, WikiQA)


def _dataset_makers() -> dict[str, Callable[[], AS2Dataset]]:
    makers: dict[str, Callable[[], AS2Dataset]] = {}
    for kind in LABELLED:
        for split in kind.default_modes:
            makers[f"{kind.name}/{split}"] = partial(AnswerSelection, kind(), split)
            for mode in Mode:
                makers[f"{kind.name}/{mode.value}/{split}"] = partial(AnswerSelection, kind(), split, mode)
    makers |= {f"squad-open/{release}": partial(SquadOpen, SquadFile(release)) for release in RELEASES}
    makers["dl19"] = partial(Dl19, Dl19Folder())
    makers |= {f"scifact/{split}": partial(RetrievalDataset, SciFactFolder(split)) for split in SPLITS}
    return makers


DATASETS = _dataset_makers()
"""All names, and what makes the data set of each; ``squad-open`` is not among them, because it needs a file."""


class AS2Provider(pt.datasets.DatasetProvider):
    """The provider of the prefix ``as2:``."""

    def get_dataset(self, name: str) -> AS2Dataset:
        """Returns the data set of that name; reads and downloads nothing.

        Raises:
            KeyError: If there is no such data set; the message lists the names.
        """
        if name == "squad-open":
            return SquadOpen(SquadFile())
        if name in DATASETS:
            return DATASETS[name]()
        raise KeyError(
            f"as2 has no {name!r}{did_you_mean(name, DATASETS)}; it has "
            f"<{'|'.join(kind.name for kind in LABELLED)}>/[<{'|'.join(Mode)}>/]<train|dev|test>, "
            f"squad-open/<{'|'.join(RELEASES)}>, squad-open with file=..., dl19 and scifact/<{'|'.join(SPLITS)}>"
        )

    def list_dataset_names(self) -> Iterable[str]:
        """Returns all names; a name without a mode stands for the mode in which the papers use that split."""
        return list(DATASETS)
