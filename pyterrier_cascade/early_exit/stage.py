"""A cascade written as a pipeline: ``ranker[4] % 0.6 >> ranker[6] % 20 >> ranker[12]``, and what fuses it."""

from fractions import Fraction
from numbers import Integral

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.early_exit import pruning
from pyterrier_cascade.early_exit.ranker import Plan, Staged
from pyterrier_cascade.ranker import HELP_URL

MARK = "pyterrier_cascade"
"""Where a frame remembers, as well as pandas does, which ranker judged it last, and at which layer."""


class FractionCutoff(pt.Transformer):
    """Keeps the best share of each query's candidates, at least one: what ``% 0.6`` is behind a stage.

    The number is that of :class:`~pyterrier_cascade.Cascade`: the discards are rounded down (CT-25).

    Args:
        fraction: The share to keep, between 0 and 1.
    """

    def __init__(self, fraction: float):
        self.fraction = fraction
        self.cutoff()

    def cutoff(self) -> Fraction:
        """Returns the share as an exact number."""
        kept = pruning.cutoff(self.fraction)
        if not isinstance(kept, Fraction):
            raise ValueError(
                f"FractionCutoff({self.fraction!r}): give a share between 0 and 1, or use % k for a number"
            )
        return kept

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the rows that are kept, in their order.

        Args:
            inp: A results frame with ranks.
        """
        pt.validate.result_frame(inp, extra_columns=["rank"], context=self)
        blocks = frames.Blocks.of(inp)
        kept = pruning.n_kept(blocks.sizes, self.cutoff())
        order = np.lexsort((inp["rank"].to_numpy(), blocks.codes))
        place, _ = pruning.places(blocks.codes[order])
        rows = np.sort(order[place < kept[blocks.codes[order]]])
        return inp.iloc[rows].reset_index(drop=True)

    def __eq__(self, other):
        """Equal when they keep the same share."""
        return self.fraction == other.fraction if isinstance(other, FractionCutoff) else NotImplemented

    def __hash__(self):
        """Equal cutoffs hash alike."""
        return hash((FractionCutoff, self.fraction))

    def __repr__(self):
        """Returns what can be typed back in."""
        return f"FractionCutoff({self.fraction!r})"

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the box that PyTerrier draws."""
        return {"label": f"% {self.fraction}", "help_url": HELP_URL}


def cut(kept: float) -> pt.RankCutoff | FractionCutoff:
    """Returns the transformer that ``% kept`` means: ``% 20`` keeps 20 candidates, ``% 0.6`` keeps 60%."""
    cutoff = pruning.cutoff(kept)
    return pt.RankCutoff(cutoff) if isinstance(cutoff, int) else FractionCutoff(kept)


class _Cut(pt.Transformer):
    """What ``%`` takes more of than numbers of candidates."""

    def __mod__(self, kept: float) -> "Stages":
        """Returns this and a cutoff: ``% 20`` keeps 20 candidates, ``% 0.6`` keeps 60%."""
        return Stages(*(self.parts if isinstance(self, Stages) else (self,)), cut(kept))


class Stage(_Cut):
    """Ranks by the head after one layer; ``ranker[4]`` makes it.

    Alone it runs all layers up to its own. ``%`` behind it takes a share or a number. In a pipeline with others of its
    ranker, ``compile()`` makes them one: then the layers below are run once, and rows, scores and ranks are the same.

    Args:
        ranker: A cascade or a sequential reranker; its alpha, counts, plan and exited say nothing here.
        layer: The layer that the head reads.
    """

    def __init__(self, ranker: Staged, layer: int):
        if not isinstance(layer, Integral) or layer < 1:
            raise ValueError(f"there is no stage {layer!r}: give the number of a layer with a head, from 1")
        self.ranker, self.layer = ranker, int(layer)

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the candidates of each query with new scores and ranks.

        Args:
            inp: A results frame with ``qid``, ``query``, ``docno`` and the text.
        """
        return _follow([self], inp)

    def fuse_right(self, right: pt.Transformer):
        """Returns this stage and what follows as one transformer where that is possible, or None."""
        return Stages(self).fuse_right(right)

    def __eq__(self, other):
        """Equal when ranker and layer are."""
        if not isinstance(other, Stage):
            return NotImplemented
        return (self.ranker, self.layer) == (other.ranker, other.layer)

    def __hash__(self):
        """Equal stages hash alike."""
        return hash((Stage, self.ranker, self.layer))

    def __repr__(self):
        """Returns what can be typed back in."""
        return f"{self.ranker!r}[{self.layer}]"

    def subtransformers(self) -> dict:
        """Returns no inner transformers: a stage is one box."""
        return {}

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the box that PyTerrier draws."""
        return {"label": f"{type(self.ranker).__name__}[{self.layer}]"[:20], "help_url": HELP_URL}


