"""Traces: the scores of all heads for all candidates, from which any policy follows without the model."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.early_exit.certificate import Certificate
from pyterrier_cascade.early_exit.certify import certified
from pyterrier_cascade.early_exit.front import COLUMNS, behind_cut, identity_of
from pyterrier_cascade.early_exit.groups import batches, slabs
from pyterrier_cascade.early_exit.policy import Plan, policy_of
from pyterrier_cascade.early_exit.pruning import scores_in_turn
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker, HeadScores, layers_run, ranked_by
from pyterrier_cascade.early_exit.risks import FirstAnswerLost
from pyterrier_cascade.early_exit.sweep import Sweep, swept
from pyterrier_cascade.early_exit.trace_part import REMEDY, PartScorer, TracePart, text_hashes
from pyterrier_cascade.forks import cached_property
from pyterrier_cascade.pair_ranker import ROWS
from pyterrier_cascade.store import locks, parts
from pyterrier_cascade.store.parts import META
from pyterrier_cascade.store.publish import explaining_full_disk, publish_file, publishing_folder, sealed, sweep

LOCK = ".lock"
KIND = {"type": "cascade_trace", "format": "npy", "package_hint": "pyterrier_cascade", "version": 6}


class Trace(pt.Artifact):
    """The scores of all heads of a cascade for all candidates; ``cascade.trace(candidates)`` makes it.

    A trace gives the exact results of the cascade under any policy (alphas, counts, plans, batch sizes, roundings)
    without running the model again::

        trace = cascade.trace(candidates, "wikiqa.trace")
        trace.results(alpha=0.4)
        trace.sweep(qrels, [AP, P @ 1]).plot()

    With a front it gives those of the whole pipeline, at every cut::

        trace = cascade.trace(candidates, front=front)
        trace.results(k=50, alpha=0.4)          # those of front % 50 >> cascade(alpha=0.4)
        trace.sweep(qrels, [nDCG @ 10], ks=(20, 50, 100), alphas=(0.3, 0.4))
        trace.certify(ks=(20, 50, 100))

    With a path the trace is kept on disk, part by part. A call that was killed goes on where it stood when it is made
    again, and candidates of further questions are added. Where two processes record one trace, the second waits for the
    first and adds the questions that are still missing. A trace is small: for each candidate it holds an id and a few
    numbers, and no text.

    ``pt_meta.json`` lists the parts that count, and each part has checksums. They are compared before anything of a
    part is used: a part or a file that is lost, changed or exchanged is an error that names it.

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
        self.meta = parts.read_meta(self.path, KIND)
        self._parts: list[TracePart] = []

    @classmethod
    def record(
        cls,
        ranker: EarlyExitRanker,
        candidates: pd.DataFrame,
        path: str | Path | None = None,
        pool: Any = None,
        front: pt.Transformer | None = None,
    ) -> "Trace":
        """Returns the trace of a ranker over candidates. A trace at the path is completed by the questions it lacks.

        Args:
            ranker: A cascade or a sequential reranker; its policy has no effect on a trace.
            candidates: A results frame with texts.
            path: A folder to keep the trace in; it stays in memory unless given.
            pool: Workers that score (:class:`~pyterrier_cascade.RayPool`); this process unless given.
            front: The reranker that all candidates enter first, any transformer that scores and ranks them.
        """
        if front is not None and not isinstance(front, pt.Transformer):
            raise ValueError(f"front={front!r}: give a transformer that scores candidates, or None")
        frames.validate(candidates, context=ranker, text_field=ranker.text_field)
        for one in ranker.weight_holders():
            # On all candidates and not on the first ones, so that a trace that is completed later is of one model.
            one.calibrate_if_needed(candidates)
        meta = KIND | {
            "ranker": repr(ranker),
            "precision": ranker.computed_precision,
            "fingerprint": ranker.fingerprint(),
            "layers": list(ranker.head_layers),
            **dict(zip(("full_layers", "layer_size"), ranker.full_model(), strict=True)),
            "head_costs": list(map(float, ranker.head_costs(ranker.head_layers))),
            "reuses_encodings": ranker.reuses_encodings,
            "front": None if front is None else {"name": str(front), "fingerprint": identity_of(front)},
        }
        in_memory = contextlib.nullcontext(cls._in_memory(meta))
        with in_memory if path is None else cls._recording(Path(path), meta) as trace:
            trace._add(PartScorer(ranker, front), candidates, pool)
        return trace

    @classmethod
    def _in_memory(cls, meta: dict[str, Any]) -> "Trace":
        trace = cls.__new__(cls)
        pt.Artifact.__init__(trace, pt.Artifact.NO_PATH)
        trace.meta, trace._parts = meta, []
        return trace

    @classmethod
    @contextlib.contextmanager
    def _recording(cls, path: Path, meta: dict[str, Any]) -> "Iterator[Trace]":
        """Yields the trace at a path, made if it is not there, while nobody else writes to it.

        Raises:
            FileExistsError: If something else is at the path.
            ValueError: If the trace of another ranker is there.
        """
        if not (path / META).is_file() and (path.is_file() or (path.is_dir() and any(path.glob("[!.]*")))):
            raise FileExistsError(f"{str(path)!r} exists and is no trace; give another path")
        full = f"the disk with {str(path)!r} is full; what was scored is kept: make room, then run the same again"
        with explaining_full_disk(full):
            path.mkdir(parents=True, exist_ok=True)
            # A folder that nobody here can write to can be read, which needs no lock.
            with locks.alone(path / LOCK) if os.access(path, os.W_OK) else contextlib.nullcontext():
                sweep(path)
                if not (path / META).is_file():
                    publish_file(path / META, sealed(meta | {"parts": []}))
                trace = cls(path)
                if trace.meta["fingerprint"] != meta["fingerprint"]:
                    raise ValueError(
                        f"the trace at {str(path)!r} was made by {trace.meta['ranker']}, whose weights or settings are "
                        f"not those of {meta['ranker']}; give another path, or delete it"
                    )
                before, now = ((one["front"] or {}) for one in (trace.meta, meta))
                if before.get("fingerprint") != now.get("fingerprint"):
                    raise ValueError(
                        f"the trace at {str(path)!r} has {_front(before)}, which is not {_front(now)}; give another "
                        "path, or delete it"
                    )
                yield trace

    def _add(self, scorer: PartScorer, candidates: pd.DataFrame, pool: Any) -> None:
        """Scores the questions that are not in the trace; raises where a known one has other candidates or texts."""
        if not len(candidates):
            return
        blocks = frames.Blocks.of(candidates)
        known = {qid: number for number, qid in enumerate(self.qids)}
        rows = frames.ranking(candidates, blocks, np.zeros(len(candidates)))
        docnos = candidates["docno"].astype(str).to_numpy(dtype=object)
        qids, groups = list(map(str, blocks.qids)), np.split(rows, np.cumsum(blocks.sizes)[:-1])
        if len(set(qids)) < len(qids):
            twice = Counter(qids).most_common(1)[0][0]
            raise ValueError(f"question {twice!r} is there as a text and as a number; give all ids as texts")
        for qid, positions in zip(qids, groups, strict=True):
            if len(set(names := docnos[positions].tolist())) < len(names):
                twice = Counter(names).most_common(1)[0][0]
                raise ValueError(f"question {qid!r} has candidate {twice!r} more than once; a trace needs each once")
        again = [number for number, qid in enumerate(qids) if qid in known]
        texts = text_hashes(candidates, [groups[number] for number in again], scorer.ranker.text_field)
        for number, text in zip(again, texts, strict=True):
            qid, place = qids[number], known[qids[number]]
            if self.docnos[self.edges[place] : self.edges[place + 1]].tolist() != docnos[groups[number]].tolist():
                raise ValueError(f"question {qid!r} is in the trace with other candidates; give another path")
            if self.texts[place] != text:
                raise ValueError(f"question {qid!r} is in the trace with other words or texts; give another path")
        new = [positions for qid, positions in zip(qids, groups, strict=True) if qid not in known]
        if not new:
            return
        questions = np.repeat(np.arange(len(new)), [len(positions) for positions in new])
        rows = np.concatenate(new)
        # In the order in which they came, by which a front of another package may break its ties.
        units = (candidates.iloc[np.sort(rows[part])] for part in slabs(questions, ROWS))
        for part in map(scorer, units) if pool is None else pool.map(scorer, units):
            self._keep(part)

    def _keep(self, part: TracePart) -> None:
        if isinstance(self.path, Path):
            seals = self.meta["parts"]
            # A part that a killed process wrote and did not list does not count.
            with publishing_folder(self._place(len(seals)), overwrite=True) as folder:
                seal = part.write(folder)
            self.meta = self.meta | {"parts": [*seals, seal]}
            publish_file(self.path / META, sealed(self.meta))
        else:
            self._parts.append(part)
        self._forget()

    def _place(self, number: int) -> Path:
        return self.path / f"part-{number:05d}"

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
        full = f"the disk with {str(path)!r} is full; nothing was written: make room, then save the trace again"
        with explaining_full_disk(full), publishing_folder(path) as folder:
            seals = []
            for number, part in enumerate(self.parts):
                inner = folder / f"part-{number:05d}"
                inner.mkdir()
                seals.append(part.write(inner))
            meta = self.meta | {"parts": seals}
            (folder / META).write_bytes(sealed(meta))
        self.path, self.meta, self._parts = Path(path), meta, []
        self._forget()
        return self

    @cached_property
    def parts(self) -> list[TracePart]:
        """The parts in memory; those on disk are read, and compared to their checksums, when they are first needed."""
        if not isinstance(self.path, Path):
            return list(self._parts)
        with parts.refusing_forgeries(self.path, REMEDY):
            return [TracePart.open(self._place(number), seal) for number, seal in enumerate(self.meta["parts"])]

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
    def seen(self) -> np.ndarray:
        """Whether the ranker's heads learned from each question ``(n_questions,)``."""
        return self._numbers("seen", np.bool_)

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many candidates each question has ``(n_questions,)``."""
        return self._numbers("sizes", np.int64)

    @cached_property
    def tokens(self) -> np.ndarray:
        """The tokens of each candidate ``(n,)``."""
        return self._numbers("tokens", np.int32)

    @cached_property
    def inputs(self) -> np.ndarray:
        """The inputs of each candidate ``(n,)``; a long document may be several."""
        return self._numbers("inputs", np.int32)

    @cached_property
    def scores(self) -> np.ndarray:
        """The score of each candidate at each head ``(n, n_heads)``."""
        return self._numbers("scores", np.float32, len(self.layers))

    @property
    def front(self) -> str | None:
        """The name of the front; None where there is none."""
        return None if self.meta["front"] is None else self.meta["front"]["name"]

    @cached_property
    def front_scores(self) -> np.ndarray:
        """The score that the front gave to each candidate, NaN where it did not return it ``(n,)``."""
        return self._fronts("front_scores", np.float32, 1)[:, 0]

    @cached_property
    def front_ranks(self) -> np.ndarray:
        """The rank that the front gave to each candidate, from 0 ``(n,)``; a huge one where it did not return it."""
        return self._fronts("front_ranks", np.int32, 1)[:, 0]

    @cached_property
    def front_costs(self) -> np.ndarray:
        """The cost columns of each question behind the front ``(n_questions, 6)``."""
        return self._fronts("front_costs", np.float64, len(COLUMNS))

    def _fronts(self, name: str, dtype: type, width: int) -> np.ndarray:
        if self.meta["front"] is None:
            raise ValueError(
                "this trace has no front; record the whole pipeline by cascade.trace(candidates, front=front)"
            )
        return self._numbers(name, dtype, width)

    def entered(self, rows: np.ndarray, k: int | float | None) -> np.ndarray:
        """Returns which of some candidates enter the ranker, as numbers among them, in the order of its input.

        Args:
            rows: The candidates of some questions, whole questions, ascending.
            k: The cut behind the front; None for all candidates, without the front.
        """
        if k is None:
            return np.arange(len(rows))
        return behind_cut(self.questions[rows], self.front_ranks[rows], k)

    def layers_run(self, layers: Sequence[int]) -> np.ndarray:
        """Returns the layers that were run for a candidate that leaves at each of some heads ``(n_layers,)``.

        Args:
            layers: The heads of a plan.
        """
        costs = dict(zip(self.layers, self.meta["head_costs"], strict=True))
        return layers_run([costs[layer] for layer in layers], self.meta["reuses_encodings"])

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
        """Returns the path, the number of questions and candidates, and the layers of the heads."""
        where = f"{str(self.path)!r}, " if isinstance(self.path, Path) else ""
        front = f", behind {self.front}" if self.front else ""
        n = f"{len(self.sizes)} questions, {len(self)} candidates"
        return f"<Trace {where}{n}, heads at layers {self.layers}{front}>"

    def describe(self) -> dict[str, Any]:
        """Returns the description of the trace that ``python -m pyterrier_cascade info`` prints."""
        return {
            "kind": "trace",
            "questions": len(self.sizes),
            "candidates": len(self),
            "heads": list(self.layers),
            "layers": self.meta["full_layers"],
            "model": self.meta["ranker"],
            "front": self.front,
            "precision": self.meta["precision"],
            "fingerprint": self.meta["fingerprint"],
        }

    def __getstate__(self):
        """A trace on disk pickles as its path."""
        return {name: self.__dict__[name] for name in ("path", "meta", "_parts")}

    def results(
        self, alpha: float | Sequence[float] = 0.0, k: int | float | None = None, **policy: Any
    ) -> pd.DataFrame:
        """Returns the results of the cascade under a policy, without texts and further columns.

        Args:
            alpha: The fraction that each head but the last drops, or a fraction for each.
            k: The cut behind the front: how many candidates go on, or which share. Unless given, the cascade alone
                ranks all candidates.
            **policy: Further settings of :class:`~pyterrier_cascade.early_exit.policy.Policy`.
        """
        policy = policy_of(k, alpha=alpha, **policy)
        plan = policy.resolve(self.layers)
        rows = self.entered(np.arange(len(self)), k)
        questions = self.questions[rows]
        frame = pd.DataFrame(
            {"qid": self.qids[questions], "query": self.queries[questions], "docno": self.docnos[rows]}
        )
        if k is not None:
            frame = frame.assign(**dict(zip(COLUMNS, self.front_costs[questions].T, strict=True)))
        scores = self._pruned_scores(plan, rows)
        found = HeadScores(np.arange(len(rows)), scores, self.tokens[rows], self.inputs[rows])
        full_model = self.meta["full_layers"], self.meta["layer_size"]
        blocks = frames.Blocks.of(frame)
        return ranked_by(plan, found, frame, blocks, self.layers_run(plan.layers), full_model, policy.exited)

    def _pruned_scores(self, plan: Plan, rows: np.ndarray) -> np.ndarray:
        """Returns the scores at a plan's layers, NaN behind the layer where each candidate leaves."""
        heads = [self.layers.index(layer) for layer in plan.layers]
        scores = self.scores[:, heads][rows]
        return scores_in_turn(
            plan, batches(self.questions[rows], plan.batch_size), lambda number, alive: scores[alive, number]
        )

    def sweep(
        self,
        qrels: pd.DataFrame,
        measures: Sequence,
        alphas: Sequence | None = None,
        settings: Sequence[Mapping[str, Any]] | None = None,
        ks: Sequence | None = None,
        **policy: Any,
    ) -> Sweep:
        """Returns measures and costs under many settings.

        AP, RR, P, R, Success, nDCG, RelativeCost, RelativeTokenCost and Survival are computed for all settings at once;
        ir-measures computes other measures for one setting at a time.

        Args:
            qrels: The judgements.
            measures: One or several measures: those of ir-measures and of this package, or their names as
                ``pt.Experiment`` takes them.
            alphas: Numbers, or a tuple for each setting with a number for each head but the last; by default all
                combinations of .1 to .6, which are 1,296 for five heads (CT-61).
            settings: In place of ``alphas``, a dictionary for each setting: ``[{"counts": (50, 20)}, {"margin": 4}]``.
            ks: The cuts behind the front, each tried with all of these settings; None among them stands for the cascade
                without the front. By default 5, 10, 20, 50 and so on, and None; a setting may have a ``k`` of its own
                instead.
            **policy: Further settings of :class:`~pyterrier_cascade.early_exit.policy.Policy`, the same for all.
        """
        return swept(self, qrels, measures, alphas, settings, ks, policy)

    def certify(
        self,
        risk: Any = FirstAnswerLost(),
        at_most: float = 0.05,
        confidence: float = 0.95,
        *,
        qrels: pd.DataFrame | None = None,
        settings: Sequence[Mapping[str, Any]] | None = None,
        ks: Sequence | None = None,
        seed: int = 0,
        **policy: Any,
    ) -> Certificate:
        """Returns the cheapest setting whose risk on new queries is bounded, by Learn then Test.

        One half of the questions, drawn at random, chooses a path of settings from dear to cheap, each with the least
        risk at its cost. The other half tests them in this order until one does not pass; the last one that passed is
        certified. The bound holds, with the confidence asked for, for new queries that are drawn like those of the
        trace and have candidates of the same retriever. Questions with one candidate count too, although they can lose
        nothing; a trace with more of them than the new queries have is too easy.

        In a trace with a front, cuts and settings compete together, and the risk is against the full cascade over all
        candidates that entered the front. The path is chosen before the test and tested in its order, so that the bound
        holds however many of both compete. The certificate has the cut as ``k``, and its ``pipeline`` makes the
        pipeline.

        Args:
            risk: :class:`~pyterrier_cascade.FirstAnswerLost`, :class:`~pyterrier_cascade.TopLost` or
                :class:`~pyterrier_cascade.RankingLoss`, which need no labels; or, with ``qrels``, a measure from 0 to 1
                or its name, of which the loss against the full cascade is the risk.
            at_most: The largest risk, between 0 and 1.
            confidence: The probability, over the draw of questions, that the bound holds, between 0 and 1.
            qrels: The judgements for a measure; questions without any are left out.
            settings: The settings to choose from, a dictionary for each: ``[{"alpha": 0.3}, {"counts": (50, 20)}]``. By
                default all combinations of some alphas from 0 to .9, up to 3,000 (100 for measures that are not AP, RR,
                P, R, Success or nDCG).
            ks: The cuts behind the front that compete, as in :meth:`sweep`.
            seed: Of the draw of the halves; give one, and do not try several.
            **policy: Further settings of :class:`~pyterrier_cascade.early_exit.policy.Policy`, the same for all.
        """
        return certified(self, risk, at_most, confidence, qrels, settings, ks, seed, policy)


def _front(meta: Mapping[str, Any]) -> str:
    """Returns how an error names the front of a trace."""
    return f"the front {meta['name']}" if meta else "no front"
