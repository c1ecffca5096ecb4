"""Documents from dictionaries, checked before they are indexed."""

from collections import Counter
from collections.abc import Iterable, Mapping

from pyterrier_cascade.checks import listed


def read_docs(docs: Iterable[Mapping[str, str]]) -> tuple[list[str], list[str]]:
    """Returns the docnos and the texts of an iterable of dictionaries.

    Raises:
        KeyError: If a dictionary has no ``docno`` or no ``text``.
        ValueError: If there are no documents, a document is no dictionary, a field is no string, or a docno is empty or
            occurs more than once.
    """
    docnos, texts = [], []
    for number, doc in enumerate(docs):
        docnos.append(_field(doc, "docno", number))
        texts.append(_field(doc, "text", number))
    if not docnos:
        raise ValueError("there are no documents to index; give at least one dictionary with a docno and a text")
    if "" in docnos:
        raise ValueError(f"document {docnos.index('')} has an empty docno; give each document a name")
    if len(set(docnos)) < len(docnos):
        repeated = [docno for docno, count in Counter(docnos).items() if count > 1]
        raise ValueError(
            f"{listed(repeated, 'docno')} given to more than one document; drop or rename the repeated ones"
        )
    return docnos, texts


def _field(doc: Mapping[str, str], field: str, number: int) -> str:
    try:
        value = doc[field]
    except KeyError:
        raise KeyError(f"document {number} has no {field!r}, only {', '.join(map(repr, doc))}") from None
    except (TypeError, IndexError):
        raise ValueError(f"document {number} is {doc!r}, not a dictionary; BM25.from_frame takes a frame") from None
    if not isinstance(value, str):
        raise ValueError(f"the {field} of document {number} is {value!r} ({type(value).__name__}), not a str")
    return value
