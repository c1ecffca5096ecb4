"""A cascade written as a pipeline, ``ranker[4] % 0.6 >> ranker[6] % 20 >> ranker[12]``, and its compiled form."""

import itertools
from collections.abc import Sequence

import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.checks import is_count
from pyterrier_cascade.early_exit.cutoff import Cutoff, cutoff
from pyterrier_cascade.early_exit.handover import Handover, Mark
from pyterrier_cascade.early_exit.policy import Plan
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker
from pyterrier_cascade.early_exit.rules.base import Rule
from pyterrier_cascade.early_exit.rules.count import KeepCount
from pyterrier_cascade.ranker import HELP_URL

MARK = "pyterrier_cascade"
"""The attribute of a frame that holds a :class:`~pyterrier_cascade.early_exit.handover.Mark`, while pandas keeps it."""


class _Pipeline(pt.Transformer):
    """Stages and cutoffs of one ranker, one after the other."""

    parts: Sequence[pt.Transformer]

    @property
    def stages(self) -> "list[Stage]":
        """The stages among the parts."""
        return [part for part in self.parts if isinstance(part, Stage)]

    def __mod__(self, kept: float) -> "FusedStages":
        """Returns these parts with a cutoff behind them: ``% 20`` keeps 20 candidates, ``% 0.6`` keeps 60% of them."""
        return FusedStages(*self.parts, cutoff(kept, self.stages[-1].ranker.policy.rounding))

    def __rshift__(self, right: pt.Transformer) -> pt.Transformer:
        """Returns these parts and what follows, as one transformer where that is possible."""
        fused = self.fuse_right(right)
        return super().__rshift__(right) if fused is None else fused

    def fuse_right(self, right: pt.Transformer) -> "FusedStages | None":
        """Returns these parts and what follows as one transformer where that is possible, else None."""
        more = right.parts if isinstance(right, _Pipeline) else (right,)
        if isinstance(more[0], Stage):
            before = self.stages[-1]
            _check_order(repr(before.ranker.weights), before.layer, more[0])
            if before.ranker != more[0].ranker:
                return None
        elif not isinstance(right, pt.RankCutoff | Cutoff):
            return None
        return FusedStages(*self.parts, *more)

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the candidates of each query with new scores and ranks.

        Args:
            inp: A results frame with ``qid``, ``query``, ``docno`` and the text.
        """
        stages = self.stages
        ranker = stages[0].ranker
        frames.validate(inp, context=self.parts[0], text_field=ranker.text_field)
        before = inp.attrs.get(MARK)
        if before is not None:
            _check_order(*before, stages[0])
        if not len(inp):
            return ranker(inp)
        plan = self._plan(ranker)
        leaves = ranker.reuses_encodings and plan.layers[-1] < ranker.head_layers[-1]
        handover = Handover(getattr(before, "left", None), leaves)
        found = ranker.follow(inp, frames.Blocks.of(inp), plan, "drop", handover)
        handover.warn(len(inp))
        found.attrs[MARK] = Mark(repr(ranker.weights), plan.layers[-1], handover.left)
        return found

    def _plan(self, ranker: EarlyExitRanker) -> Plan:
        check_no_batches(ranker)
        rules: list[list[Rule]] = []
        for part in self.parts:
            if isinstance(part, Stage):
                rules.append([])
            else:
                rules[-1].append(KeepCount(part.k) if isinstance(part, pt.RankCutoff) else part.rule())
        heads = ranker.head_layers
        for before, after in itertools.pairwise(self.stages):
            # Stages of equal rankers were fused, and one of the two may have been trained since.
            _check_order(repr(before.ranker.weights), before.layer, after)
        for stage in self.stages:
            if stage.layer not in heads:
                raise ValueError(f"there is no stage {stage.layer}: {ranker!r} has heads at layers {heads}")
        return Plan(tuple(stage.layer for stage in self.stages), tuple(map(tuple, rules)))

    def subtransformers(self) -> dict:
        """Returns no inner transformers: PyTerrier draws the stages as one box."""
        return {}


class Stage(_Pipeline):
    """Ranks by the head after one layer; ``ranker[4]`` makes it.

    ``%`` behind it takes a fraction or a number. Stages and cutoffs that are joined by ``>>`` become one transformer,
    :class:`FusedStages`. Where another transformer stands before them or between them, as in ``bm25 >> ranker[4] % 0.6
    >> ranker[12]``, each stage hands the states of its candidates to the next one along with its frame, so that no
    layer is run twice. Up to 1 GB of states are handed over; candidates that find no room begin again at layer 1, with
    a warning. ``compile()`` fuses the stages of such a pipeline too, and then nothing is handed over. Rows and scores
    are always the same.

    Args:
        ranker: A cascade or a sequential reranker. A stage uses its weights and its ``rounding``; its alpha, counts,
            plan and exited have no effect here, and a ``batch_size`` is an error.
        layer: The layer that the head reads.
    """

    def __init__(self, ranker: EarlyExitRanker, layer: int):
        if not is_count(layer):
            raise ValueError(f"there is no stage {layer!r}: give the number of a layer with a head, from 1")
        check_no_batches(ranker)
        self.ranker, self.layer = ranker, int(layer)

    @property
    def parts(self) -> "tuple[Stage]":
        """The stage itself, as a pipeline of one part."""
        return (self,)

    def __eq__(self, other):
        """Stages are equal when ranker and layer are."""
        if not isinstance(other, Stage):
            return NotImplemented
        return (self.ranker, self.layer) == (other.ranker, other.layer)

    def __hash__(self):
        """Equal stages hash alike."""
        return hash((Stage, self.ranker, self.layer))

    def __repr__(self):
        """Returns an expression that makes the stage again."""
        return f"{self.ranker!r}[{self.layer}]"

    def __str__(self):
        """Returns the short form that names the row of an experiment."""
        return f"{self.ranker}[{self.layer}]"

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the box that PyTerrier draws."""
        return {"label": f"{type(self.ranker).__name__}[{self.layer}]"[:20], "help_url": HELP_URL}


