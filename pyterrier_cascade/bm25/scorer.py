"""Transformers that answer for given documents of an index: their scores, their texts."""

import numpy as np
import pyterrier as pt

from pyterrier_cascade.ranker import Ranker
from pyterrier_cascade.store.strings import column


class BM25Scorer(Ranker):
    """Scores each query's own candidates (answer selection) with the statistics of an index; made by ``bm25.scorer()``.

    A candidate without a word of the query keeps its row and scores what the formula gives for none (0, save for
    bm25l and bm25+). A candidate that the index does not hold is a KeyError.

    Args:
        index: the :class:`BM25` that holds the candidates.
    """

    text_field = None

    def __init__(self, index):
        """Takes the index as it is."""
        self.index = index

    def score(self, frame, blocks):
        """The score of each row; rows with the same query are scored together."""
        index = self.index._index
        docs = index.positions(frame["docno"])
        codes, words = index.words(frame["query"])
        scores = np.empty(len(frame), dtype=np.float64)
        order = np.argsort(codes, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            scores[rows] = index.scores(words[codes[rows[0]]])[docs[rows]]
        return {"score": scores}

    def schematic(self, *, input_columns=None):
        """How PyTerrier draws it."""
        return {**self.index.schematic(), "label": "BM25 scorer"}

    def __hash__(self):
        """Equal scorers hash alike."""
        return hash((type(self), self.index))

    def __repr__(self):
        """Can be typed back in where the index can."""
        return f"{self.index!r}.scorer()"


class BM25TextLoader(pt.Transformer):
    """Adds the ``text`` of each document of an index; made by ``bm25.text_loader()`` or ``pt.text.get_text(bm25)``.

    Args:
        index: the :class:`BM25` that holds the documents.
        fields: 'text' or '*'; an index keeps nothing else.
    """

    def __init__(self, index, fields="*"):
        """Checks the fields."""
        unknown = set([fields] if isinstance(fields, str) else fields) - {"*", "text", "docno"}
        if unknown:
            raise ValueError(f"a BM25 index keeps the field 'text', not {sorted(unknown)}")
        self.index = index
        self.fields = fields

    def transform(self, inp):
        """Adds the column ``text`` to any frame with ``docno``; rows stay as they are."""
        pt.validate.columns(inp, includes=["docno"], context=self)
        index = self.index._index
        texts = index.texts.take(index.positions(inp["docno"])) if len(inp) else []
        return inp.assign(text=column(texts).set_axis(inp.index))

    def subtransformers(self):
        """None: the index is no part of the pipeline."""
        return {}

    def schematic(self, *, input_columns=None):
        """How PyTerrier draws it."""
        return {**self.index.schematic(), "label": "Text of BM25"}

    def __eq__(self, other):
        """Whether the indexes are equal."""
        return self.index == other.index if isinstance(other, BM25TextLoader) else NotImplemented

    def __hash__(self):
        """Equal loaders hash alike."""
        return hash((type(self), self.index))

    def __repr__(self):
        """Can be typed back in where the index can."""
        return f"{self.index!r}.text_loader()"
