"""Score once, cascade anything: the scores of all heads, from which any cascade follows without the model."""

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
from pyterrier_cascade.early_exit import pruning
from pyterrier_cascade.early_exit.ranker import Judged, Plan, Staged, assembled, check_plan, layers_run
from pyterrier_cascade.early_exit.sweep import Sweep, swept
from pyterrier_cascade.encoder.openvino_executor import CALIBRATED, CALIBRATION
from pyterrier_cascade.pair_ranker import ROWS
from pyterrier_cascade.store.strings import Strings

META = "pt_meta.json"
KIND = {"type": "cascade_trace", "format": "npy", "package_hint": "pyterrier_cascade", "version": 2}


@dataclass(frozen=True)
class Part:
    """Some questions of a trace, one after the other, each with its candidates in their own order.

    Attributes:
        qids: The questions' ids.
        queries: Their words.
        texts: A hash of each one's words and of its candidates' texts ``(n_questions,)``.
        sizes: How many candidates each has ``(n_questions,)``.
        docnos: The candidates' ids.
        scores: Their scores at all heads ``(n, n_heads)``.
        tokens: Their tokens ``(n,)``.
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
    def open(cls, folder: Path) -> "Part":
        """Returns the part in a folder, memory-mapped."""

        def opened(field):
            if field.type is Strings:
                return Strings.open(folder, field.name)
            return np.load(folder / f"{field.name}.npy", mmap_mode="r", allow_pickle=False)

        return cls(**{field.name: opened(field) for field in fields(cls)})


@dataclass(frozen=True)
class Judging:
    """What is done to some questions' candidates, here or on another machine: all heads say their scores.

    Attributes:
        ranker: Whose heads.
    """

    ranker: Staged

    def __call__(self, frame: pd.DataFrame) -> Part:
        """Returns the part of a trace that a results frame becomes."""
        blocks = frames.Blocks.of(frame)
        judged = self.ranker.judge(frame, blocks, Plan.of(self.ranker.head_layers), prune=False)
        if np.isnan(judged.scores).any():
            raise ValueError("scores are NaN; the model's weights are broken (a diverged training?)")
        first = frame.iloc[np.unique(blocks.codes, return_index=True)[1]]
        return Part(
            Strings.pack([str(qid) for qid in blocks.qids]),
            Strings.pack(first["query"].fillna("").tolist()),
            hashes(frame, np.split(judged.rows, np.cumsum(blocks.sizes)[:-1]), self.ranker.text_field),
            blocks.sizes,
            Strings.pack(frame["docno"].astype(str).iloc[judged.rows].tolist()),
            judged.scores.astype(np.float32),
            judged.tokens.astype(np.int32),
        )


def hashes(frame: pd.DataFrame, questions: Sequence[np.ndarray], text_field: str) -> np.ndarray:
    """Returns a hash of the words of each question and the texts of its candidates, ``(n_questions,)``.

    Args:
        frame: The candidates.
        questions: The rows of each.
        text_field: The column with the text.
    """
    queries, texts = (frame[name].fillna("").to_numpy(dtype=object) for name in ("query", text_field))
    found = np.empty(len(questions), np.uint64)
    for number, rows in enumerate(questions):
        words = "\0".join([queries[rows[0]], *texts[rows]]).encode("utf-8", "surrogatepass")
        found[number] = int.from_bytes(hashlib.sha256(words).digest()[:8], "little")
    return found


class Trace(pt.Artifact):
    """The scores that all heads of a cascade give to all candidates; ``cascade.trace(candidates)`` makes it.

    From it follows, exactly as the model would say it and without the model, what any alphas, counts, plans, batch
    sizes and roundings give::

        trace = cascade.trace(candidates, "wikiqa.trace")
        trace.results(alpha=0.4)
        trace.sweep(qrels, [AP, P @ 1]).plot()

    With a path it is kept on disk, a part at a time: what was killed goes on where it stood when it is called again,
    and candidates of further questions are added. It is small: an id, a few numbers for each candidate, no text.

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
        self._parts: list[Part] = []

    @classmethod
    def record(
        cls, ranker: Staged, candidates: pd.DataFrame, path: str | Path | None = None, pool: Any = None
    ) -> "Trace":
        """Returns the trace of a ranker over candidates, or the one at the path with those added that it lacks.

        Args:
            ranker: A cascade or a sequential reranker; its alpha, counts, plan and so on say nothing here.
            candidates: A results frame with texts.
            path: A folder to keep it in; in memory unless given.
            pool: Whose workers score (:class:`~pyterrier_cascade.RayPool`); this process unless given.
        """
        frames.validate(candidates, context=ranker, text_field=ranker.text_field)
        for one in getattr(ranker, "models", (ranker,)):
            # Of all candidates and not of the first ones, so that a trace that is gone on with is of one model.
            if one.precision in CALIBRATED and not one.calibrated_on() and len(candidates) >= CALIBRATION[0]:
                one.calibrate(candidates)
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
            # What a process leaves that dies while it writes.
            for unfinished in trace.path.glob(".part-*.tmp"):
                shutil.rmtree(unfinished)
        trace._add(ranker, candidates, pool)
        return trace

    def _add(self, ranker: Staged, candidates: pd.DataFrame, pool: Any) -> None:
        if not len(candidates):
            return
        blocks = frames.Blocks.of(candidates)
        known = {qid: number for number, qid in enumerate(self.qids)}
        rows = frames.ranking(candidates, blocks, np.zeros(len(candidates)))
        docnos = candidates["docno"].astype(str).to_numpy(dtype=object)
        qids, groups = list(map(str, blocks.qids)), np.split(rows, np.cumsum(blocks.sizes)[:-1])
        again = [number for number, qid in enumerate(qids) if qid in known]
        read = hashes(candidates, [groups[number] for number in again], ranker.text_field)
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
        units = (candidates.iloc[rows[part]] for part in pruning.slabs(questions, ROWS))
        for part in map(Judging(ranker), units) if pool is None else pool.map(Judging(ranker), units):
            self._keep(part)

    def _keep(self, part: Part) -> None:
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
        """Writes a trace that is in memory to a folder, where it lives from then on, and returns it.

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
    def parts(self) -> list[Part]:
        """The parts, those on disk memory-mapped."""
        if not isinstance(self.path, Path):
            return list(self._parts)
        return [Part.open(folder) for folder in sorted(self.path.glob("part-*"))]

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

    def results(
        self,
        alpha: float | Sequence[float] = 0.0,
        *,
        counts: Sequence[int] | None = None,
        plan: Sequence[int] | None = None,
        batch_size: int | None = None,
        rounding: str = "floor",
        exited: str = "below",
    ) -> pd.DataFrame:
        """Returns what the cascade returns with these settings, without texts and further columns.

        Args:
            alpha: What each head but the last drops; these and the others as in :class:`~pyterrier_cascade.Cascade`.
            counts: What each keeps instead.
            plan: The layers whose heads are asked.
            batch_size: How many candidates are judged together.
            rounding: How shares become numbers.
            exited: What becomes of those that leave early.
        """
        check_plan(alpha, counts, plan, batch_size, rounding, exited)
        plan = Plan.of(self.layers, alpha, counts, plan, batch_size, rounding)
        frame = pd.DataFrame(
            {"qid": self.qids[self.questions], "query": self.queries[self.questions], "docno": self.docnos}
        )
        spent = layers_run(plan.layers, self.meta["reuses_encodings"])
        judged = Judged(np.arange(len(self)), self._pruned(plan), self.tokens)
        return assembled(frame, frames.Blocks.of(frame), judged, plan, spent, self.meta["full_layers"], exited)

    def _pruned(self, plan: Plan) -> np.ndarray:
        """Returns the scores at a plan's layers, NaN behind the one where each candidate leaves."""
        heads = [self.layers.index(layer) for layer in plan.layers]
        groups = pruning.batches(self.questions, plan.batch_size)
        return pruning.in_turn(
            groups, plan.cutoffs, plan.rounding, lambda number, alive: self.scores[alive, heads[number]]
        )

    def sweep(
        self,
        qrels: pd.DataFrame,
        measures: Sequence,
        alphas: Sequence | None = None,
        *,
        plan: Sequence[int] | None = None,
        batch_size: int | None = None,
        rounding: str = "floor",
        exited: str = "below",
    ) -> Sweep:
        """Returns measures and costs under many settings of alpha.

        AP, RR, P, R, Success, nDCG, RelativeCost, RelativeTokenCost and Survival are computed at once for all settings;
        others one setting at a time by ir-measures.

        Args:
            qrels: The judgements.
            measures: Measures of ir-measures, or one of them.
            alphas: Numbers, or a tuple for each setting with a number for each head but the last; by default all
                combinations of .1 to .6, which are 1,296 for five heads (CT-61).
            plan: The layers whose heads are asked.
            batch_size: How many candidates are judged together.
            rounding: How shares become numbers.
            exited: What becomes of those that leave early.
        """
        check_plan(0, None, plan, batch_size, rounding, exited)
        return swept(self, qrels, measures, alphas, plan, batch_size, rounding, exited)
