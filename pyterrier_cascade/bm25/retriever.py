"""BM25 as a retriever and an artifact of PyTerrier."""

import operator
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade.bm25.documents import read_docs
from pyterrier_cascade.bm25.index import BM25Index
from pyterrier_cascade.bm25.scorer import BM25Scorer, BM25TextLoader
from pyterrier_cascade.bm25.settings import BM25Settings
from pyterrier_cascade.checks import listed
from pyterrier_cascade.frames import Blocks
from pyterrier_cascade.ranker import HELP_URL
from pyterrier_cascade.store.strings import column

NUM_RESULTS = 1000
_OWN_COLUMNS = ["docno", "text", "score", "rank"]


class BM25(pt.Artifact, pt.Transformer):
    """An index of texts that retrieves: topics in, results with their ``text`` out. It needs no Java.

    Use it for corpora of up to a few million sentences or passages. Use ``pt.terrier.Retriever`` for larger ones, for
    query languages and for other weighting models. ``BM25.from_docs`` and ``BM25.from_frame`` make an index in memory,
    ``save`` keeps it, and ``BM25(path)`` opens it again: nothing is read before the first query.

    Documents that share no word with the query are not returned; a missing, empty or unknown query has no results.
    Results are sorted by descending score, and equal scores keep the order of the index. Input columns with the name of
    an output column (text, score, rank) are replaced, all others are kept.

    Args:
        path: The folder of a saved index.
        num_results: The largest number of documents that a query gets.
        verbose: Whether to show a progress bar over the queries.

    Raises:
        FileNotFoundError: If the folder is missing or is not a finished index.
    """

    ARTIFACT_TYPE = "sparse_index"
    ARTIFACT_FORMAT = "bm25s"
    ARTIFACT_PACKAGE_HINT = "pyterrier_cascade"

    def __init__(self, path: str | Path, *, num_results: int = NUM_RESULTS, verbose: bool = False):
        self._index = BM25Index(path)
        self.num_results = _positive(num_results)
        self.verbose = verbose

    @classmethod
    def from_docs(
        cls,
        docs: Iterable[Mapping[str, str]],
        *,
        num_results: int = NUM_RESULTS,
        verbose: bool = False,
        **settings: Any,
    ) -> "BM25":
        """Returns an index in memory of dictionaries with ``docno`` and ``text``; other fields are ignored.

        Args:
            docs: The documents, such as ``dataset.get_corpus_iter()``.
            num_results: The largest number of documents that a query gets.
            verbose: Whether to show progress bars.
            **settings: ``k1``, ``b``, ``method``, ``delta``, ``stopwords``, ``stemmer``:
                see :class:`~pyterrier_cascade.bm25.settings.BM25Settings`.
        """
        checked = BM25Settings.of(**settings)
        docnos, texts = read_docs(docs)
        return cls._over(BM25Index.build(docnos, texts, checked, verbose), _positive(num_results), verbose)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, **settings: Any) -> "BM25":
        """Returns an index in memory of the columns ``docno`` and ``text``; arguments as in :meth:`from_docs`."""
        pt.validate.columns(frame, includes=["docno", "text"])
        return cls.from_docs(frame[["docno", "text"]].to_dict("records"), **settings)

    @classmethod
    def _over(cls, index: BM25Index, num_results: int, verbose: bool) -> "BM25":
        bm25 = cls.__new__(cls)
        bm25._index, bm25.num_results, bm25.verbose = index, num_results, verbose
        return bm25

    def save(self, path: str | Path, *, overwrite: bool = False) -> "BM25":
        """Writes the index to a folder, whole or not at all, and returns it.

        From then on the index belongs to that folder: it pickles as its path, and its ``repr`` can be typed back in.

        Args:
            path: The folder to make.
            overwrite: Whether to replace a finished BM25 index at that path. Anything else is never replaced.
        """
        self._index.save(path, overwrite)
        return self

    def scorer(self) -> BM25Scorer:
        """Returns a transformer that scores given candidates with the statistics of this index."""
        return BM25Scorer(self)

    def text_loader(self, fields: str | Iterable[str] = "*", verbose: bool = False) -> BM25TextLoader:
        """Returns a transformer that adds the ``text`` of each ``docno``; ``pt.text.get_text(bm25)`` uses it."""
        return BM25TextLoader(self, fields)

    @property
    def path(self) -> Path | Any:
        """The folder of the index as the user named it, or ``pt.Artifact.NO_PATH`` while it is in memory only."""
        return self._index.path or pt.Artifact.NO_PATH

    @property
    def n_docs(self) -> int:
        """The number of documents in the index."""
        return self._index.n_docs

    @property
    def settings(self) -> BM25Settings:
        """The formula and the words of the index."""
        return self._index.settings

    @property
    def fingerprint(self) -> str:
        """The sha256 of documents and settings."""
        return self._index.fingerprint

    def describe(self) -> dict[str, Any]:
        """Returns the description of the index that ``python -m pyterrier_cascade info`` prints."""
        settings = self.settings.as_dict()
        return {"kind": "BM25 index", "documents": self.n_docs, **settings, "fingerprint": self.fingerprint}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the results of each query: ``qid, query, ..., docno, text, score, rank``.

        Args:
            inp: Topics with ``qid`` and ``query``.
        """
        pt.validate.query_frame(inp, ["query"], context=self)
        topics = inp.drop(columns=_OWN_COLUMNS, errors="ignore")
        _check_topics(topics)
        hits = list(self._search(topics["query"])) if len(topics) else []
        n_hits = np.array([len(docs) for docs, _ in hits], dtype=np.int64)
        rows = np.repeat(np.arange(len(hits)), n_hits)
        docs = np.concatenate([np.empty(0, dtype=np.int64), *(docs for docs, _ in hits)])
        scores = np.concatenate([np.empty(0, dtype=np.float64), *(scores for _, scores in hits)])
        return (
            topics.take(rows)
            .reset_index(drop=True)
            .assign(
                docno=column(self._index.docnos[docs] if len(docs) else []),
                text=column(self._index.texts.take(docs) if len(docs) else []),
                score=scores,
                rank=np.arange(len(rows)) - np.repeat(np.cumsum(n_hits) - n_hits, n_hits),
            )
        )

    def _search(self, queries: pd.Series) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        codes, words = self._index.words(queries)
        for code in pt.tqdm(codes, desc="BM25", disable=not self.verbose):
            yield self._index.search(words[code], self.num_results)

    def fuse_rank_cutoff(self, k: int) -> "BM25 | None":
        """Returns ``bm25 % k`` as one transformer that retrieves at most ``k`` documents for a query."""
        if k >= self.num_results:
            return self
        return self._over(self._index, int(k), self.verbose) if k > 0 else None

    def __mod__(self, k: int):
        # Fused at once: the same results as with a cutoff behind it, sooner, and drawn as one box.
        return self.fuse_rank_cutoff(operator.index(k)) or super().__mod__(k)

    def subtransformers(self) -> dict:
        """Returns nothing: the retriever contains no other transformers."""
        return {}

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the drawing of the retriever, for which nothing is looked up online."""
        where = "in memory" if self._index.path is None else str(self._index.path)
        settings = {"index": where, "num_results": self.num_results, **self.settings.as_dict()}
        return {"label": "BM25", "settings": settings, "help_url": HELP_URL}

    def __repr__(self):
        # A saved index can be typed back in; an index in memory is shown by its content.
        limit = "" if self.num_results == NUM_RESULTS else f", num_results={self.num_results}"
        if self._index.path is not None:
            return f"BM25({str(self._index.path)!r}{limit})"
        return f"<BM25 of {self.n_docs} documents {self.fingerprint[:6]}, in memory{limit}>"

    def __eq__(self, other):
        if not isinstance(other, BM25):
            return NotImplemented
        return self.num_results == other.num_results and self._index == other._index

    def __hash__(self):
        return hash((self.num_results, self._index))


def _positive(num_results: int) -> int:
    if num_results < 1:
        raise ValueError(f"num_results is {num_results}; use 1 or more")
    return operator.index(num_results)


def _check_topics(topics: pd.DataFrame) -> None:
    if not topics.columns.is_unique:
        twice = topics.columns[topics.columns.duplicated()].unique().tolist()
        raise ValueError(f"the topics have more than one column of each of these names: {twice}; drop or rename them")
    if len(Blocks.of(topics)) < len(topics):
        repeated = topics["qid"][topics["qid"].duplicated()].unique()
        raise ValueError(f"{listed(repeated, 'qid')} given to more than one topic; give each row its own")
