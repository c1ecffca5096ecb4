"""Reading SQuAD-shaped files as labelled sentences, for an ASNQ-like set where ASNQ itself is not available."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.datasets.asnq.built_folder import LabelledQuestion, Page
from pyterrier_cascade.datasets.asnq.labelling import ShortAnswers, label, sentence_spans
from pyterrier_cascade.datasets.asnq.natural_questions import source_files
from pyterrier_cascade.datasets.asnq.selection import draw
from pyterrier_cascade.forks import cached_property
from pyterrier_cascade.text_files import read_json, refusing_other_shapes

MATCHES = ("text", "offsets")
Span = tuple[int, int]


class Article(NamedTuple):
    """An article: its name, which is unique among the files, its title, and its content in the shape of SQuAD."""

    name: str
    title: str
    content: dict


class ParagraphSentence(NamedTuple):
    """A sentence: its text, the number of its paragraph, and its start and end in that paragraph."""

    text: str
    paragraph: int
    span: Span


@dataclass(frozen=True)
class SquadShaped:
    """Files in SQuAD's shape as a source of labelled sentences, after ASNQ's recipe (TA-10).

    The document is the article, the long answer is the paragraph that the question was written for, and the short
    answers are all annotated answers. The label is 1 + (contains a short answer) + 2 x (is in the long answer). No
    sentence contains an answer that spans two sentences, so with ``match="text"`` some questions have no answer
    sentence. Questions that are marked ``is_impossible`` or have no answers are left out.

    Train and dev share no article, whichever file it is in: some titles are drawn for dev.

    Args:
        paths: The files, plain or gzipped, or a folder of them.
        held_out: The fraction of the articles that become dev, rounded up to whole articles.
        seed: The seed by which the articles for dev are drawn.
        match: With ``"text"``, a sentence of the long answer has label 4 if it contains an answer. With ``"offsets"``,
            it has label 4 only if it overlaps an annotated place, as in the Natural Questions; use this where
            ``answer_start`` is more than the first occurrence of the answer.
        casefold: Whether upper and lower case make no difference when a sentence is searched for an answer.
    """

    paths: Sequence[str] | str
    held_out: float = 0.1
    seed: int = 0
    match: str = "text"
    casefold: bool = False

    halve_by: ClassVar[str] = "page"
    records_per_shard: ClassVar[int] = 8

    def __post_init__(self):
        object.__setattr__(self, "paths", source_files(self.paths, ".json"))
        names = [_stem(path) for path in self.paths]
        if len(set(names)) < len(names):
            raise ValueError(
                f"two files of one name among {', '.join(self.paths)}; sentences are named after their file: rename one"
            )
        if not 0 <= self.held_out <= 1:
            raise ValueError(f"held_out={self.held_out}; it is the fraction of the articles for dev, from 0 to 1")
        check_choices(match=(self.match, MATCHES))

    def files(self) -> list[tuple[str, str]]:
        """Returns each file after its part, which depends on the article."""
        return [("train and dev", path) for path in self.paths]

    def settings(self) -> dict[str, Any]:
        """Returns the settings that change the labels and the parts; the plan of a build records them."""
        names = ("held_out", "seed", "match", "casefold")
        return {"source": "squad-shaped", "halve_by": self.halve_by, **{name: getattr(self, name) for name in names}}

    def records(self, number: int) -> Iterator[tuple[str, Article]]:
        """Yields the articles of one file after their places; the file is read as a whole."""
        return articles(self.paths[number])

    def page(self, number: int, where: str, record: Article) -> Page:
        """Returns an article with all its questions.

        Raises:
            ValueError: If it does not have SQuAD's shape, or (``match="offsets"``) an answer is not at its place.
        """
        with refusing_other_shapes(f"{where}: not an article in the shape of SQuAD"):
            paragraphs = record.content["paragraphs"]
            sentences = [
                ParagraphSentence(paragraph["context"][start:end], number, (start, end))
                for number, paragraph in enumerate(paragraphs)
                for start, end in sentence_spans(paragraph["context"])
            ]
            questions = [
                self._labelled(where, sentences, number, paragraph["context"], question)
                for number, paragraph in enumerate(paragraphs)
                for question in paragraph["qas"]
                if question.get("answers") and not question.get("is_impossible", False)
            ]
        part = "dev" if record.title in self._dev_titles else "train"
        return Page(record.name, part, [sentence.text for sentence in sentences], questions, record.title)

    def _labelled(
        self, where: str, sentences: list[ParagraphSentence], gold: int, context: str, question: dict
    ) -> LabelledQuestion:
        answers = ShortAnswers((answer["text"] for answer in question["answers"]), self.casefold)
        places = _places(where, context, question) if self.match == "offsets" else None
        labels = "".join(str(_label(sentence, gold, answers, places)) for sentence in sentences)
        return LabelledQuestion(str(question["id"]), question["question"], labels)

    @cached_property
    def _dev_titles(self) -> frozenset[str]:
        titles = {article.title for path in self.paths for _, article in articles(path)}
        return frozenset(draw(titles, self.seed)[: math.ceil(round(self.held_out * len(titles), 9))])


def articles(path: str) -> Iterator[tuple[str, Article]]:
    """Yields the articles of a SQuAD-shaped file after their places (``file, article 3``).

    Raises:
        ValueError: If the file is damaged or has another shape.
    """
    record = read_json(path)
    with refusing_other_shapes(f"{path}: not 'data', a list of articles, as in SQuAD"):
        for number, content in enumerate(record["data"]):
            name = f"{_stem(path)}-{number}"
            # Some files write "Super_Bowl_50" and some "Super Bowl 50"; an article without a title takes its own name.
            title = str(content.get("title") or name).replace("_", " ").strip()
            yield f"{path}, article {number}", Article(name, title, content)


def _stem(path: str) -> str:
    return Path(path).name.removesuffix(".gz").removesuffix(".json")


def _places(where: str, context: str, question: dict) -> list[Span]:
    places = [(a["answer_start"], a["answer_start"] + len(a["text"])) for a in question["answers"]]
    for (start, end), answer in zip(places, question["answers"], strict=True):
        if context[start:end] != answer["text"]:
            raise ValueError(
                f"{where}, question {question['id']}: {answer['text']!r} is not at its answer_start {start}, where "
                f"{context[start:end]!r} is; use match='text'"
            )
    return places


def _label(sentence: ParagraphSentence, gold: int, answers: ShortAnswers, places: list[Span] | None) -> int:
    in_long = sentence.paragraph == gold
    if in_long and places is not None:
        return label(True, any(start < sentence.span[1] and end > sentence.span[0] for start, end in places))
    return label(in_long, answers.within(sentence.text))
