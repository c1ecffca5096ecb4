"""The folder that :func:`build` fills: shards of labelled pages, and a manifest that is written last.

Each file is there whole or not at all, so a folder with a manifest is complete. The manifest has a seal and the
checksum of each shard, which is compared when the shard is read.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyterrier_cascade.datasets.asnq.labelling import DIGITS
from pyterrier_cascade.store import parts
from pyterrier_cascade.store.publish import (
    Damaged,
    publish_file,
    publishing_file,
    read_sealed,
    sealed,
    sha256,
    unsealed,
)
from pyterrier_cascade.text_files import numbered_lines, parse_json

PLAN = "plan.json"
MANIFEST = "manifest.json"
FORMAT = {"format": "asnq-like", "version": 3}
REMEDY = "copy the folder again, or delete it and build it again"

Counts = dict[str, Counter]


class LabelledQuestion(NamedTuple):
    """A question about a page, and its labels: one digit, 1 to 4, for each sentence of the page."""

    qid: str
    query: str
    labels: str


class Page(NamedTuple):
    """A document cut into sentences, with its questions.

    Args:
        name: The identifier of the page; the ``docno`` of its sentence i is ``<name>-<i>``.
        part: ``train`` or ``dev``.
        sentences: The text.
        questions: The questions, with labels for these sentences.
        article: The subject: pages of one article are never divided between dev and test.
    """

    name: str
    part: str
    sentences: list[str]
    questions: list[LabelledQuestion]
    article: str

    def to_line(self) -> str:
        """Returns the page as one line of JSON; it is ASCII, so that text with lone surrogates survives too."""
        return json.dumps(self, separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, where: str, line: str) -> "Page":
        """Returns the page that :meth:`to_line` wrote.

        Raises:
            ValueError: If the line is no such page; the message starts with ``where``.
        """
        value = parse_json(where, line)
        try:
            name, part, sentences, questions, article = value
            labelled = [LabelledQuestion(*question) for question in questions]
            if any(len(one.labels) != len(sentences) or not set(one.labels) <= DIGITS for one in labelled):
                raise ValueError("labels are missing or none of 1, 2, 3, 4")
        except (TypeError, ValueError) as err:
            raise ValueError(f"{where}: not a page of a built folder ({err}); build it again") from err
        return cls(name, part, sentences, labelled, article)


def add_page(counts: Counts, page: Page) -> None:
    """Adds a page to the counts, which hold for each part the number of ``questions`` and of pairs with each label."""
    counter = counts.setdefault(page.part, Counter())
    for question in page.questions:
        counter.update(question.labels)
    counter["questions"] += len(page.questions)


def total_counts(many: Iterable[Mapping[str, Mapping[str, int]]]) -> Counts:
    """Returns the sum of the counts of several shards."""
    counts: Counts = {}
    for one in many:
        for part, counter in one.items():
            counts.setdefault(part, Counter()).update(counter)
    return counts


def write_shard(path: Path, pages: Iterable[Page]) -> dict[str, Any]:
    """Writes pages one after the other and returns their entry in the manifest.

    The file appears when it is whole. The same pages give the same bytes.
    """
    counts: Counts = {}
    with (
        publishing_file(path) as unfinished,
        open(unfinished, "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as out,
    ):
        for page in pages:
            add_page(counts, page)
            out.write(page.to_line().encode("ascii"))
    return _entry(path, counts)


def describe_shard(path: Path) -> dict[str, Any]:
    """Returns the manifest's entry of a shard that exists; the shard is read from end to end."""
    counts: Counts = {}
    for page in read_shard(path):
        add_page(counts, page)
    return _entry(path, counts)


def read_shard(path: Path) -> Iterator[Page]:
    """Yields the pages of a shard.

    Raises:
        ValueError: If the shard is damaged.
    """
    return (Page.from_line(where, line) for where, line in numbered_lines(path))


def write_json(path: Path, fields: dict[str, Any]) -> None:
    """Writes fields as sealed JSON; the file appears when it is whole."""
    publish_file(path, sealed(fields))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a finished folder, and checks the sizes of its shards.

    Raises:
        FileNotFoundError: If the folder is not finished.
        Damaged: If the manifest is not what was written, or a shard is missing or does not have its size.
        ValueError: If the manifest is of another kind.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} is not a finished ASNQ-like folder: {MANIFEST}, which is written last, is missing; run the same "
            f"build again to complete it"
        )
    seen = {key: unsealed(path).get(key) for key in FORMAT}
    if None not in seen.values() and seen != FORMAT:
        there, wanted = (", ".join(f"{key} {one[key]!r}" for key in FORMAT) for one in (seen, FORMAT))
        raise ValueError(f"{path} has {there}; this version of the package reads {wanted}; build the folder again")
    manifest = read_sealed(path, REMEDY)
    if None in seen.values():
        raise Damaged(f"{str(path)!r} is damaged: it is no manifest; {REMEDY}")
    with parts.refusing_forgeries(folder, REMEDY):
        parts.check(folder, _files(manifest["shards"]), REMEDY, contents=False)
    return manifest


def _files(shards: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {shard["name"]: shard for shard in shards}


def pages_of(folder: Path, shard: Mapping[str, Any]) -> Iterator[Page]:
    """Yields the pages of a shard of a finished folder, after a comparison of its checksum.

    Args:
        folder: The folder.
        shard: The shard's entry in the manifest.

    Raises:
        Damaged: If the shard is not what was written.
    """
    parts.check(folder, _files([shard]), REMEDY)
    return read_shard(folder / shard["name"])


def describe(folder: Path) -> dict[str, Any]:
    """Returns the description that ``python -m pyterrier_cascade info`` prints: questions, and pairs by label."""
    if not (folder / MANIFEST).is_file():
        return {"kind": "transfer set", "complete": False}
    shards = read_manifest(folder)["shards"]
    found: dict[str, Any] = {"kind": "transfer set", "complete": True, "shards": len(shards)}
    for part, counter in total_counts(shard["counts"] for shard in shards).items():
        found[f"{part}_questions"] = counter.pop("questions")
        found[f"{part}_pairs_by_label"] = dict(sorted(counter.items()))
    return found


def _entry(path: Path, counts: Counts) -> dict[str, Any]:
    ordered = {part: dict(sorted(counter.items())) for part, counter in sorted(counts.items())}
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256(path), "counts": ordered}
