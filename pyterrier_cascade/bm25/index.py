"""Documents, their postings and their statistics; in memory, or in a folder and opened when first used."""

import hashlib
import json
import logging
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import bm25s
import numpy as np
import pandas as pd

from pyterrier_cascade import frames
from pyterrier_cascade.bm25.documents import named
from pyterrier_cascade.bm25.settings import Settings
from pyterrier_cascade.bm25.storage import check_folder, published, read_meta, write_meta
from pyterrier_cascade.store.strings import Strings


class Index:
    """The content of a BM25 index; indexes with the same documents and settings are equal.

    What a folder holds is read (the arrays are memory-mapped) when it is first asked for.
    """

    def __init__(self, path):
        """Names the folder of a saved index; FileNotFoundError if it is not there or not finished."""
        self.path = Path(path)
        self.folder = self.path.absolute()
        check_folder(self.folder)

    @classmethod
    def build(cls, docnos, texts, settings, verbose=False):
        """Indexes documents in memory; their order decides ties."""
        index = cls.__new__(cls)
        index.path = index.folder = None
        index.settings = settings
        index.postings = _postings(settings, texts, verbose)
        index.packed_docnos, index.texts = Strings.pack(docnos), Strings.pack(texts)
        index.docnos = np.array(docnos, dtype=object)
        return index

    def save(self, path, overwrite=False):
        """Writes the index to a folder, which from then on is where it lives."""
        with published(path, overwrite) as folder:
            self.postings.save(folder, allow_pickle=False, show_progress=False)
            self.packed_docnos.save(folder, "docnos")
            self.texts.save(folder, "texts")
            fields = {"settings": self.settings.as_dict(), "n_docs": self.n_docs, "fingerprint": self.fingerprint}
            write_meta(folder, fields)
        self.path, self.folder = Path(path), Path(path).absolute()

    @cached_property
    def meta(self):
        """The metadata of the folder; reading it checks that all files are there."""
        return read_meta(self.folder)

    def _checked_folder(self):
        return self.folder if self.meta else None

    @cached_property
    def settings(self):
        """The formula and the words."""
        return Settings(**self.meta["settings"])

    @cached_property
    def postings(self):
        """The bm25s index: for each word the documents that have it, and what it adds to their scores."""
        return bm25s.BM25.load(self._checked_folder(), mmap=True, allow_pickle=False, show_progress=False)

    @cached_property
    def packed_docnos(self):
        """All docnos in the order of the index."""
        return Strings.open(self._checked_folder(), "docnos")

    @cached_property
    def texts(self):
        """All texts in the order of the index."""
        return Strings.open(self._checked_folder(), "texts")

    @cached_property
    def docnos(self):
        """The same as an object array. *Shape:* (n_docs,)"""
        return self.packed_docnos.take(np.arange(len(self.packed_docnos)))

    @cached_property
    def _places(self):
        return pd.Index(self.docnos, dtype=object)

    @property
    def n_docs(self):
        """How many documents there are."""
        return self.meta["n_docs"] if "docnos" not in self.__dict__ else len(self.docnos)

    @cached_property
    def fingerprint(self):
        """A sha256 over the documents and the settings; a saved index has it in its metadata."""
        if self.folder is not None:
            return self.meta["fingerprint"]
        head = {"n_docs": self.n_docs, **self.settings.as_dict()}
        digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
        for strings in (self.packed_docnos, self.texts):
            digest.update(strings.ends)
            digest.update(strings.blob)
        return digest.hexdigest()

    def __eq__(self, other):
        """Whether documents and settings are the same."""
        if not isinstance(other, Index):
            return NotImplemented
        return self is other or self.fingerprint == other.fingerprint

    def __hash__(self):
        """Equal indexes hash alike."""
        return hash(self.fingerprint)

    def __getstate__(self):
        """A saved index pickles as its folder, one in memory with all that it holds."""
        # A pickled memory-map would be the whole array.
        kept = ("path", "folder") if self.folder is not None else [name for name in self.__dict__ if name != "_places"]
        return {name: self.__dict__[name] for name in kept}

    def positions(self, docnos):
        """Where each docno of a column stands in the index; KeyError names the unknown ones."""
        positions = self._places.get_indexer(pd.Index(docnos.to_numpy(dtype=object), dtype=object))
        unknown = docnos[positions < 0].unique()
        if len(unknown):
            raise KeyError(f"{named(unknown)} not in this index of {self.n_docs} documents; index them too")
        return positions

    def words(self, queries):
        """The words of a column of queries that the index knows.

        Returns:
            For each row a number, and a list of word ids for each number. The last list is empty and has the
            number -1: that of missing queries.
        """
        asked = queries.notna().to_numpy()
        codes = np.full(len(queries), -1)
        codes[asked], distinct = frames.distinct(queries[asked])
        for query in distinct:
            if not isinstance(query, str):
                raise ValueError(f"query {query!r} is of type {type(query).__name__}; queries are str (or missing)")
        tokens = self.settings.tokenize(distinct)
        known = {number: self.postings.vocab_dict.get(word) for word, number in tokens.vocab.items()}
        found = [[known[number] for number in numbers if known[number] is not None] for numbers in tokens.ids]
        return codes, [*found, []]

    def scores(self, words):
        """The score of every document. *Shape:* (n_docs,)"""
        return self.postings.get_scores_from_ids(words)

    def search(self, words, n_results):
        """The positions and scores of the best documents that have any of the words; ties in index order."""
        scores = self.scores(words)
        docs = np.flatnonzero(scores > self._score_of_no_match(words))
        found = scores[docs]
        if len(docs) > n_results:
            kept = _largest(found, n_results)
            docs, found = docs[kept], found[kept]
        order = np.argsort(-found, kind="stable")
        return docs[order], found[order]

    def _score_of_no_match(self, words):
        # bm25l and bm25+ give every document something for each word of the query.
        floors = self.postings.nonoccurrence_array
        return 0 if floors is None else floors[words].sum()


def _largest(values, k):
    """The positions, ascending, of the k largest values; of equal ones the first. *Shape:* (k,)"""
    cut = np.partition(values, -k)[-k]
    above = np.flatnonzero(values > cut)
    level = np.flatnonzero(values == cut)[: k - len(above)]
    return np.sort(np.concatenate([above, level]))


def _postings(settings, texts, verbose):
    tokens = settings.tokenize(texts, verbose)
    if not tokens.vocab:
        raise ValueError(f"no word in the {len(texts)} texts: all are empty, one-letter or stop words")
    postings = bm25s.BM25(k1=settings.k1, b=settings.b, delta=settings.delta, method=settings.method)
    with _quiet(verbose):
        postings.index(tokens, show_progress=verbose, leave_progress=verbose)
    return postings


@contextmanager
def _quiet(verbose):
    # bm25s sets its own logger to DEBUG, so that its notes reach every handler of the user's.
    logger = logging.getLogger("bm25s")
    level = logger.level
    if not verbose:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
