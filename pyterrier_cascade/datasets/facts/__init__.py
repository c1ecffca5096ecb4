"""``as2:facts``, our own generated data set.

``dataset`` makes it a data set, ``generator`` its questions and candidate lists, ``world`` the invented entities and
``sentences`` the text about them; ``wordings`` and ``names`` are long lists of words and nothing else.
"""

from pyterrier_cascade.datasets.facts.dataset import GeneratedFacts

__all__ = ["GeneratedFacts"]
