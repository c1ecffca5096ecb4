"""Cutting text into sentences. ASNQ's own splitter is not named (TA-11); this one is plain and always the same."""

import re
from collections.abc import Iterator

# An end mark, closing quotes and brackets (which tokenised text sets apart), and the gap before the next sentence.
END = re.compile(r"[.!?]+(?:\s?(?:''|[\"'\u201d\u2019)\]]))*(?=\s)")
NEXT = re.compile(r"\s+(?:``|''|[\"'\u201c\u2018(\[])?\s?(\w)")
# An initial ("J. Smith", "U.S. Army") or a usual abbreviation before a name or a number.
ABBREVIATION = re.compile(
    r"\b(?:[A-Z]|Mrs?|Ms|Dr|Prof|Rev|Hon|St|Mt|Ft|[JS]r|Gen|Col|Lt|Capt|Sgt|Maj|Adm|Gov|Sen|Rep|Pres|Nos?|[Vv]ol|[Ff]ig"
    r"|vs|etc|eg|ie|cf|ca|approx|Inc|Ltd|Co|Corp|Bros|pp)$"
)


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yields where each sentence of ``text`` starts and ends, without the white space between them.

    A sentence ends after ``.``, ``!`` or ``?`` if what follows starts with a capital or a digit; the full stop of an
    initial or of a usual abbreviation ends none. Nothing but white space lies outside the spans.
    """
    start = 0
    for match in END.finditer(text):
        if _ends(text, match):
            yield from _trimmed(text, start, match.end())
            start = match.end()
    yield from _trimmed(text, start, len(text))


def _ends(text: str, match: re.Match) -> bool:
    following = NEXT.match(text, match.end())
    if following is None or following[1].islower():
        return False
    return match[0] != "." or not ABBREVIATION.search(text, max(0, match.start() - 8), match.start())


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    piece = text[start:end]
    if stripped := piece.strip():
        begin = start + piece.index(stripped)
        yield begin, begin + len(stripped)
