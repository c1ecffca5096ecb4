"""Transformers for given documents of a BM25 index: one adds their scores, the other their texts."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade.frames import Blocks
from pyterrier_cascade.ranker import Ranker
from pyterrier_cascade.store.strings import column

if TYPE_CHECKING:
    from pyterrier_cascade.bm25.retriever import BM25


class BM25Scorer(Ranker):
    """Scores each query's own candidates (answer selection) with the statistics of an index.

    ``bm25.scorer()`` makes it. A candidate without a word of the query keeps its row, and its score is the formula's
    value for no match (0, except in bm25l and bm25+). A candidate that the index does not hold is a KeyError.

    Args:
        index: The :class:`BM25` that holds the candidates.
    """

    text_field = None

    def __init__(self, index: "BM25"):
        self.index = index

    def score(self, frame: pd.DataFrame, blocks: Blocks) -> dict[str, np.ndarray]:
        """Returns the score of each row, ``(n_rows,)``; rows with the same query are scored together."""
        index = self.index._index
        docs = index.doc_numbers(frame["docno"])
        codes, words = index.words(frame["query"])
        scores = np.empty(len(frame), dtype=np.float64)
        order = np.argsort(codes, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            scores[rows] = index.scores(words[codes[rows[0]]])[docs[rows]]
        return {"score": scores}

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the drawing of the scorer."""
        return {**self.index.schematic(), "label": "BM25 scorer"}

    def __hash__(self):
        return hash((type(self), self.index))

    def __repr__(self):
        return f"{self.index!r}.scorer()"


class BM25TextLoader(pt.Transformer):
    """Adds the ``text`` of each document of an index.

    ``bm25.text_loader()`` and ``pt.text.get_text(bm25)`` make it.

    Args:
        index: The :class:`BM25` that holds the documents.
        fields: ``"text"`` or ``"*"``; an index keeps no other field.
    """

    def __init__(self, index: "BM25", fields: str | Iterable[str] = "*"):
        unknown = set([fields] if isinstance(fields, str) else fields) - {"*", "text", "docno"}
        if unknown:
            raise ValueError(f"a BM25 index keeps the field 'text', not {sorted(unknown)}")
        self.index = index
        self.fields = fields

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns any frame with a ``docno`` with the column ``text`` added; the rows stay as they are."""
        pt.validate.columns(inp, includes=["docno"], context=self)
        index = self.index._index
        texts = index.texts.take(index.doc_numbers(inp["docno"])) if len(inp) else []
        return inp.assign(text=column(texts).set_axis(inp.index))

    def subtransformers(self) -> dict:
        """Returns nothing: the index is no part of the pipeline."""
        return {}

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the drawing of the loader."""
        return {**self.index.schematic(), "label": "Text of BM25"}

    def __eq__(self, other):
        return self.index == other.index if isinstance(other, BM25TextLoader) else NotImplemented

    def __hash__(self):
        return hash((type(self), self.index))

    def __repr__(self):
        return f"{self.index!r}.text_loader()"
