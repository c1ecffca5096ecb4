"""BM25 without Java, over bm25s: a retriever that owns its index, and a scorer of given candidates."""

from pyterrier_cascade.bm25.retriever import BM25
from pyterrier_cascade.bm25.scorer import BM25Scorer, BM25TextLoader

__all__ = ["BM25", "BM25Scorer", "BM25TextLoader"]
