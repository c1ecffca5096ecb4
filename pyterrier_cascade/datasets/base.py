"""Collections as PyTerrier data sets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_cascade.datasets.collection import Collection, LabelledCollection
from pyterrier_cascade.datasets.modes import Mode, keep_questions
from pyterrier_cascade.datasets.squad import SquadFile
from pyterrier_cascade.datasets.text_loader import TextLoader


class AS2Dataset(pt.datasets.Dataset):
    """What all data sets of this package share: a corpus, English, and being a value.

    Making one reads and downloads nothing. Its ``repr`` can be typed back in; it compares and pickles by it.
    """

    def __init__(self, collection: Collection):
        """Reads nothing."""
        self.collection = collection

    @property
    def name(self) -> str:
        """The full name, as in ``pt.get_dataset("as2:...")`` after the colon."""
        return self.collection.name

    def _configure(self, **options: Any) -> None:
        self.collection = replace(self.collection, **options)

    def get_corpus_iter(self, *, verbose: bool = True) -> pt.model.IterDict:
        """Returns the documents as dicts: ``docno`` and ``text`` (SQuAD: also ``title``)."""
        records = self.collection.documents().reset_index().to_dict("records")
        lines = pt.tqdm(records, desc=f"as2:{self.name} documents") if verbose else records
        return pt.utils.GeneratorLen(iter(lines), len(records))

    def text_loader(self, fields: Sequence[str] | str = "*", *, verbose: bool = False) -> pt.Transformer:
        """Returns a transformer that adds the text to rows with a ``docno``; used by ``pt.text.get_text(dataset)``.

        Args:
            fields: The columns to add, ``"*"`` for all.
            verbose: Has no effect: looking up a text takes microseconds.
        """
        return TextLoader(self.collection, fields)

    def get_corpus_lang(self) -> str:
        """Returns ``"en"``."""
        return "en"

    def get_topics_lang(self) -> str:
        """Returns ``"en"``."""
        return "en"

    def info_url(self) -> str | None:
        """Returns the page that describes the data set."""
        return self.collection.url

    def _info(self, mode: Mode, split: str | None, pairs: pd.DataFrame) -> dict[str, Any]:
        return {
            "name": f"as2:{self.name}",
            "mode": mode.value,
            "split": split,
            "n_questions": len(self.get_topics()),
            "n_pairs": len(pairs),
            "n_positive": int((pairs["label"] > 0).sum()),
            "licence": self.collection.licence,
            "url": self.collection.url,
            "notes": self.collection.notes,
        }

    def _describe_component(self, component: str) -> bool | None:
        return True if component in ("topics", "qrels", "corpus") else None

    def __eq__(self, other):
        """Data sets are equal when their names and options are."""
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self):
        """Equal data sets hash alike."""
        return hash(repr(self))

    def __repr__(self):
        """Returns what can be typed back in."""
        options = "".join(f", {key}={value!r}" for key, value in self.collection.options().items())
        return f"pt.get_dataset({'as2:' + self.name!r}{options})"


class AnswerSelection(AS2Dataset):
    """One split of a labelled collection in one mode: each question with its own list of candidates.

    Args:
        collection: Where the questions come from.
        split: One of its splits.
        mode: The reading (X-1), without it that of the papers.
    """

    def __init__(self, collection: LabelledCollection, split: str, mode: Mode | None = None):
        """Reads nothing."""
        super().__init__(collection)
        self.split = split
        self.mode = Mode(mode or collection.default_modes[split])

    @property
    def name(self) -> str:
        """The full name, which always states the mode."""
        return f"{self.collection.name}/{self.mode.value}/{self.split}"

    def get_candidates(self) -> pd.DataFrame:
        """Returns the pairs in the order of the file: ``qid, query, docno, text, label``."""
        return keep_questions(self.collection.split(self.split).pairs, self.mode).copy()

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the questions, ``qid, query``; in raw mode also those without any candidate."""
        _refuse(variant)
        topics = self.collection.split(self.split).topics
        if self.mode is Mode.RAW:
            return topics.copy()
        return topics[topics["qid"].isin(self.get_candidates()["qid"])].reset_index(drop=True)

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the judgements of all candidates, wrong ones included: ``qid, docno, label``."""
        _refuse(variant)
        return self.get_candidates()[["qid", "docno", "label"]]

    def get_info(self) -> dict[str, Any]:
        """Returns name, mode, split, counts, licence, address and notes."""
        return self._info(self.mode, self.split, self.get_candidates())

    def __reduce__(self):
        """Pickles the description alone: ``pt.get_dataset`` sets a closure on the instance, which cannot be pickled."""
        return AnswerSelection, (self.collection, self.split, self.mode)


class SquadOpen(AS2Dataset):
    """The paragraphs of a SQuAD-shaped file to retrieve from, with its questions."""

    collection: SquadFile

    def _configure(self, **options: Any) -> None:
        super()._configure(**options)
        self.collection.check()

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the questions: ``qid, query``."""
        _refuse(variant)
        return self.collection.read().topics.copy()

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the paragraph that each question was written for: ``qid, docno, label``."""
        _refuse(variant)
        return self.collection.read().qrels.copy()

    def get_answers(self) -> pd.DataFrame:
        """Returns every annotated answer, repetitions included: ``qid, answer``."""
        return self.collection.read().answers.copy()

    def get_candidates(self) -> pd.DataFrame:
        """Raises NotImplementedError: the questions have no candidate lists."""
        raise NotImplementedError(
            f"as2:{self.name} has no candidate lists: retrieve them, for instance with "
            f"BM25.from_docs(dataset.get_corpus_iter()) % 100"
        )

    def get_info(self) -> dict[str, Any]:
        """Returns name, mode (always raw), split (the half of the articles), counts, licence, address and notes."""
        return self._info(Mode.RAW, self.collection.articles, self.get_qrels())

    def __reduce__(self):
        """Pickles the description alone."""
        return SquadOpen, (self.collection,)


def _refuse(variant: str | None) -> None:
    if variant is not None:
        raise ValueError(f"variant {variant!r}: the data sets of as2 have no variants; leave it out")
