"""A part of a trace: some questions, scored by all heads and kept in a folder."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from pyterrier_cascade import frames
from pyterrier_cascade.early_exit.policy import Policy
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker
from pyterrier_cascade.store.strings import Strings


@dataclass(frozen=True)
class TracePart:
    """Some questions of a trace, one after the other, each with its candidates in the order of the input.

    Attributes:
        qids: The ids of the questions.
        queries: The words of each question.
        texts: A hash of each question's words and of its candidates' texts ``(n_questions,)``.
        seen: Whether the ranker's heads learned from the question ``(n_questions,)``.
        sizes: The number of candidates of each question ``(n_questions,)``.
        docnos: The ids of the candidates.
        scores: The scores of the candidates at all heads ``(n, n_heads)``.
        tokens: The number of tokens of each candidate, over all its inputs ``(n,)``.
        inputs: The number of inputs of each candidate ``(n,)``; a long document may be several.
    """

    qids: Strings
    queries: Strings
    texts: np.ndarray
    seen: np.ndarray
    sizes: np.ndarray
    docnos: Strings
    scores: np.ndarray
    tokens: np.ndarray
    inputs: np.ndarray

    def write(self, folder: Path) -> None:
        """Writes the part's files into a folder."""
        for name, value in vars(self).items():
            if isinstance(value, Strings):
                value.save(folder, name)
            else:
                np.save(folder / f"{name}.npy", value, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path) -> "TracePart":
        """Returns the part in a folder, memory-mapped."""

        def opened(field):
            if field.type is Strings:
                return Strings.open(folder, field.name)
            return np.load(folder / f"{field.name}.npy", mmap_mode="r", allow_pickle=False)

        return cls(**{field.name: opened(field) for field in fields(cls)})


@dataclass(frozen=True)
class PartScorer:
    """Makes a part of a trace of some questions, in this process or in a worker of a pool.

    Attributes:
        ranker: The ranker whose heads score.
    """

    ranker: EarlyExitRanker

    def __call__(self, frame: pd.DataFrame) -> TracePart:
        """Returns the part that a results frame becomes."""
        blocks = frames.Blocks.of(frame)
        found = self.ranker.head_scores(frame, blocks, Policy().resolve(self.ranker.head_layers), prune=False)
        if np.isnan(found.scores).any():
            raise ValueError("scores are NaN; the model's weights are broken (a diverged training?)")
        first = frame.iloc[np.unique(blocks.codes, return_index=True)[1]]
        queries = frames.filled(first, "query")[0].tolist()
        return TracePart(
            Strings.pack([str(qid) for qid in blocks.qids]),
            Strings.pack(queries),
            text_hashes(frame, np.split(found.rows, np.cumsum(blocks.sizes)[:-1]), self.ranker.text_field),
            self.ranker.has_seen(queries),
            blocks.sizes,
            Strings.pack(frame["docno"].astype(str).iloc[found.rows].tolist()),
            found.scores.astype(np.float32),
            found.tokens.astype(np.int32),
            np.broadcast_to(found.inputs, len(frame)).astype(np.int32),
        )


def text_hashes(frame: pd.DataFrame, questions: Sequence[np.ndarray], text_field: str) -> np.ndarray:
    """Returns a hash of the words of each question and of the texts of its candidates, ``(n_questions,)``.

    Args:
        frame: The candidates.
        questions: The rows of each question.
        text_field: The column with the text.
    """
    queries, texts = (frames.filled(frame, name)[0] for name in ("query", text_field))
    found = np.empty(len(questions), np.uint64)
    for number, rows in enumerate(questions):
        words = "\0".join([queries[rows[0]], *texts[rows]]).encode("utf-8", "surrogatepass")
        found[number] = int.from_bytes(hashlib.sha256(words).digest()[:8], "little")
    return found
