"""The data sets of the papers behind ``pt.get_dataset("as2:...")``.

=================================  ==============================================================================
``as2:facts/<split>``              invented facts, generated, nothing to download
``as2:wikiqa/<mode>/<split>``      WikiQA
``as2:trecqa/<mode>/<split>``      TREC-QA
``as2:asnq/<mode>/<split>``        ASNQ, from its official files in ``folder``
``as2:asnq-like/<mode>/<split>``   a set like ASNQ, from a folder that ``asnq.build`` made; see ``asnq``
``as2:squad-open/<name>``          retrieval of SQuAD paragraphs: ``dev-v1.1``, ``new_wiki_v1.0``
``as2:squad-open``                 the same with ``file="path/to/any-squad-shaped.json"``
``as2:dl19``                       the judged passages of TREC DL 2019, from ``folder``
``as2:scifact/<train|test>``       retrieval of abstracts for scientific claims, from ``folder``
=================================  ==============================================================================

A split is ``train``, ``dev`` or ``test``, a mode one of :class:`Mode`; a name without a mode stands for the mode in
which the papers use that split. ``as2:squad-open/...`` takes ``articles="even"`` or ``"odd"`` for the questions about
one half of the articles, to train on one and evaluate on the other. Files are taken from the folder in
``pt.get_dataset(..., folder="...")``, else from the folder that the environment variable ``PTC_DATA`` names. Without
either, those of WikiQA, TREC-QA and SQuAD are downloaded once from their official address to PyTerrier's home.
"""

from pyterrier_cascade.datasets.asnq.dataset import Asnq, AsnqLike
from pyterrier_cascade.datasets.dl19 import Dl19Folder
from pyterrier_cascade.datasets.facts import GeneratedFacts
from pyterrier_cascade.datasets.modes import Mode
from pyterrier_cascade.datasets.provider import AS2Provider
from pyterrier_cascade.datasets.scifact import SciFactFolder
from pyterrier_cascade.datasets.squad import SquadFile
from pyterrier_cascade.datasets.text_loader import TextLoader
from pyterrier_cascade.datasets.trecqa import TrecQA
from pyterrier_cascade.datasets.wikiqa import WikiQA

__all__ = [
    "AS2Provider",
    "Asnq",
    "AsnqLike",
    "Dl19Folder",
    "GeneratedFacts",
    "Mode",
    "SciFactFolder",
    "SquadFile",
    "TextLoader",
    "TrecQA",
    "WikiQA",
]