class Stages(_Cut):
    """Stages of one ranker with cutoffs between them, as one; ``%`` and ``compile()`` make it.

    The parts are the pipeline's own, so that a setting that is changed there holds here.

    Args:
        *parts: Stages and cutoffs, in their order.
    """

    def __init__(self, *parts: pt.Transformer):
        self.parts = parts

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns what the parts return one after the other.

        Args:
            inp: A results frame with ``qid``, ``query``, ``docno`` and the text.
        """
        return _follow(self.parts, inp)

    def fuse_right(self, right: pt.Transformer):
        """Returns the stages and what follows as one transformer where that is possible, or None."""
        more = right.parts if isinstance(right, Stages) else (right,)
        if isinstance(more[0], Stage):
            before = [part for part in self.parts if isinstance(part, Stage)][-1]
            _check_order(repr(before.ranker.weights), before.layer, more[0])
            if before.ranker != more[0].ranker:
                return None
        elif not isinstance(right, (pt.RankCutoff, FractionCutoff)):
            return None
        return Stages(*self.parts, *more)

    def __eq__(self, other):
        """Equal when all parts are."""
        return self.parts == other.parts if isinstance(other, Stages) else NotImplemented

    def __hash__(self):
        """Equal ones hash alike."""
        return hash((Stages, self.parts))

    def __repr__(self):
        """Returns the pipeline that was fused."""
        return f"({' >> '.join(map(repr, self.parts))})"

    def subtransformers(self) -> dict:
        """Returns no inner transformers: the stages are one box."""
        return {}

    def schematic(self, *, input_columns=None) -> dict:
        """Returns the box that PyTerrier draws."""
        layers = ", ".join(str(part.layer) for part in self.parts if isinstance(part, Stage))
        return {"label": f"[{layers}]"[:20], "help_url": HELP_URL}


def _follow(parts: tuple[pt.Transformer, ...], inp: pd.DataFrame) -> pd.DataFrame:
    """Returns what stages and cutoffs of one ranker make of a frame."""
    stages = [part for part in parts if isinstance(part, Stage)]
    ranker = stages[0].ranker
    frames.validate(inp, context=parts[0], text_field=ranker.text_field)
    before = inp.attrs.get(MARK)
    if before is not None:
        _check_order(*before, stages[0])
    if not len(inp):
        return ranker(inp)
    cutoffs = []
    for part in parts:
        if isinstance(part, Stage):
            cutoffs.append([])
        else:
            cutoffs[-1].append(part.k if isinstance(part, pt.RankCutoff) else part.cutoff())
    heads = ranker.head_layers
    for stage in stages:
        if stage.layer not in heads:
            raise ValueError(f"there is no stage {stage.layer}: {ranker!r} has heads at layers {heads}")
    plan = Plan(tuple(stage.layer for stage in stages), tuple(map(tuple, cutoffs)))
    found = ranker.follow(inp, frames.Blocks.of(inp), plan, "drop")
    found.attrs[MARK] = (repr(ranker.weights), plan.layers[-1])
    return found


def _check_order(weights: str, layer: int, stage: Stage) -> None:
    """Raises where a stage cannot follow one of these weights at this layer."""
    if weights != repr(stage.ranker.weights):
        raise ValueError(
            f"stages of two models in one pipeline: layer {layer} of {weights}, then layer {stage.layer} of "
            f"{stage.ranker.weights!r}; take all stages of one, or rerank by the second model as a whole"
        )
    if layer >= stage.layer:
        raise ValueError(
            f"stages must go up, but layer {stage.layer} follows layer {layer}; order them by their layers"
        )
