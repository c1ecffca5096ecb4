"""A BM25 index: documents, their postings and their statistics, in memory or in a folder."""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pandas as pd

from pyterrier_cascade import frames
from pyterrier_cascade.bm25.settings import BM25Settings
from pyterrier_cascade.bm25.storage import REMEDY, check_folder, check_replaceable, read_meta, write_meta
from pyterrier_cascade.checks import listed
from pyterrier_cascade.forks import cached_property
from pyterrier_cascade.store import parts
from pyterrier_cascade.store.publish import explaining_full_disk, publishing_folder
from pyterrier_cascade.store.strings import Strings


class BM25Index:
    """The content of a BM25 index. Indexes with the same documents and settings are equal.

    The content of a folder is read on its first use: once wholly, to compare its checksums (some 1 GB a second), and
    then as memory-maps. Nothing but a file that is cut short while it is in use can damage it afterwards; this package
    replaces files and never rewrites them.

    Args:
        path: The folder of a saved index.

    Raises:
        FileNotFoundError: If the folder is missing or is not a finished index.
    """

    def __init__(self, path: str | Path):
        self.path: Path | None = Path(path)
        self.folder: Path | None = self.path.absolute()
        check_folder(self.folder)

    @classmethod
    def build(
        cls, docnos: Sequence[str], texts: Sequence[str], settings: BM25Settings, verbose: bool = False
    ) -> "BM25Index":
        """Returns an index in memory. Documents with equal scores will be ranked in the order that they have here."""
        index = cls.__new__(cls)
        index.path = index.folder = None
        index.settings = settings
        index.postings = _postings(settings, texts, verbose)
        index.packed_docnos, index.texts = Strings.pack(docnos), Strings.pack(texts)
        index.docnos = np.array(docnos, dtype=object)
        return index

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Writes the index to a folder, from which it is read from then on."""
        if overwrite:
            check_replaceable(Path(path))
        full = f"the disk with {str(path)!r} is full; the path is as it was: make room, then save the index again"
        with explaining_full_disk(full), publishing_folder(path, overwrite=overwrite) as folder:
            self.postings.save(folder, allow_pickle=False, show_progress=False)
            self.packed_docnos.save(folder, "docnos")
            self.texts.save(folder, "texts")
            fields = {"settings": self.settings.as_dict(), "n_docs": self.n_docs, "fingerprint": self.fingerprint}
            write_meta(folder, fields)
        self.path, self.folder = Path(path), Path(path).absolute()

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The metadata of the folder; the first use compares all files to their checksums."""
        return read_meta(self.folder)

    def _checked_folder(self) -> Path | None:
        return self.folder if self.meta else None

    @cached_property
    def settings(self) -> BM25Settings:
        """The formula and the words."""
        with parts.refusing_forgeries(self.folder, REMEDY):
            return BM25Settings(**self.meta["settings"])

    @cached_property
    def postings(self) -> bm25s.BM25:
        """The index of bm25s: for each word its documents, and the share of the word in their scores."""
        return bm25s.BM25.load(self._checked_folder(), mmap=True, allow_pickle=False, show_progress=False)

    @cached_property
    def packed_docnos(self) -> Strings:
        """All docnos in the order of the index."""
        return Strings.open(self._checked_folder(), "docnos")

    @cached_property
    def texts(self) -> Strings:
        """All texts in the order of the index."""
        return Strings.open(self._checked_folder(), "texts")

    @cached_property
    def docnos(self) -> np.ndarray:
        """All docnos as an array of strings. *Shape:* (n_docs,)"""
        return self.packed_docnos.take(np.arange(len(self.packed_docnos)))

    @cached_property
    def _docno_lookup(self) -> pd.Index:
        return pd.Index(self.docnos, dtype=object)

    @property
    def n_docs(self) -> int:
        """The number of documents."""
        return len(self.packed_docnos)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the documents and the settings; a saved index has it in its metadata."""
        if self.folder is not None:
            return self.meta["fingerprint"]
        head = {"n_docs": self.n_docs, **self.settings.as_dict()}
        digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
        for strings in (self.packed_docnos, self.texts):
            digest.update(strings.ends)
            digest.update(strings.blob)
        return digest.hexdigest()

    def __eq__(self, other):
        if not isinstance(other, BM25Index):
            return NotImplemented
        return self is other or self.fingerprint == other.fingerprint

    def __hash__(self):
        return hash(self.fingerprint)

    def __getstate__(self):
        # A saved index pickles as its path alone: a pickled memory-map would be the whole array.
        saved = self.folder is not None
        kept = ("path", "folder") if saved else [name for name in self.__dict__ if name != "_docno_lookup"]
        return {name: self.__dict__[name] for name in kept}

    def doc_numbers(self, docnos: pd.Series) -> np.ndarray:
        """Returns the number in the index of each docno of a column. *Shape:* (n_rows,)

        Raises:
            KeyError: If the index does not hold some of the docnos; the message names them.
        """
        numbers = self._docno_lookup.get_indexer(pd.Index(docnos.to_numpy(dtype=object), dtype=object))
        unknown = docnos[numbers < 0].unique()
        if len(unknown):
            raise KeyError(f"{listed(unknown, 'docno')} not in this index of {self.n_docs} documents; index them too")
        return numbers

    def words(self, queries: pd.Series) -> tuple[np.ndarray, list[list[int]]]:
        """Returns the words of a column of queries that the index knows.

        Args:
            queries: Strings and missing values.

        Returns:
            A number for each row, and for each number a list of word ids. The last list is empty: missing queries
            have the number -1, which selects it.

        Raises:
            ValueError: If a query is neither a string nor missing.
        """
        given = queries.notna().to_numpy()
        codes = np.full(len(queries), -1)
        codes[given], distinct = frames.distinct(queries[given])
        for query in distinct:
            if not isinstance(query, str):
                raise ValueError(f"query {query!r} is of type {type(query).__name__}; queries are str (or missing)")
        tokens = self.settings.tokenize(distinct)
        known = {number: self.postings.vocab_dict.get(word) for word, number in tokens.vocab.items()}
        found = [[known[number] for number in numbers if known[number] is not None] for numbers in tokens.ids]
        return codes, [*found, []]

    def scores(self, words: list[int]) -> np.ndarray:
        """Returns the score of every document for some word ids. *Shape:* (n_docs,)"""
        return self.postings.get_scores_from_ids(words)

    def search(self, words: list[int], n_results: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the numbers and the scores of the best documents that have any of the words.

        The scores descend, and documents of equal scores keep the order of the index. *Shapes:* (n_found,)
        """
        scores = self.scores(words)
        docs = np.flatnonzero(scores > self._score_of_no_match(words))
        found = scores[docs]
        if len(docs) > n_results:
            kept = _largest(found, n_results)
            docs, found = docs[kept], found[kept]
        order = np.argsort(-found, kind="stable")
        return docs[order], found[order]

    def _score_of_no_match(self, words: list[int]) -> float:
        # In bm25l and bm25+, each word of the query adds something to the score of every document.
        floors = self.postings.nonoccurrence_array
        return 0 if floors is None else floors[words].sum()


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """Returns the places, ascending, of the k largest values; of equal values the first are taken. *Shape:* (k,)"""
    cut = np.partition(values, -k)[-k]
    above = np.flatnonzero(values > cut)
    level = np.flatnonzero(values == cut)[: k - len(above)]
    return np.sort(np.concatenate([above, level]))


def _postings(settings: BM25Settings, texts: Sequence[str], verbose: bool) -> bm25s.BM25:
    tokens = settings.tokenize(texts, verbose)
    if not tokens.vocab:
        raise ValueError(
            f"no word in the {len(texts)} texts: all of them are empty or have only one-letter and stop words; give "
            f"other texts or other stopwords"
        )
    postings = bm25s.BM25(k1=settings.k1, b=settings.b, delta=settings.delta, method=settings.method)
    with _silent_unless(verbose):
        postings.index(tokens, show_progress=verbose, leave_progress=verbose)
    return postings


@contextmanager
def _silent_unless(verbose: bool) -> Iterator[None]:
    # bm25s sets its own logger to DEBUG, so that its messages reach every handler of the user.
    logger = logging.getLogger("bm25s")
    level = logger.level
    if not verbose:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
