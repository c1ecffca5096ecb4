"""Collections as PyTerrier data sets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_cascade.checks import check_names
from pyterrier_cascade.datasets.collection import Collection, LabelledCollection, RetrievalCollection
from pyterrier_cascade.datasets.modes import Mode, keep_questions
from pyterrier_cascade.datasets.text_loader import TextLoader


class AS2Dataset(pt.datasets.Dataset):
    """The base of all data sets of this package: a corpus in English behind PyTerrier's methods.

    To make a data set reads and downloads nothing. Its ``repr`` can be typed back in; data sets are compared by it,
    and they pickle as the description of their collection.

    Args:
        collection: The content of the data set.
    """

    mode: Mode
    split: str | None

    def __init__(self, collection: Collection):
        self.collection = collection

    @property
    def name(self) -> str:
        """The full name, as in ``pt.get_dataset("as2:...")`` after the colon."""
        return self.collection.name

    def _configure(self, **options: Any) -> None:
        # PyTerrier calls this with the keyword arguments of pt.get_dataset.
        check_names(options, self.collection.option_names(), f"as2:{self.name}")
        self.collection = replace(self.collection, **options)
        self.collection.check()

    def get_corpus_iter(self, *, verbose: bool = True) -> pt.model.IterDict:
        """Returns the documents as dictionaries: ``docno`` and ``text`` (SQuAD: also ``title``)."""
        records = self.collection.documents().reset_index().to_dict("records")
        lines = pt.tqdm(records, desc=f"as2:{self.name} documents") if verbose else records
        return pt.utils.GeneratorLen(iter(lines), len(records))

    def text_loader(self, fields: Sequence[str] | str = "*", *, verbose: bool = False) -> pt.Transformer:
        """Returns a transformer that adds the text to rows with a ``docno``; ``pt.text.get_text(dataset)`` uses it.

        Args:
            fields: The columns to add, ``"*"`` for all.
            verbose: Has no effect: to look up a text takes microseconds.
        """
        return TextLoader(self.collection, fields)

    def get_corpus_lang(self) -> str:
        """Returns ``"en"``."""
        return "en"

    def get_topics_lang(self) -> str:
        """Returns ``"en"``."""
        return "en"

    def info_url(self) -> str | None:
        """Returns the address of the page that describes the data set."""
        return self.collection.url

    def get_info(self) -> dict[str, Any]:
        """Returns name, mode, split (or the half of the articles), counts, licence, address and notes."""
        labels = self.get_qrels()["label"]
        return {
            "name": f"as2:{self.name}",
            "mode": self.mode.value,
            "split": self.split,
            "n_questions": len(self.get_topics()),
            "n_pairs": len(labels),
            "n_positive": int((labels > 0).sum()),
            "licence": self.collection.licence,
            "url": self.collection.url,
            "notes": self.collection.notes,
        }

    def _describe_component(self, component: str) -> bool | None:
        return True if component in ("topics", "qrels", "corpus") else None

    def __getstate__(self):
        # pt.get_dataset sets a closure on the instance, which cannot be pickled.
        return {name: value for name, value in self.__dict__.items() if not callable(value)}

    def __eq__(self, other):
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self):
        return hash(repr(self))

    def __repr__(self):
        options = "".join(f", {key}={value!r}" for key, value in self.collection.options().items())
        return f"pt.get_dataset({'as2:' + self.name!r}{options})"


class AnswerSelection(AS2Dataset):
    """One split of a labelled collection in one mode: each question with its own list of candidates.

    The column ``label`` is 1 for a correct candidate and 0 for a wrong one.

    Args:
        collection: The collection of the questions.
        split: One of its splits.
        mode: The reading (X-1); without it that of the papers.
    """

    def __init__(self, collection: LabelledCollection, split: str, mode: Mode | str | None = None):
        super().__init__(collection)
        self.split = split
        self.mode = Mode(mode or collection.default_modes[split])

    @property
    def name(self) -> str:
        """The full name, which always states the mode."""
        return f"{self.collection.name}/{self.mode.value}/{self.split}"

    def get_candidates(self) -> pd.DataFrame:
        """Returns the pairs in the order of the file: ``qid, query, docno, text, label``; labels are 0 and 1."""
        return keep_questions(self.collection.split(self.split).pairs, self.mode).copy()

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the questions, ``qid, query``; in raw mode also those without any candidate."""
        refuse_variant(variant)
        topics = self.collection.split(self.split).topics
        if self.mode is Mode.RAW:
            return topics.copy()
        return topics[topics["qid"].isin(self.get_candidates()["qid"])].reset_index(drop=True)

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the judgements of all candidates, ``qid, docno, label``; wrong ones are included, with label 0."""
        refuse_variant(variant)
        return self.get_candidates()[["qid", "docno", "label"]]


class RetrievalDataset(AS2Dataset):
    """Questions that are asked of a whole corpus: topics, judgements and documents, without candidate lists."""

    collection: RetrievalCollection
    mode = Mode.RAW

    @property
    def split(self) -> str | None:
        """The split, or the half of the articles; None for all questions."""
        return self.collection.part

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the questions: ``qid, query``."""
        refuse_variant(variant)
        return self.collection.read().topics.copy()

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the judgements: ``qid, docno, label``; the page of the data sets says which labels there are."""
        refuse_variant(variant)
        return self.collection.read().qrels.copy()

    def get_candidates(self) -> pd.DataFrame:
        """Raises NotImplementedError: the questions have no candidate lists."""
        raise NotImplementedError(
            f"as2:{self.name} has no candidate lists: retrieve them, for instance with "
            f"BM25.from_docs(dataset.get_corpus_iter()) % 100"
        )


def refuse_variant(variant: str | None) -> None:
    """Raises ValueError for a variant of topics or qrels: PyTerrier's methods take one, and these sets have none."""
    if variant is not None:
        raise ValueError(f"variant {variant!r}: the data sets of as2 have no variants; leave it out")
