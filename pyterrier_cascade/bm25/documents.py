"""Documents from dictionaries, checked at the door."""

from collections import Counter


def read_docs(docs):
    """The docnos and texts of an iterable of dictionaries, as two lists."""
    docnos, texts = [], []
    for number, doc in enumerate(docs):
        docnos.append(_field(doc, "docno", number))
        texts.append(_field(doc, "text", number))
    if not docnos:
        raise ValueError("there are no documents to index")
    if "" in docnos:
        raise ValueError(f"document {docnos.index('')} has an empty docno")
    if len(set(docnos)) < len(docnos):
        repeated = [docno for docno, count in Counter(docnos).items() if count > 1]
        raise ValueError(f"{named(repeated)} given to more than one document; drop or rename the repeated ones")
    return docnos, texts


def named(docnos):
    """Up to five of the docnos and how many there are, for an error."""
    names = ", ".join(repr(docno) for docno in docnos[:5])
    return f"docno {names}" if len(docnos) == 1 else f"{len(docnos)} docnos ({names}{', ...' * (len(docnos) > 5)})"


def _field(doc, field, number):
    try:
        value = doc[field]
    except KeyError:
        raise KeyError(f"document {number} has no {field!r}, only {', '.join(map(repr, doc))}") from None
    except (TypeError, IndexError):
        raise ValueError(f"document {number} is {doc!r}, not a dictionary; BM25.from_frame takes a frame") from None
    if not isinstance(value, str):
        raise ValueError(f"the {field} of document {number} is {value!r} ({type(value).__name__}), not a str")
    return value
