"""BM25 without Java: an index that is a retriever, and a scorer of given candidates, over bm25s."""

from pyterrier_cascade.bm25.retriever import BM25
from pyterrier_cascade.bm25.scorer import BM25Scorer, BM25TextLoader

__all__ = ["BM25", "BM25Scorer", "BM25TextLoader"]
