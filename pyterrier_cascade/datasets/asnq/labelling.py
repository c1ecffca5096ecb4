"""The four labels of ASNQ (TA-10): cutting text into sentences, labelling them, and counting the labels."""

import re
from collections.abc import Iterable, Iterator, Mapping

import pandas as pd

ANSWER = 4
NEGATIVES = (1, 2, 3)
LABELS = (*NEGATIVES, ANSWER)
DIGITS = frozenset(map(str, LABELS))
MEANING = {1: ("no", "no"), 2: ("no", "yes"), 3: ("yes", "no"), 4: ("yes", "yes")}
"""For each label, whether the sentence is in the long answer and whether it has a short answer."""

# An end mark, then closing quotes and brackets, which tokenised text sets apart, before the gap to the next sentence.
END = re.compile(r"[.!?]+(?:\s?(?:''|[\"'\u201d\u2019)\]]))*(?=\s)")
NEXT = re.compile(r"\s+(?:``|''|[\"'\u201c\u2018(\[])?\s?(\w)")
# An initial ("J. Smith", "U.S. Army") or a usual abbreviation before a name or a number.
ABBREVIATION = re.compile(
    r"\b(?:[A-Z]|Mrs?|Ms|Dr|Prof|Rev|Hon|St|Mt|Ft|[JS]r|Gen|Col|Lt|Capt|Sgt|Maj|Adm|Gov|Sen|Rep|Pres|Nos?|[Vv]ol|[Ff]ig"
    r"|vs|etc|eg|ie|cf|ca|approx|Inc|Ltd|Co|Corp|Bros|pp)$"
)


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of each sentence of a text, without the white space between sentences.

    A sentence ends after ``.``, ``!`` or ``?`` if the next word starts with a capital or a digit; the full stop of an
    initial or of a usual abbreviation ends no sentence. Nothing but white space lies outside the spans. The paper does
    not name its splitter (TA-11); this one is plain and always gives the same result.
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


def label(in_long_answer: bool, has_short_answer: bool) -> int:
    """Returns the label of a sentence by TA-10's table: 1 neither, 2 short answer only, 3 long answer only, 4 both."""
    return 1 + has_short_answer + 2 * in_long_answer


class ShortAnswers:
    """The short answers of a question, and whether a text contains one of them.

    Args:
        texts: The answers; those without any text are left out.
        casefold: Whether ``Paris`` counts as ``paris``; by default it does not (TA-10).
    """

    def __init__(self, texts: Iterable[str], casefold: bool = False):
        self.casefold = casefold
        self.texts = sorted({self._fold(text.strip()) for text in texts} - {""})

    def __bool__(self):
        return bool(self.texts)

    def within(self, sentence: str) -> bool:
        """Returns whether the sentence contains an answer, if only as a part of a word."""
        sentence = self._fold(sentence)
        return any(text in sentence for text in self.texts)

    def _fold(self, text: str) -> str:
        return text.casefold() if self.casefold else text


def label_table(counts: Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """Returns TANDA's table of ASNQ: a row for each label, then all pairs and the questions; a column for each part.

    Args:
        counts: For each part the number of ``questions`` and of pairs with the labels ``"1"`` to ``"4"``.
    """
    rows = [
        [str(label), *MEANING[label], *(counter.get(str(label), 0) for counter in counts.values())] for label in LABELS
    ]
    rows.append(["pairs", "", "", *(sum(counter.get(str(n), 0) for n in LABELS) for counter in counts.values())])
    rows.append(["questions", "", "", *(counter.get("questions", 0) for counter in counts.values())])
    columns = ["label", "in long answer", "has short answer", *counts]
    return pd.DataFrame(rows, columns=columns).set_index("label")


def count_labels(candidates: pd.DataFrame) -> dict[str, int]:
    """Returns the number of ``questions`` and of pairs with each label of a frame with ``asnq_label``."""
    labels = candidates["asnq_label"].value_counts()
    return {"questions": candidates["qid"].nunique(), **{str(label): int(labels.get(label, 0)) for label in LABELS}}


def table_text(table: pd.DataFrame) -> str:
    """Returns a table of counts as text, with commas between the thousands."""
    return table.map(lambda value: value if isinstance(value, str) else f"{value:,}").to_string()
