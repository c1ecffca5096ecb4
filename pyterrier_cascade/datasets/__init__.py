"""The data sets of the papers behind ``pt.get_dataset("as2:...")``.

=================================  ==============================================================================
``as2:facts/<split>``              invented facts, generated, nothing to download
``as2:wikiqa/<mode>/<split>``      WikiQA
``as2:trecqa/<mode>/<split>``      TREC-QA
``as2:asnq/<mode>/<split>``        ASNQ, from its official files in ``folder``
``as2:asnq-like/<mode>/<split>``   the like, from a folder that ``asnq.build`` made; see ``asnq``
``as2:squad-open/<name>``          retrieval of SQuAD paragraphs: ``dev-v1.1``, ``new_wiki_v1.0``
``as2:squad-open``                 the same with ``file="path/to/any-squad-shaped.json"``
=================================  ==============================================================================

A split is ``train``, ``dev`` or ``test``, a mode one of :class:`Mode`; without a mode it is the papers' use of that
split. ``as2:squad-open/...`` takes ``articles="even"`` or ``"odd"`` for the questions about one half of the articles,
to train on one and evaluate on the other. Files come from ``pt.get_dataset(..., folder="...")``, from the folder that
the environment variable ``PTC_DATA`` names, or (all but ASNQ) are downloaded once from their official address.
"""

from collections.abc import Iterable

import pyterrier as pt

from pyterrier_cascade.datasets.asnq.reader import Asnq, AsnqLike
from pyterrier_cascade.datasets.base import AnswerSelection, AS2Dataset, SquadOpen
from pyterrier_cascade.datasets.generated import GeneratedFacts
from pyterrier_cascade.datasets.modes import Mode
from pyterrier_cascade.datasets.squad import SHELVES, SquadFile
from pyterrier_cascade.datasets.text_loader import TextLoader
from pyterrier_cascade.datasets.trecqa import TrecQA
from pyterrier_cascade.datasets.wikiqa import WikiQA

__all__ = [
    "AS2Provider",
    "Asnq",
    "AsnqLike",
    "GeneratedFacts",
    "Mode",
    "SquadFile",
    "TextLoader",
    "TrecQA",
    "WikiQA",
]

LABELLED = {kind.name: kind for kind in (Asnq, AsnqLike, GeneratedFacts, TrecQA, WikiQA)}


class AS2Provider(pt.datasets.DatasetProvider):
    """The provider of the prefix ``as2:``."""

    def get_dataset(self, name: str) -> AS2Dataset:
        """Returns the data set of that name; reads and downloads nothing.

        Raises:
            KeyError: If there is none; the message lists what there is.
        """
        match name.split("/"):
            case ["squad-open"]:
                return SquadOpen(SquadFile())
            case ["squad-open", release] if release in SHELVES:
                return SquadOpen(SquadFile(release))
            case [kind, split] if _exists(kind, split):
                return AnswerSelection(LABELLED[kind](), split)
            case [kind, mode, split] if _exists(kind, split) and mode in set(Mode):
                return AnswerSelection(LABELLED[kind](), split, Mode(mode))
        raise KeyError(
            f"as2 has no {name!r}; it has <{'|'.join(LABELLED)}>/[<{'|'.join(Mode)}>/]<train|dev|test>, "
            f"squad-open/<{'|'.join(SHELVES)}>, and squad-open with file=..."
        )

    def list_dataset_names(self) -> Iterable[str]:
        """Returns all names; those without a mode stand for the papers' use."""
        for kind in LABELLED.values():
            for split in kind.default_modes:
                yield f"{kind.name}/{split}"
                yield from (f"{kind.name}/{mode.value}/{split}" for mode in Mode)
        yield from (f"squad-open/{release}" for release in SHELVES)


def _exists(kind: str, split: str) -> bool:
    return kind in LABELLED and split in LABELLED[kind].default_modes
