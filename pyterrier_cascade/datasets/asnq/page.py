"""The product of the builder: pages cut into sentences, and for every question one label per sentence."""

import json
from collections.abc import Iterable
from typing import NamedTuple

from pyterrier_cascade.datasets.asnq.lines import parse_json

ANSWER = 4
NEGATIVES = (1, 2, 3)
LABELS = (*NEGATIVES, ANSWER)
DIGITS = frozenset(map(str, LABELS))


class Asked(NamedTuple):
    """A question and its labels: one digit, 1 to 4, for each sentence of the page."""

    qid: str
    query: str
    labels: str


class Page(NamedTuple):
    """A document and what is asked about it.

    Args:
        name: Its identifier; the ``docno`` of its sentence i is ``<name>-<i>``.
        part: ``train`` or ``dev``.
        sentences: Its text.
        questions: Those with labels for these sentences.
        article: What it is about: pages of one article are never divided between dev and test.
    """

    name: str
    part: str
    sentences: list[str]
    questions: list[Asked]
    article: str

    def to_line(self) -> str:
        """Returns the page as one line of JSON; ASCII, so that text with lone surrogates survives too."""
        return json.dumps(self, separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, where: str, line: str) -> "Page":
        """Returns the page that :meth:`to_line` wrote.

        Raises:
            ValueError: If it did not; the message starts with ``where``.
        """
        value = parse_json(where, line)
        try:
            name, part, sentences, asked, article = value
            page = cls(name, part, sentences, [Asked(*question) for question in asked], article)
            whole = all(
                len(question.labels) == len(sentences) and set(question.labels) <= DIGITS for question in page.questions
            )
        except (TypeError, ValueError) as err:
            raise ValueError(f"{where}: not a page of a built folder ({err}); build it again") from err
        if not whole:
            raise ValueError(
                f"{where}: not a page of a built folder (labels are missing or none of 1, 2, 3, 4); build it again"
            )
        return page


def label(in_long_answer: bool, has_short_answer: bool) -> int:
    """Returns the label of a sentence by TA-10's table: 1 neither, 2 short answer only, 3 long answer only, 4 both."""
    return 1 + has_short_answer + 2 * in_long_answer


class Answers:
    """Tells whether a text contains one of the short answers.

    Args:
        texts: The answers; those without any text are left out.
        casefold: Whether ``Paris`` counts as ``paris``; exact by default (TA-10).
    """

    def __init__(self, texts: Iterable[str], casefold: bool = False):
        """Removes what is said twice."""
        self.casefold = casefold
        self.texts = sorted({self._fold(text.strip()) for text in texts} - {""})

    def __bool__(self):
        """Whether there is any answer."""
        return bool(self.texts)

    def within(self, sentence: str) -> bool:
        """Returns whether the sentence contains an answer, if only as a part of a word."""
        sentence = self._fold(sentence)
        return any(text in sentence for text in self.texts)

    def _fold(self, text: str) -> str:
        return text.casefold() if self.casefold else text
