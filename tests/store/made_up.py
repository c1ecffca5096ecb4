"""Stores of a made-up corpus, whose states are known without a model."""

import multiprocessing
import os
import tempfile
import zlib
from pathlib import Path

import numpy as np

from pyterrier_cascade.store.store import DocumentStore

WIDTH = 8
META = {"model": "made-up", "fingerprint": "0123456789abcdef", "width": WIDTH, "document_length": 12}


def corpus(n: int = 23) -> list[dict]:
    """Documents of several lengths; every fifth has passages, and names are not all ASCII."""
    words = ["harbour", "ship", "naïve", "town", "1802"]
    return [
        {"docno": f"d{i}é" if i % 7 == 3 else f"d{i}", "text": " ".join(words[: i % 6] * (1 + i % 3))} for i in range(n)
    ]


def passages(text: str) -> list[str]:
    """Entries of a text: its pieces of twelve characters where it has more than 40."""
    return [text[start : start + 12] for start in range(0, len(text), 12)] if len(text) > 40 else [text]


def states_of(text: str) -> np.ndarray:
    """Token states of a text's entries end to end, and their lengths."""
    rng = np.random.default_rng(zlib.crc32(text.encode("utf-8", "surrogatepass")))
    lengths = np.array([len(passage.split()) + 2 for passage in passages(text)])
    return rng.standard_normal((lengths.sum(), WIDTH), np.float32), lengths


def encode(texts):
    """What a model gives for texts."""
    parts = [states_of(text) for text in texts]
    owner = np.repeat(np.arange(len(texts)), [len(lengths) for _, lengths in parts])
    return np.concatenate([states for states, _ in parts]), np.concatenate([lengths for _, lengths in parts]), owner


def build(path: Path, documents=None, encode=encode, cls=DocumentStore, **options) -> DocumentStore:
    """A store of shards of five documents, encoded two at a time."""
    documents = corpus() if documents is None else documents
    return cls.build(path, documents, encode, **{"meta": META, "shard_size": 5, "batch_size": 2} | options)


def close(found: np.ndarray, wanted: np.ndarray, dtype: str) -> bool:
    """Whether states are those that were stored, as exactly as the dtype keeps them."""
    if dtype == "fp16":
        return np.array_equal(found, wanted.astype(np.float16).astype(np.float32))
    return (np.abs(found - wanted) <= np.abs(wanted).max(1, keepdims=True) / 254 * 1.0001).all()


def right(cache: DocumentStore, documents) -> int:
    """Checks all documents that a cache has, and returns how many these are."""
    found = cache.find([document["docno"] for document in documents])
    there = [(number, document) for number, document in zip(found.tolist(), documents, strict=True) if number >= 0]
    for number, document in there:
        entries, counts = cache.entries([number])
        states, lengths = states_of(document["text"])
        read = cache.read(entries)
        assert counts.tolist() == [len(lengths)] and read.lengths.tolist() == lengths.tolist()
        assert close(read.fp32(), states, cache.dtype)
    return len(there)


def in_memory():
    """A folder that no busy disk delays, where the system has one."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder)


def content(folder: Path) -> dict[str, bytes]:
    """All files under a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def started(work, *arguments):
    """A process that does some work, forked so that nothing is imported again."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    return process
