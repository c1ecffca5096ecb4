"""The documents that a user gives: a data frame, dictionaries, or a data set."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pandas as pd

Document = tuple[str, str]
"""A docno and a text."""


def refuse_string(given: object, wanted: str) -> None:
    """Raises a TypeError for a text, which is a sequence of letters, where a list is wanted.

    Args:
        given: What the user gave.
        wanted: What to give, such as ``"a list of docnos: ['d1', 'd2']"``.
    """
    if isinstance(given, str | bytes):
        raise TypeError(f"{given!r} is a single text; give {wanted}")


def documents_of(corpus: Any) -> Iterable[Mapping[str, Any]]:
    """Returns the documents of a corpus as dictionaries.

    Args:
        corpus: A data frame with a row for each document, an iterable of dictionaries, or a data set with
            ``get_corpus_iter``.
    """
    refuse_string(corpus, "a list of dictionaries with docno and text, a data frame, or a data set")
    if isinstance(corpus, Mapping):
        raise TypeError(f"{corpus!r} is a single document; give a list of documents: [{{'docno': ..., 'text': ...}}]")
    if isinstance(corpus, pd.DataFrame):
        return _Rows(corpus)
    if hasattr(corpus, "get_corpus_iter"):
        return corpus.get_corpus_iter(verbose=False)
    if not isinstance(corpus, Iterable):
        raise TypeError(f"{corpus!r} is no corpus; give a list of dictionaries, a data frame, or a data set")
    return corpus


class _Rows:
    """The rows of a data frame as dictionaries, made one at a time."""

    def __init__(self, frame: pd.DataFrame):
        self.frame = frame

    def __len__(self):
        return len(self.frame)

    def __iter__(self):
        names = self.frame.columns.tolist()
        columns = [self.frame[name].tolist() for name in names]
        return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def checked(documents: Iterable[Mapping[str, Any]], text_field: str) -> Iterator[Document]:
    """Yields docno and text of each document, both checked.

    Args:
        documents: Dictionaries.
        text_field: The field with the text.
    """
    for number, document in enumerate(documents):
        if not isinstance(document, Mapping):
            raise ValueError(f"document {number} is {document!r}, not a dictionary")
        for field in ("docno", text_field):
            if field not in document:
                raise KeyError(f"document {number} has no {field!r}, only {', '.join(map(repr, document))}")
            value = document[field]
            if not isinstance(value, str):
                raise ValueError(f"the {field} of document {number} is {value!r} ({type(value).__name__}), not a str")
        if not document["docno"]:
            raise ValueError(f"document {number} has an empty docno")
        yield document["docno"], document[text_field]


def chunks(documents: Iterator[Document], size: int) -> Iterator[list[Document]]:
    """Yields lists of documents, all of one size but the last.

    Args:
        documents: The documents.
        size: The documents of a list.
    """
    while chunk := list(islice(documents, size)):
        yield chunk


def some(docnos: Iterable[str]) -> str:
    """Returns a few names as an error shows them: ``'d1', 'd2' and 7 more``."""
    names = list(dict.fromkeys(docnos))
    more = f" and {len(names) - 3} more" * (len(names) > 3)
    return ", ".join(map(repr, names[:3])) + more


def given_twice(docnos: Sequence[str], details: str) -> ValueError:
    """Returns the error for documents of a corpus that share a docno.

    Args:
        docnos: The docnos.
        details: Where they were given, and what to do.
    """
    more = f" and {len(docnos) - 1} more docnos" * (len(docnos) > 1)
    return ValueError(f"docno {docnos[0]!r}{more} given to more than one document{details}")
