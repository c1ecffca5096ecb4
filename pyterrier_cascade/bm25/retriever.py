"""BM25 as an artifact and a retriever."""

import operator

import numpy as np
import pyterrier as pt

from pyterrier_cascade.bm25.documents import read_docs
from pyterrier_cascade.bm25.index import Index
from pyterrier_cascade.bm25.scorer import BM25Scorer, BM25TextLoader
from pyterrier_cascade.bm25.settings import Settings
from pyterrier_cascade.frames import Blocks
from pyterrier_cascade.ranker import HELP_URL
from pyterrier_cascade.store.strings import column

NUM_RESULTS = 1000
_ADDED = ["docno", "text", "score", "rank"]


class BM25(pt.Artifact, pt.Transformer):
    """An index of texts that retrieves: topics in, results with their ``text`` out. Needs no Java.

    Use it for corpora up to a few million sentences or passages; ``pt.terrier.Retriever`` for larger ones, for query
    languages and for other weighting models. ``BM25.from_docs`` and ``BM25.from_frame`` make an index in memory,
    ``save`` keeps it, ``BM25(path)`` opens it again: nothing is read before the first query.

    Documents that share no word with the query are not returned; a missing, empty or unknown query has no results.
    Results come sorted by descending score, equal scores in the order of the index. Input columns named like one of
    its own (text, score, rank) are replaced, all others are kept.

    Args:
        path: the folder of a saved index.
        num_results: how many documents a query gets at most.
        verbose: show a progress bar over the queries.
    """

    ARTIFACT_TYPE = "sparse_index"
    ARTIFACT_FORMAT = "bm25s"
    ARTIFACT_PACKAGE_HINT = "pyterrier_cascade"

    def __init__(self, path, *, num_results=NUM_RESULTS, verbose=False):
        """Names a saved index; FileNotFoundError if it is not there or not finished."""
        self._index = Index(path)
        self.num_results = _positive(num_results)
        self.verbose = verbose

    @classmethod
    def from_docs(cls, docs, *, num_results=NUM_RESULTS, verbose=False, **settings) -> "BM25":
        """Indexes dictionaries with ``docno`` and ``text`` in memory; other fields are ignored.

        Args:
            docs: an iterable of dictionaries, such as ``dataset.get_corpus_iter()``.
            num_results: how many documents a query gets at most.
            verbose: show progress bars.
            **settings: ``k1``, ``b``, ``method``, ``delta``, ``stopwords``, ``stemmer``:
                see :class:`~pyterrier_cascade.bm25.settings.Settings`.
        """
        settings = Settings(**settings)
        docnos, texts = read_docs(docs)
        return cls._over(Index.build(docnos, texts, settings, verbose), _positive(num_results), verbose)

    @classmethod
    def from_frame(cls, frame, **settings):
        """Indexes the columns ``docno`` and ``text`` of a frame; arguments as in :meth:`from_docs`."""
        pt.validate.columns(frame, includes=["docno", "text"])
        return cls.from_docs(frame[["docno", "text"]].to_dict("records"), **settings)

    @classmethod
    def _over(cls, index, num_results, verbose):
        bm25 = cls.__new__(cls)
        bm25._index, bm25.num_results, bm25.verbose = index, num_results, verbose
        return bm25

    def save(self, path, *, overwrite=False):
        """Writes the index to a folder, whole or not at all, and returns it.

        From then on it lives there: it pickles as its path and its ``repr`` can be typed back in.

        Args:
            path: the folder to make.
            overwrite: replace a finished BM25 index that is there. Anything else is never replaced.
        """
        self._index.save(path, overwrite)
        return self

    def scorer(self):
        """A transformer that scores given candidates with the statistics of this index."""
        return BM25Scorer(self)

    def text_loader(self, fields="*", verbose=False):
        """A transformer that adds the ``text`` of each ``docno``; what ``pt.text.get_text(bm25)`` uses."""
        return BM25TextLoader(self, fields)

    @property
    def path(self):
        """The folder of the index as it was named, or ``pt.Artifact.NO_PATH`` while it is in memory only."""
        return self._index.path or pt.Artifact.NO_PATH

    @property
    def n_docs(self):
        """How many documents the index holds."""
        return self._index.n_docs

    @property
    def settings(self):
        """The formula and the words of the index."""
        return self._index.settings

    @property
    def fingerprint(self):
        """A sha256 over documents and settings."""
        return self._index.fingerprint

    def transform(self, inp):
        """Retrieves: ``qid, query, ...`` gives ``qid, query, ..., docno, text, score, rank``."""
        pt.validate.query_frame(inp, ["query"], context=self)
        topics = inp.drop(columns=_ADDED, errors="ignore")
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

    def _search(self, queries):
        codes, words = self._index.words(queries)
        for code in pt.tqdm(codes, desc="BM25", disable=not self.verbose):
            yield self._index.search(words[code], self.num_results)

    def fuse_rank_cutoff(self, k):
        """``bm25 % k`` as one transformer that retrieves ``k`` (never more than it did)."""
        if k >= self.num_results:
            return self
        return self._over(self._index, int(k), self.verbose) if k > 0 else None

    def __mod__(self, k):
        """``bm25 % k``, fused at once: the same results as a cutoff behind it, sooner, and drawn as one box."""
        return self.fuse_rank_cutoff(operator.index(k)) or super().__mod__(k)

    def subtransformers(self):
        """None: it is one piece."""
        return {}

    def schematic(self, *, input_columns=None):
        """How PyTerrier draws it; nothing is looked up online."""
        where = "in memory" if self._index.path is None else str(self._index.path)
        settings = {"index": where, "num_results": self.num_results, **self.settings.as_dict()}
        return {"label": "BM25", "settings": settings, "help_url": HELP_URL}

    def __repr__(self):
        """A saved index is shown as what can be typed back in, one in memory by its content."""
        limit = "" if self.num_results == NUM_RESULTS else f", num_results={self.num_results}"
        if self._index.path is not None:
            return f"BM25({str(self._index.path)!r}{limit})"
        return f"<BM25 of {self.n_docs} documents {self.fingerprint[:6]}, in memory{limit}>"

    def __eq__(self, other):
        """Whether documents, settings and ``num_results`` are the same, wherever the index is."""
        if not isinstance(other, BM25):
            return NotImplemented
        return self.num_results == other.num_results and self._index == other._index

    def __hash__(self):
        """Equal indexes hash alike."""
        return hash((self.num_results, self._index))


def _positive(num_results):
    if num_results < 1:
        raise ValueError(f"num_results is {num_results}; use 1 or more")
    return operator.index(num_results)


def _check_topics(topics):
    if not topics.columns.is_unique:
        twice = topics.columns[topics.columns.duplicated()].unique().tolist()
        raise ValueError(f"the topics have more than one column of each of these names: {twice}; drop or rename them")
    if len(Blocks.of(topics)) < len(topics):
        repeated = topics["qid"][topics["qid"].duplicated()].unique()
        names = ", ".join(repr(qid) for qid in repeated[:5])
        raise ValueError(f"{len(repeated)} of the topics' qids occur more than once ({names}); give each row its own")
