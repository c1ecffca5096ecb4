"""Names for the sentences of data sets that have none."""

import hashlib
from collections import Counter
from collections.abc import Iterable


def hashed_docnos(texts: Iterable[str], digits: int, suffix: str = "") -> list[str]:
    """Returns a name for each sentence of a question: a hash of its text, and a count where the text is repeated.

    The names do not depend on the order of the sentences. Files often list correct answers first, and names in that
    order would decide ties in favour of the correct ones.

    Args:
        texts: The sentences of one question.
        digits: The number of hexadecimal digits of the hash.
        suffix: A text that follows each hash.
    """
    seen: Counter[str] = Counter()
    docnos = []
    for text in texts:
        seen[text] += 1
        repeated = f"-{seen[text]}" if seen[text] > 1 else ""
        docnos.append(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:digits] + suffix + repeated)
    return docnos
