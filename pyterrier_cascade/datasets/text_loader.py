"""A transformer that adds the texts of documents."""

from collections.abc import Sequence

import pandas as pd
import pyterrier as pt

from pyterrier_cascade.checks import listed
from pyterrier_cascade.datasets.collection import Collection


class TextLoader(pt.Transformer):
    """Adds the text of each row's ``docno``, as ``pt.text.get_text(dataset)`` does for any data set.

    Rows, order, index and the other columns stay; a column of the same name is replaced. The loader holds the
    description of a collection and no text, so it pickles in a few hundred bytes.

    Args:
        collection: The collection that has the documents.
        fields: The columns to add, ``"*"`` for all that the collection has.
    """

    def __init__(self, collection: Collection, fields: Sequence[str] | str = "*"):
        super().__init__()
        self.collection = collection
        self.fields = _checked_fields(collection, fields)

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the rows with the fields added.

        Raises:
            KeyError: If a ``docno`` is not in the collection.
        """
        pt.validate.columns(inp, includes=["docno"], context=self)
        if inp.empty:
            return inp.assign(**{field: pd.Series(dtype=str) for field in self.fields})
        documents = self.collection.documents()
        positions = documents.index.get_indexer(inp["docno"])
        if (positions < 0).any():
            unknown = inp["docno"][positions < 0].unique()
            raise KeyError(
                f"{listed(unknown, 'docno')} not in as2:{self.collection.name}; were these rows retrieved from "
                f"another corpus?"
            )
        return inp.assign(**{field: documents[field].array.take(positions) for field in self.fields})

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """Returns the cutoff followed by this loader, which then has fewer rows to look up."""
        return pt.RankCutoff(k) >> self

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the drawing of the loader."""
        return {
            "label": "TextLoader",
            "settings": {"dataset": f"as2:{self.collection.name}", "fields": list(self.fields)},
            "help_url": "https://pyterrier.readthedocs.io/en/latest/text.html",
        }

    def subtransformers(self) -> dict:
        """Returns nothing: the loader contains no other transformers."""
        return {}

    def __eq__(self, other):
        return type(other) is type(self) and (other.collection, other.fields) == (self.collection, self.fields)

    def __hash__(self):
        return hash((self.collection, self.fields))

    def __repr__(self):
        return f"TextLoader({self.collection!r}, {list(self.fields)})"


def _checked_fields(collection: Collection, fields: Sequence[str] | str) -> tuple[str, ...]:
    known = collection.text_fields
    chosen = known if fields == "*" else (fields,) if isinstance(fields, str) else tuple(fields)
    unknown = [field for field in chosen if field not in known]
    if unknown or not chosen:
        raise ValueError(f"as2:{collection.name} has no fields {unknown}; choose among {list(known)} or '*'")
    return chosen