class FusedStages(_Pipeline):
    """Stages of one ranker with cutoffs between them, run as one transformer; ``%``, ``>>``, ``compile()`` make it.

    The parts are the pipeline's own objects: a setting that is changed there holds here.

    Args:
        *parts: Stages and cutoffs, in their order.
    """

    def __init__(self, *parts: pt.Transformer):
        self.parts = parts

    def __eq__(self, other):
        """Fused stages are equal when all their parts are."""
        return self.parts == other.parts if isinstance(other, FusedStages) else NotImplemented

    def __hash__(self):
        """Equal ones hash alike."""
        return hash((FusedStages, self.parts))

    def __repr__(self):
        """Returns the pipeline that was fused."""
        return f"({' >> '.join(map(repr, self.parts))})"

    def __str__(self):
        """Returns the short form that names the row of an experiment."""
        return f"({' >> '.join(map(str, self.parts))})"

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the box that PyTerrier draws."""
        layers = ", ".join(str(stage.layer) for stage in self.stages)
        return {"label": f"[{layers}]"[:20], "help_url": HELP_URL}


def check_no_batches(ranker: EarlyExitRanker) -> None:
    """Raises where a ranker lets candidates compete in batches or has a deadline: cutoffs decide between stages."""
    if ranker.deadline_ms is not None:
        raise ValueError(
            f"deadline_ms={ranker.deadline_ms!r} has no meaning for stages, whose cutoffs decide who goes on; use "
            "ranker(deadline_ms=...) as a whole, or stages of ranker(deadline_ms=None)"
        )
    if ranker.policy.batch_size is not None:
        raise ValueError(
            f"batch_size={ranker.policy.batch_size} has no meaning for stages, whose cutoffs see all of a query's "
            "candidates; use ranker(plan=..., alpha=...) for batches, or stages of ranker(batch_size=None)"
        )


def _check_order(weights: str, layer: int, stage: Stage) -> None:
    """Raises where a stage cannot follow a stage of these weights at this layer."""
    if weights != repr(stage.ranker.weights):
        raise ValueError(
            f"stages of two models in one pipeline: layer {layer} of {weights}, then layer {stage.layer} of "
            f"{stage.ranker.weights!r}; take all stages of one, or rerank by the second model as a whole"
        )
    if layer >= stage.layer:
        raise ValueError(
            f"stages must go up, but layer {stage.layer} follows layer {layer}; order them by their layers"
        )
