"""Fronts: a reranker that all candidates enter first, and behind which a cut decides who enters the next ranker."""

import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.checks import is_count, shown
from pyterrier_cascade.early_exit.certificate import Certificate
from pyterrier_cascade.early_exit.cutoff import cutoff
from pyterrier_cascade.early_exit.pruning import survivors
from pyterrier_cascade.early_exit.rank_measures import NOWHERE
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker
from pyterrier_cascade.early_exit.rules.fraction import KeepFraction
from pyterrier_cascade.early_exit.stage import FusedStages, Stage
from pyterrier_cascade.identity import combined
from pyterrier_cascade.ranker import Ranker

CUTS = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""The cuts that are tried by default, as far as they are below the longest list; and no front at all."""

COLUMNS = tuple(frames.COST_COLUMNS)
"""The numbers that a front states for each question."""


def default_cuts(sizes: np.ndarray) -> list[int | None]:
    """Returns the cuts that are tried where the user names none; None stands for the pipeline without the front.

    Args:
        sizes: The number of candidates of each question.
    """
    most = int(sizes.max()) if len(sizes) else 0
    return [None, *(k for k in CUTS if k < most)]


def behind_cut(questions: np.ndarray, ranks: np.ndarray, k: int | float) -> np.ndarray:
    """Returns the candidates that a cut lets through, question by question in the front's order.

    Args:
        questions: The question of each candidate as a number, ascending ``(n,)``.
        ranks: The rank that the front gave it, :data:`NOWHERE` where it was not returned ``(n,)``.
        k: How many go on, or which share of those that the front returned.
    """
    order = np.lexsort((ranks, questions))
    order = order[ranks[order] < (k if is_count(k) else NOWHERE)]
    if is_count(k):
        return order
    return order[survivors([KeepFraction.of_kept(k)], questions[order], np.zeros(len(order)))]


@dataclass(frozen=True)
class FrontScores:
    """What a front says of candidates; with no front, nothing.

    Attributes:
        scores: The score of each candidate, NaN where it was not returned ``(n, n_fronts)``.
        ranks: Its rank, :data:`NOWHERE` where it was not returned ``(n, n_fronts)``.
        costs: For each question the values of :data:`COLUMNS`, ``(n_questions, n_fronts * 6)``.
    """

    scores: np.ndarray
    ranks: np.ndarray
    costs: np.ndarray

    @classmethod
    def none(cls, n: int, n_questions: int) -> "FrontScores":
        """Returns what there is without a front.

        Args:
            n: The number of candidates.
            n_questions: The number of questions.
        """
        return cls(np.empty((n, 0), np.float32), np.empty((n, 0), np.int32), np.empty((n_questions, 0)))

    @classmethod
    def of(
        cls, front: pt.Transformer, frame: pd.DataFrame, rows: np.ndarray, unstated: np.ndarray, text_field: str
    ) -> "FrontScores":
        """Returns what a front says of the candidates of a frame.

        Args:
            front: The front.
            frame: The candidates, each once in its question.
            rows: The positions of its rows, question by question ``(n,)``.
            unstated: The costs of each question where the front states none, as :data:`COLUMNS` ``(n_questions, 6)``.
            text_field: The column with the text, which no front may change.
        """
        out = front(frame)
        numbers = _numbers(front, frame, rows, out)
        _refuse_changes(front, frame.iloc[rows[numbers]], out, text_field)
        ranks, scores = np.full(len(rows), NOWHERE), np.full(len(rows), np.nan)
        ranks[numbers] = given = frames.numbers(out, "rank", missing=NOWHERE)
        scores[numbers] = frames.numbers(out, "score", missing=np.nan)
        codes = frames.Blocks.of(out).codes
        twice = pd.DataFrame({"qid": codes, "rank": given}).duplicated()
        if twice.any():
            row = int(np.argmax(twice))
            raise ValueError(
                f"the front {front!r} gave rank {given[row]:g} twice to candidates of qid {shown(out['qid'].iloc[row])}"
                "; a cut needs each rank once"
            )
        return cls(scores[:, None].astype(np.float32), ranks[:, None].astype(np.int32), _costs(out, frame, unstated))


def _numbers(front: pt.Transformer, frame: pd.DataFrame, rows: np.ndarray, out: pd.DataFrame) -> np.ndarray:
    """Returns the number of each returned candidate among the rows ``(n_returned,)``; raises for any other frame."""
    for name in ("qid", "docno", "score", "rank"):
        if name not in out.columns:
            raise ValueError(f"the front {front!r} returned no {name!r}; give a transformer that scores and ranks")
    given = frame[["qid", "docno"]].iloc[rows]
    known = {pair: number for number, pair in enumerate(zip(given["qid"], given["docno"], strict=True))}
    pairs = list(zip(out["qid"], out["docno"], strict=True))
    numbers = np.array([known.get(pair, -1) for pair in pairs], dtype=np.int64)
    if (numbers < 0).any():
        qid, docno = pairs[int(np.argmin(numbers))]
        raise ValueError(
            f"the front {front!r} returned {int((numbers < 0).sum())} candidates that it was not given, the first is "
            f"docno {shown(docno)} of qid {shown(qid)}; a front reranks, and retrieves nothing"
        )
    if len(set(pairs)) < len(pairs):
        raise ValueError(f"the front {front!r} returned a candidate more than once; a trace needs each once")
    return numbers


def _refuse_changes(front: pt.Transformer, given: pd.DataFrame, out: pd.DataFrame, text_field: str) -> None:
    """Raises where a front changed words: the next ranker would read others than a trace does."""
    for name in ("query", text_field):
        if name in out.columns:
            before, after = (frames.filled(frame, name)[0] for frame in (given, out))
            if (before != after).any():
                row = int(np.argmax(before != after))
                raise ValueError(
                    f"the front {front!r} changed {name!r} of qid {shown(out['qid'].iloc[row])}, docno "
                    f"{shown(out['docno'].iloc[row])}; put what changes words before the front"
                )


def _costs(out: pd.DataFrame, frame: pd.DataFrame, unstated: np.ndarray) -> np.ndarray:
    """Returns the costs that results state for each question of a frame ``(n_questions, 6)``."""
    costs = unstated.copy()
    if not all(name in out.columns for name in frames.COSTS):
        return costs
    first = out.drop_duplicates("qid")
    places = {qid: place for place, qid in enumerate(frames.Blocks.of(frame).qids)}
    stated = np.stack([first[name].to_numpy(dtype=float, na_value=np.nan) for name in frames.COSTS], 1)
    known = ~np.isnan(stated).any(1)
    at = np.array([places[qid] for qid in first["qid"]], dtype=np.int64)[known]
    costs[at, : len(frames.COSTS)] = stated[known]
    for column, name in enumerate(COLUMNS):
        if name in out.columns and name not in frames.COSTS:
            values = first[name].to_numpy(dtype=float, na_value=np.nan)[known]
            costs[at, column] = np.where(values > 0, values, costs[at, column])
    return costs


def identity_of(transformer: pt.Transformer) -> str:
    """Returns a hash of everything that a front's ranking depends on.

    Of this package's rankers, weights, settings and the states of stored documents are hashed. Another transformer is
    known by its ``fingerprint`` if it has one, or else by its ``repr``.

    Args:
        transformer: A transformer or a pipeline.
    """
    if isinstance(transformer, EarlyExitRanker):
        if transformer.deadline_ms is not None:
            raise ValueError(
                f"deadline_ms={transformer.deadline_ms!r} of {transformer!r} drops other candidates in every run; give "
                "a front without a deadline"
            )
        return _of_parts(transformer, transformer.fingerprint(), asdict(transformer.policy))
    if isinstance(transformer, Ranker):
        return transformer.fingerprint()
    if isinstance(transformer, Stage):
        return _of_parts(transformer, transformer.ranker.fingerprint(), transformer.layer)
    if isinstance(transformer, pt.Compose | FusedStages):
        parts = transformer.parts if isinstance(transformer, FusedStages) else transformer
        return _of_parts(transformer, *map(identity_of, parts))
    if parts := pt.inspect.subtransformers(transformer):
        named = {n: [identity_of(one) for one in np.atleast_1d(part)] for n, part in sorted(parts.items())}
        return _of_parts(transformer, named)
    known = getattr(transformer, "fingerprint", None)
    if known is None:
        # The place of an object in memory is another one in every process.
        known = re.sub(" at 0x[0-9a-f]+", "", repr(transformer))
    return _of_parts(transformer, known() if callable(known) else known)


def _of_parts(transformer: pt.Transformer, *parts: Any) -> str:
    return combined(type(transformer).__name__, *parts)


def certified_pipeline(
    certificate: Certificate, cascade: EarlyExitRanker, front: pt.Transformer | None, loader: pt.Transformer | None
) -> pt.Transformer:
    """Returns the pipeline that a certificate is for; the arguments are those of ``Certificate.pipeline``."""
    if certificate.fingerprint != cascade.fingerprint():
        raise ValueError(
            f"the certificate of {certificate.setting} is for other weights or settings than {cascade!r} has; certify "
            "a trace of this ranker"
        )
    ranker = cascade(**certificate.settings)
    if certificate.k is None:
        return ranker if loader is None else loader >> ranker
    if front is None:
        raise ValueError(
            f"the certificate of {certificate.setting} is behind the front {certificate.front}; give that front too"
        )
    if certificate.front_fingerprint != identity_of(front):
        raise ValueError(
            f"the certificate of {certificate.setting} is behind the front {certificate.front} as it was then, and "
            f"{front} has other weights, settings or stored documents; certify a trace with this front"
        )
    cut = front >> cutoff(certificate.k)
    return cut >> ranker if loader is None else cut >> loader >> ranker
