"""The provider of the data sets: from a name such as ``wikiqa/test`` to a data set."""

from collections.abc import Iterable

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

LABELLED = {kind.name: kind for kind in (Asnq, AsnqLike, GeneratedFacts, TrecQA, WikiQA)}


class AS2Provider(pt.datasets.DatasetProvider):
    """The provider of the prefix ``as2:``."""

    def get_dataset(self, name: str) -> AS2Dataset:
        """Returns the data set of that name; reads and downloads nothing.

        Raises:
            KeyError: If there is no such data set; the message lists the names.
        """
        match name.split("/"):
            case ["squad-open"]:
                return SquadOpen(SquadFile())
            case ["squad-open", release] if release in RELEASES:
                return SquadOpen(SquadFile(release))
            case ["dl19"]:
                return Dl19(Dl19Folder())
            case ["scifact", split] if split in SPLITS:
                return RetrievalDataset(SciFactFolder(split))
            case [kind, split] if _exists(kind, split):
                return AnswerSelection(LABELLED[kind](), split)
            case [kind, mode, split] if _exists(kind, split) and mode in set(Mode):
                return AnswerSelection(LABELLED[kind](), split, Mode(mode))
        raise KeyError(
            f"as2 has no {name!r}{did_you_mean(name, list(self.list_dataset_names()))}; it has "
            f"<{'|'.join(LABELLED)}>/[<{'|'.join(Mode)}>/]<train|dev|test>, squad-open/<{'|'.join(RELEASES)}>, "
            f"squad-open with file=..., dl19 and scifact/<{'|'.join(SPLITS)}>"
        )

    def list_dataset_names(self) -> Iterable[str]:
        """Yields all names; a name without a mode stands for the mode in which the papers use that split."""
        for kind in LABELLED.values():
            for split in kind.default_modes:
                yield f"{kind.name}/{split}"
                yield from (f"{kind.name}/{mode.value}/{split}" for mode in Mode)
        yield from (f"squad-open/{release}" for release in RELEASES)
        yield "dl19"
        yield from (f"scifact/{split}" for split in SPLITS)


def _exists(kind: str, split: str) -> bool:
    return kind in LABELLED and split in LABELLED[kind].default_modes
