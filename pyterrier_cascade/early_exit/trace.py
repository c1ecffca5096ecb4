"""Traces: the scores of all heads for all candidates, from which any policy follows without the model."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.early_exit.groups import batches, slabs
from pyterrier_cascade.early_exit.policy import Plan, Policy
from pyterrier_cascade.early_exit.pruning import scores_in_turn
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker, HeadScores, layers_run, ranked_by
from pyterrier_cascade.early_exit.sweep import Sweep, swept
from pyterrier_cascade.pair_ranker import ROWS
from pyterrier_cascade.store.strings import Strings

META = "pt_meta.json"
KIND = {"type": "cascade_trace", "format": "npy", "package_hint": "pyterrier_cascade", "version": 2}


@dataclass(frozen=True)
class TracePart:
    """Some questions of a trace, one after the other, each with its candidates in the order of the input.

    Attributes:
        qids: The ids of the questions.
        queries: The words of each question.
        texts: A hash of each question's words and of its candidates' texts ``(n_questions,)``.
        sizes: The number of candidates of each question ``(n_questions,)``.
        docnos: The ids of the candidates.
        scores: The scores of the candidates at all heads ``(n, n_heads)``.
        tokens: The number of tokens of each candidate ``(n,)``.
    """

    qids: Strings
    queries: Strings
    texts: np.ndarray
    sizes: np.ndarray
    docnos: Strings
    scores: np.ndarray
    tokens: np.ndarray

    def save(self, folder: Path) -> None:
        """Writes a folder that is there whole or not at all."""
        with pt.io.finalized_directory(str(folder)) as unfinished:
            for name, value in vars(self).items():
                if isinstance(value, Strings):
                    value.save(Path(unfinished), name)
                else:
                    np.save(Path(unfinished) / f"{name}.npy", value, allow_pickle=False)

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
        return TracePart(
            Strings.pack([str(qid) for qid in blocks.qids]),
            Strings.pack(first["query"].fillna("").tolist()),
            text_hashes(frame, np.split(found.rows, np.cumsum(blocks.sizes)[:-1]), self.ranker.text_field),
            blocks.sizes,
            Strings.pack(frame["docno"].astype(str).iloc[found.rows].tolist()),
            found.scores.astype(np.float32),
            found.tokens.astype(np.int32),
        )


def text_hashes(frame: pd.DataFrame, questions: Sequence[np.ndarray], text_field: str) -> np.ndarray:
    """Returns a hash of the words of each question and of the texts of its candidates, ``(n_questions,)``.

    Args:
        frame: The candidates.
        questions: The rows of each question.
        text_field: The column with the text.
    """
    queries, texts = (frame[name].fillna("").to_numpy(dtype=object) for name in ("query", text_field))
    found = np.empty(len(questions), np.uint64)
    for number, rows in enumerate(questions):
        words = "\0".join([queries[rows[0]], *texts[rows]]).encode("utf-8", "surrogatepass")
        found[number] = int.from_bytes(hashlib.sha256(words).digest()[:8], "little")
    return found


class Trace(pt.Artifact):
    """The scores of all heads of a cascade for all candidates; ``cascade.trace(candidates)`` makes it.

    A trace gives the exact results of the cascade under any policy (alphas, counts, plans, batch sizes, roundings)
    without running the model again::

        trace = cascade.trace(candidates, "wikiqa.trace")
        trace.results(alpha=0.4)
        trace.sweep(qrels, [AP, P @ 1]).plot()

    With a path the trace is kept on disk, part by part. A call that was killed goes on where it stood when it is made
    again, and candidates of further questions are added. A trace is small: for each candidate it holds an id and a few
    numbers, and no text.

    Args:
        path: The folder of a trace.
    """

    ARTIFACT_TYPE = "cascade_trace"
    ARTIFACT_FORMAT = "npy"
    ARTIFACT_PACKAGE_HINT = "pyterrier_cascade"

    def __init__(self, path: str | Path):
        super().__init__(path)
        if not (self.path / META).is_file():
            raise FileNotFoundError(f"no trace at {str(path)!r}; make one with cascade.trace(candidates, path)")
        self.meta = json.loads((self.path / META).read_text(encoding="utf-8"))
        if any(self.meta.get(key) != KIND[key] for key in ("type", "format", "version")):
            seen = ", ".join(f"{key} {self.meta.get(key)!r}" for key in ("type", "format", "version"))
            raise ValueError(f"{str(path)!r} holds {seen}; this reads cascade_trace, npy, version 2")
        self._parts: list[TracePart] = []

    @classmethod
    def record(
        cls, ranker: EarlyExitRanker, candidates: pd.DataFrame, path: str | Path | None = None, pool: Any = None
    ) -> "Trace":
        """Returns the trace of a ranker over candidates. A trace at the path is completed by the questions it lacks.

        Args:
            ranker: A cascade or a sequential reranker; its policy has no effect on a trace.
            candidates: A results frame with texts.
            path: A folder to keep the trace in; it stays in memory unless given.
            pool: Workers that score (:class:`~pyterrier_cascade.RayPool`); this process unless given.
        """
        frames.validate(candidates, context=ranker, text_field=ranker.text_field)
        for one in ranker.weight_holders():
            # On all candidates and not on the first ones, so that a trace that is completed later is of one model.
            one.calibrate_if_needed(candidates)
        meta = KIND | {
            "ranker": repr(ranker),
            "fingerprint": ranker.fingerprint(),
            "layers": list(ranker.head_layers),
            "full_layers": ranker.full_layers,
            "reuses_encodings": ranker.reuses_encodings,
        }
        if path is None:
            trace = cls.__new__(cls)
            pt.Artifact.__init__(trace, pt.Artifact.NO_PATH)
            trace.meta, trace._parts = meta, []
        elif (Path(path) / META).is_file():
            trace = cls(path)
            if trace.meta["fingerprint"] != meta["fingerprint"]:
                raise ValueError(
                    f"the trace at {str(path)!r} was made by {trace.meta['ranker']}, whose weights or settings are "
                    f"not those of {meta['ranker']}; give another path, or delete it"
                )
        else:
            if Path(path).exists() and (not Path(path).is_dir() or any(Path(path).iterdir())):
                raise FileExistsError(f"{str(path)!r} exists and is no trace; give another path")
            Path(path).mkdir(parents=True, exist_ok=True)
            with pt.io.finalized_open(str(Path(path) / META), "t") as file:
                json.dump(meta, file, indent=1)
            trace = cls(path)
        if path is not None:
            # A process that died while it wrote a part left these.
            for unfinished in trace.path.glob(".part-*.tmp"):
                shutil.rmtree(unfinished)
        trace._add(ranker, candidates, pool)
        return trace

    def _add(self, ranker: EarlyExitRanker, candidates: pd.DataFrame, pool: Any) -> None:
        if not len(candidates):
            return
        blocks = frames.Blocks.of(candidates)
        known = {qid: number for number, qid in enumerate(self.qids)}
        rows = frames.ranking(candidates, blocks, np.zeros(len(candidates)))
        docnos = candidates["docno"].astype(str).to_numpy(dtype=object)
        qids, groups = list(map(str, blocks.qids)), np.split(rows, np.cumsum(blocks.sizes)[:-1])
        again = [number for number, qid in enumerate(qids) if qid in known]
        read = text_hashes(candidates, [groups[number] for number in again], ranker.text_field)
        new, texts = [], dict(zip(again, read, strict=True))
        for number, (qid, positions) in enumerate(zip(qids, groups, strict=True)):
            names = docnos[positions].tolist()
            if len(set(names)) < len(names):
                twice = next(name for name, count in Counter(names).items() if count > 1)
                raise ValueError(f"question {qid!r} has candidate {twice!r} more than once; a trace needs each once")
            if qid not in known:
                new.append(positions)
            elif self.docnos[self.edges[known[qid]] : self.edges[known[qid] + 1]].tolist() != names:
                raise ValueError(f"question {qid!r} is in the trace with other candidates; give another path")
            elif self.texts[known[qid]] != texts[number]:
                raise ValueError(f"question {qid!r} is in the trace with other words or texts; give another path")
        if not new:
            return
        questions = np.repeat(np.arange(len(new)), [len(positions) for positions in new])
        rows = np.concatenate(new)
        units = (candidates.iloc[rows[part]] for part in slabs(questions, ROWS))
        for part in map(PartScorer(ranker), units) if pool is None else pool.map(PartScorer(ranker), units):
            self._keep(part)

    def _keep(self, part: TracePart) -> None:
        if isinstance(self.path, Path):
            part.save(self.path / f"part-{len(self.parts):05d}")
        else:
            self._parts.append(part)
        self._forget()

    def _forget(self) -> None:
        for name, value in vars(Trace).items():
            if isinstance(value, cached_property):
                self.__dict__.pop(name, None)

    def save(self, path: str | Path) -> "Trace":
        """Writes a trace that is in memory to a folder and returns it; from then on it lives there.

        Args:
            path: A folder that is not there yet.
        """
        if Path(path).exists():
            raise FileExistsError(f"{str(path)!r} exists; give another path, or delete it")
        Path(path).mkdir(parents=True)
        for number, part in enumerate(self.parts):
            part.save(Path(path) / f"part-{number:05d}")
        (Path(path) / META).write_text(json.dumps(self.meta, indent=1), encoding="utf-8")
        self.path, self._parts = Path(path), []
        self._forget()
        return self

    @cached_property
    def parts(self) -> list[TracePart]:
        """The parts, those on disk memory-mapped."""
        if not isinstance(self.path, Path):
            return list(self._parts)
        return [TracePart.open(folder) for folder in sorted(self.path.glob("part-*"))]

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that the heads read."""
        return tuple(self.meta["layers"])

    @cached_property
    def qids(self) -> np.ndarray:
        """The ids of the questions ``(n_questions,)``."""
        return self._strings("qids")

    @cached_property
    def queries(self) -> np.ndarray:
        """Their words ``(n_questions,)``."""
        return self._strings("queries")

    @cached_property
    def docnos(self) -> np.ndarray:
        """The ids of the candidates, question by question, each in their own order ``(n,)``."""
        return self._strings("docnos")

    @cached_property
    def texts(self) -> np.ndarray:
        """A hash of the words of each question and the texts of its candidates ``(n_questions,)``."""
        return self._numbers("texts", np.uint64)

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many candidates each question has ``(n_questions,)``."""
        return self._numbers("sizes", np.int64)

    @cached_property
    def tokens(self) -> np.ndarray:
        """The tokens of each candidate ``(n,)``."""
        return self._numbers("tokens", np.int32)

    @cached_property
    def scores(self) -> np.ndarray:
        """The score of each candidate at each head ``(n, n_heads)``."""
        return self._numbers("scores", np.float32, len(self.layers))

    @cached_property
    def edges(self) -> np.ndarray:
        """Where the candidates of each question begin, and the last ones end ``(n_questions + 1,)``."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @cached_property
    def questions(self) -> np.ndarray:
        """The question of each candidate as a number, ascending ``(n,)``."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def _strings(self, name: str) -> np.ndarray:
        found = [getattr(part, name) for part in self.parts]
        return np.concatenate([np.empty(0, object), *(strings.take(np.arange(len(strings))) for strings in found)])

    def _numbers(self, name: str, dtype: type, *width: int) -> np.ndarray:
        found = [getattr(part, name) for part in self.parts]
        return found[0] if len(found) == 1 else np.concatenate([np.empty((0, *width), dtype), *found])

    def __len__(self) -> int:
        """Returns the number of candidates."""
        return len(self.tokens)

    def __repr__(self):
        """Returns what is in it."""
        where = f"{str(self.path)!r}, " if isinstance(self.path, Path) else ""
        return f"<Trace {where}{len(self.sizes)} questions, {len(self)} candidates, heads at layers {self.layers}>"

    def __getstate__(self):
        """One on disk pickles as its path."""
        return {name: self.__dict__[name] for name in ("path", "meta", "_parts")}

    def results(self, alpha: float | Sequence[float] = 0.0, **policy: Any) -> pd.DataFrame:
        """Returns the results of the cascade under a policy, without texts and further columns.

        Args:
            alpha: The fraction that each head but the last drops, or a fraction for each.
            **policy: Further settings of :class:`~pyterrier_cascade.early_exit.policy.Policy`.
        """
        policy = Policy(alpha, **policy)
        plan = policy.resolve(self.layers)
        frame = pd.DataFrame(
            {"qid": self.qids[self.questions], "query": self.queries[self.questions], "docno": self.docnos}
        )
        run = layers_run(plan.layers, self.meta["reuses_encodings"])
        found = HeadScores(np.arange(len(self)), self._pruned_scores(plan), self.tokens)
        blocks = frames.Blocks.of(frame)
        return ranked_by(plan, found, frame, blocks, run, self.meta["full_layers"], policy.exited)

    def _pruned_scores(self, plan: Plan) -> np.ndarray:
        """Returns the scores at a plan's layers, NaN behind the layer where each candidate leaves."""
        heads = [self.layers.index(layer) for layer in plan.layers]
        groups = batches(self.questions, plan.batch_size)
        return scores_in_turn(plan, groups, lambda number, alive: self.scores[alive, heads[number]])

    def sweep(self, qrels: pd.DataFrame, measures: Sequence, alphas: Sequence | None = None, **policy: Any) -> Sweep:
        """Returns measures and costs under many settings of alpha.

        AP, RR, P, R, Success, nDCG, RelativeCost, RelativeTokenCost and Survival are computed for all settings at once;
        ir-measures computes other measures for one setting at a time.

        Args:
            qrels: The judgements.
            measures: One or several measures: those of ir-measures and of this package, or their names as
                ``pt.Experiment`` takes them.
            alphas: Numbers, or a tuple for each setting with a number for each head but the last; by default all
                combinations of .1 to .6, which are 1,296 for five heads (CT-61).
            **policy: Further settings of :class:`~pyterrier_cascade.early_exit.policy.Policy`, the same for all.
        """
        return swept(self, qrels, measures, alphas, Policy(**policy))
