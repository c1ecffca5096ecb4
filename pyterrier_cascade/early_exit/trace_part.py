"""A part of a trace: some questions, scored by all heads and kept in a folder."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.early_exit.front import FrontScores
from pyterrier_cascade.early_exit.policy import Policy
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker
from pyterrier_cascade.store import parts, publish
from pyterrier_cascade.store.strings import Strings

REMEDY = "copy the trace again, or delete its folder and record it again"


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
        front_scores: The score that the front gave to each candidate ``(n, n_fronts)``; there is one front, or none.
        front_ranks: Its rank likewise.
        front_costs: What the front states for each question ``(n_questions, n_fronts * 6)``.
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
    front_scores: np.ndarray
    front_ranks: np.ndarray
    front_costs: np.ndarray

    def write(self, folder: Path) -> str:
        """Writes the part's files into an empty folder, and returns the seal by which the trace knows the part."""
        for name, value in vars(self).items():
            if isinstance(value, Strings):
                value.save(folder, name)
            else:
                np.save(folder / f"{name}.npy", value, allow_pickle=False)
        return parts.seal_part(folder)

    @classmethod
    def open(cls, folder: Path, seal: str) -> "TracePart":
        """Returns the part in a folder, read into memory and compared to its checksums.

        Args:
            folder: The folder.
            seal: The seal of the part.

        Raises:
            Damaged: If a file is missing or not what was written, or the part is another one.
        """
        try:
            meta = publish.read_sealed(folder / parts.FILES)
        except (ValueError, OSError) as error:
            raise publish.Damaged(f"{str(folder / parts.FILES)!r} is missing or damaged; {REMEDY}") from error
        if meta[publish.SEAL] != seal:
            raise publish.Damaged(f"{str(folder)!r} is not the part that was written; {REMEDY}")

        def opened(field):
            if field.type is Strings:
                return Strings(*(array(f"{field.name}.{part}") for part in ("bytes", "ends")))
            return array(field.name)

        def array(name):
            return parts.array(folder, name, meta["files"], REMEDY)

        with parts.refusing_forgeries(folder, REMEDY):
            return cls(**{field.name: opened(field) for field in fields(cls)})


@dataclass(frozen=True)
class PartScorer:
    """Makes a part of a trace of some questions, in this process or in a worker of a pool.

    Attributes:
        ranker: The ranker whose heads score.
        front: The reranker before it, if there is one.
    """

    ranker: EarlyExitRanker
    front: pt.Transformer | None = None

    def __call__(self, frame: pd.DataFrame) -> TracePart:
        """Returns the part that a results frame becomes."""
        blocks = frames.Blocks.of(frame)
        found = self.ranker.head_scores(frame, blocks, Policy().resolve(self.ranker.head_layers), prune=False)
        first = frame.iloc[np.unique(blocks.codes, return_index=True)[1]]
        queries = frames.filled(first, "query")[0].tolist()
        tokens, inputs = found.tokens.astype(np.int32), np.broadcast_to(found.inputs, len(frame)).astype(np.int32)
        fronted = self._fronted(frame, blocks, found.rows, inputs, tokens)
        return TracePart(
            Strings.pack([str(qid) for qid in blocks.qids]),
            Strings.pack(queries),
            text_hashes(frame, np.split(found.rows, np.cumsum(blocks.sizes)[:-1]), self.ranker.text_field),
            self._seen(queries),
            blocks.sizes,
            Strings.pack(frame["docno"].astype(str).iloc[found.rows].tolist()),
            found.scores.astype(np.float32),
            tokens,
            inputs,
            fronted.scores,
            fronted.ranks,
            fronted.costs,
        )

    def _fronted(
        self, frame: pd.DataFrame, blocks: frames.Blocks, rows: np.ndarray, inputs: np.ndarray, tokens: np.ndarray
    ) -> FrontScores:
        """Returns what the front says of the candidates."""
        if self.front is None:
            return FrontScores.none(len(frame), len(blocks))
        layers, size = self.ranker.full_model()
        whole = [layers * np.bincount(blocks.codes[rows], one, len(blocks)) for one in (inputs, tokens)]
        nothing, ones = np.zeros(len(blocks)), np.ones(len(blocks))
        # A front that states no costs counts as nothing, and the whole is this ranker over all candidates.
        unstated = np.stack([nothing, whole[0], nothing, whole[1], layers * ones, size * ones], 1)
        return FrontScores.of(self.front, frame, rows, unstated, self.ranker.text_field)

    def _seen(self, queries: list[str]) -> np.ndarray:
        """Returns whether the ranker or the front learned from each query, as far as they remember."""
        seen = self.ranker.has_seen(queries)
        return seen | self.front.has_seen(queries) if isinstance(self.front, EarlyExitRanker) else seen


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
        digest = hashlib.sha256()
        for text in (queries[rows[0]], *texts[rows]):
            words = text.encode("utf-8", "surrogatepass")
            # The length tells two texts from one text that holds both, whatever letters stand between.
            digest.update(len(words).to_bytes(8, "little") + words)
        found[number] = int.from_bytes(digest.digest()[:8], "little")
    return found
