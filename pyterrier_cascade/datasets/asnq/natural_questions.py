"""Reading the original Natural Questions as labelled sentences, as TANDA's section on ASNQ describes (TA-10)."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pyterrier_cascade.datasets.asnq.built_folder import LabelledQuestion, Page
from pyterrier_cascade.datasets.asnq.labelling import ShortAnswers, label, sentence_spans
from pyterrier_cascade.text_files import numbered_lines, parse_json, refusing_other_shapes

# A single cell ("11.44") makes no sense alone, so a table's row is cut into sentences like a paragraph: the tags of its
# cells do not end a text, and all other tags do.
CELL = re.compile(r"</?T[dh](?:[\s_>].*)?", re.DOTALL)
TAG = re.compile(r"</?[A-Z]\w*(?:[\s_][^>]*)?>")

Span = tuple[int, int]


class Token(NamedTuple):
    """A word of a page, or an HTML tag."""

    text: str
    is_html: bool


class TextBetweenTags(NamedTuple):
    """Words of a page that no tag parts.

    Args:
        text: The words, joined by blanks.
        starts: The position of each word in ``text``.
        numbers: The number of each word among the tokens of the page.
    """

    text: str
    starts: list[int]
    numbers: list[int]


@dataclass(frozen=True)
class NaturalQuestions:
    """The files of the Natural Questions (v1.0, JSON lines, plain or gzipped) as a source of labelled sentences.

    A sentence has label 4 if it is in a long answer and shares a word with an annotated short answer. It has label 3 if
    it is in a long answer but shares no word with an annotated short answer, even where it happens to contain the same
    words. It has label 2 if it is outside and contains the words of a short answer, and label 1 otherwise (TA-10).

    The answers of several annotators are united: a question counts as soon as one of them gave both kinds of answer.
    The official question list has such a question, which one of five annotators answered. Questions without a long or
    a short answer are left out, and so are those that are answered by yes or no.

    Args:
        train: The train files, or the folder of these files.
        dev: The dev files, or their folder.
        casefold: Whether upper and lower case make no difference for label 2.
    """

    train: Sequence[str] | str = ()
    dev: Sequence[str] | str = ()
    casefold: bool = False

    halve_by: ClassVar[str] = "question"
    records_per_shard: ClassVar[int] = 1000

    def __post_init__(self):
        for part in ("train", "dev"):
            object.__setattr__(self, part, source_files(getattr(self, part), ".jsonl"))

    def files(self) -> list[tuple[str, str]]:
        """Returns each file after its part, ``train`` or ``dev``."""
        return [("train", path) for path in self.train] + [("dev", path) for path in self.dev]

    def settings(self) -> dict[str, Any]:
        """Returns the settings that change the labels; the plan of a build records them."""
        return {"source": "natural-questions", "halve_by": self.halve_by, "casefold": self.casefold}

    def records(self, number: int) -> Iterator[tuple[str, str]]:
        """Yields the unparsed lines of one file after their places."""
        return numbered_lines(self.files()[number][1])

    def page(self, number: int, where: str, record: str) -> Page | None:
        """Returns the page of a line, or None for a question that is left out.

        Raises:
            ValueError: If the line is not a question of the Natural Questions.
        """
        return question_page(where, parse_json(where, record), self.files()[number][0], self.casefold)


def question_page(where: str, record: dict, part: str, casefold: bool = False) -> Page | None:
    """Returns the page of one question with a label for every sentence, or None without a long or a short answer.

    Raises:
        ValueError: If the record is not a question of the Natural Questions; the message starts with ``where``.
    """
    with refusing_other_shapes(f"{where}: not a question of the original Natural Questions"):
        long, short = _answer_spans(record["annotations"])
        if not long or not short:
            return None
        tokens = _tokens(record)
        _check_spans(where, [*long, *short], len(tokens))
        answers = ShortAnswers((_words(tokens[start:end]) for start, end in short), casefold)
        sentences, labels = _labelled(tokens, long, short, answers)
        qid, query = str(record["example_id"]), record["question_text"]
    return Page(qid, part, sentences, [LabelledQuestion(qid, query, labels)], qid) if answers else None


def source_files(paths: Sequence[str | Path] | str | Path, suffix: str) -> tuple[str, ...]:
    """Returns the files that a user names, as a list or by their folder; those of a folder in order of name.

    Args:
        paths: Files, plain or gzipped, and folders.
        suffix: The ending of the files that are taken from a folder, such as ``".jsonl"``.

    Raises:
        FileNotFoundError: If a file does not exist, or no folder has such a file.
    """
    listed = [Path(path).expanduser() for path in ([paths] if isinstance(paths, str | Path) else paths)]
    # These patterns leave out the backup files of editors, such as dev.json~.
    own = {path: sorted([*path.glob(f"*{suffix}"), *path.glob(f"*{suffix}.gz")]) for path in listed if path.is_dir()}
    found = tuple(str(one) for path in listed for one in own.get(path, [path]))
    missing = [path for path in found if not Path(path).is_file()]
    if missing or (listed and not found):
        pattern = f"*{suffix}*"
        named = missing[0] if missing else f"{listed[0]}{'/' + pattern}"
        raise FileNotFoundError(f"there is no file {named}; name existing files, or a folder of {pattern}")
    return found


def _answer_spans(annotations: list[dict]) -> tuple[list[Span], list[Span]]:
    long = [_span(annotation["long_answer"]) for annotation in annotations]
    short = [_span(answer) for annotation in annotations for answer in annotation["short_answers"]]
    return [span for span in long if span[0] >= 0], [span for span in short if span[0] >= 0]


def _span(answer: dict) -> Span:
    return answer["start_token"], answer["end_token"]


def _check_spans(where: str, spans: list[Span], n_tokens: int) -> None:
    for start, end in spans:
        if not start < end <= n_tokens:
            raise ValueError(f"{where}: an answer spans the tokens {start} to {end}, but the page has {n_tokens}")


def _tokens(record: dict) -> list[Token]:
    if "document_tokens" in record:
        return [Token(token["token"], token["html_token"]) for token in record["document_tokens"]]
    # The simplified release has the same tokens in one string.
    return [Token(text, TAG.fullmatch(text) is not None) for text in record["document_text"].split(" ")]


def _words(tokens: list[Token]) -> str:
    return " ".join(token.text for token in tokens if not token.is_html)


def _texts_between_tags(tokens: list[Token]) -> Iterator[TextBetweenTags]:
    numbers: list[int] = []
    for number, token in enumerate(chain(tokens, [Token("", True)])):
        if not token.is_html:
            numbers.append(number)
        elif numbers and not CELL.fullmatch(token.text):
            words = [tokens[n].text for n in numbers]
            lengths = accumulate((len(word) + 1 for word in words), initial=0)
            yield TextBetweenTags(" ".join(words), list(lengths)[:-1], numbers)
            numbers = []


def _labelled(tokens: list[Token], long: list[Span], short: list[Span], answers: ShortAnswers) -> tuple[list[str], str]:
    sentences, labels = [], []
    for block in _texts_between_tags(tokens):
        for start, end in sentence_spans(block.text):
            first, stop = bisect_left(block.starts, start), bisect_left(block.starts, end)
            numbers = block.numbers[first:stop]
            sentences.append(block.text[start:end])
            inside = _shares(numbers, long)
            # Inside, only the annotated place counts; outside, the same words are there by accident.
            labels.append(label(inside, _shares(numbers, short) if inside else answers.within(sentences[-1])))
    return sentences, "".join(map(str, labels))


def _shares(numbers: list[int], spans: list[Span]) -> bool:
    return any(start <= number < end for start, end in spans for number in numbers)
