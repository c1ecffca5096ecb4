"""ASNQ (TA-10): its official files, and similar sets that are built from the Natural Questions or SQuAD-shaped files.

::

    build(NaturalQuestions(train="v1.0/train", dev="v1.0/dev"), "my-asnq", processes=8)
    build(SquadShaped(["dev-v1.1.json", "new_wiki_v1.0.json"]), "my-asnq")
    pt.get_dataset("as2:asnq-like/train", folder="my-asnq", negatives={1: 10, 2: 5, 3: None})
"""

from pyterrier_cascade.datasets.asnq.build import build
from pyterrier_cascade.datasets.asnq.dataset import Asnq, AsnqLike
from pyterrier_cascade.datasets.asnq.labelling import count_labels, label_table
from pyterrier_cascade.datasets.asnq.natural_questions import NaturalQuestions
from pyterrier_cascade.datasets.asnq.selection import select_negatives
from pyterrier_cascade.datasets.asnq.squad_shaped import SquadShaped

__all__ = [
    "Asnq",
    "AsnqLike",
    "NaturalQuestions",
    "SquadShaped",
    "build",
    "count_labels",
    "label_table",
    "select_negatives",
]
