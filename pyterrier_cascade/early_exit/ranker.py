"""The base of every ranker with heads in a row, each of which drops candidates."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.early_exit import ranking
from pyterrier_cascade.early_exit.policy import Plan, Policy, PolicySetting
from pyterrier_cascade.early_exit.pruning import survivors
from pyterrier_cascade.ranker import Ranker

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.handover import Handover
    from pyterrier_cascade.early_exit.stage import Stage
    from pyterrier_cascade.early_exit.trace import Trace


@dataclass(frozen=True)
class HeadScores:
    """Candidates with their scores at the heads of a plan.

    Attributes:
        rows: Positions of the frame's rows in the order of the input: query by query, each by earlier rank ``(n,)``.
        scores: The score at each layer of the plan, NaN behind the layer where a candidate left ``(n, n_layers)``.
        tokens: The number of tokens of each candidate, over all its inputs ``(n,)``.
        inputs: The number of inputs of each candidate, one for each passage, ``(n,)`` or one number.
        begun: The layers that an earlier stage had run and paid for, ``(n,)`` or one number.
    """

    rows: np.ndarray
    scores: np.ndarray
    tokens: np.ndarray
    inputs: np.ndarray | int = 1
    begun: np.ndarray | int = 0


class EarlyExitRanker(Ranker):
    """A ranker with heads after several layers, each of which drops candidates.

    Its settings are those of :class:`~pyterrier_cascade.early_exit.policy.Policy`, kept as the value ``policy`` and
    readable and settable one by one as attributes. A subclass passes its keywords ``**policy`` on to :class:`Policy`,
    and implements :meth:`head_scores`, :meth:`fingerprint` and the abstract properties.
    """

    policy: Policy
    reuses_encodings: bool
    """Whether a head goes on from the layer of the head before (CT-9), or starts from the text again (CT-8)."""
    deadline_ms: float | None = None
    """The milliseconds that each query has, for rankers that can score by the clock."""

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the constructor's arguments with their defaults, the policy's among them."""
        (first, default), *rest = super().defaults().items()
        return {first: default} | {one.name: one.default for one in fields(Policy)} | dict(rest)

    @property
    @abstractmethod
    def head_layers(self) -> tuple[int, ...]:
        """The layers that heads read, ascending."""

    @property
    @abstractmethod
    def full_layers(self) -> int:
        """The layers of the full model."""

    layer_size: int = 1
    """The multiply-adds of a layer of the full model for a token."""

    @property
    @abstractmethod
    def weights(self) -> object:
        """The name of the weights; rankers on the same weights have equal names."""

    @abstractmethod
    def head_scores(
        self,
        frame: pd.DataFrame,
        blocks: frames.Blocks,
        plan: Plan,
        prune: bool = True,
        handover: "Handover | None" = None,
    ) -> HeadScores:
        """Returns the candidates' scores at the heads of a plan.

        Args:
            frame: A results frame that is not empty.
            blocks: Its blocks.
            plan: The heads, and the rules between them.
            prune: Whether candidates are dropped on the way; without it all heads of the plan score all candidates.
            handover: The states that a stage takes over and leaves; only where :attr:`reuses_encodings`.
        """

    @property
    @abstractmethod
    def computed_precision(self) -> str:
        """The precision that scores are computed in on this machine, whatever the user calls it."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Returns a hash of everything that the heads' scores depend on."""

    def has_seen(self, queries: Sequence[str]) -> np.ndarray:
        """Returns whether the heads learned from each query, boolean ``(n_queries,)``; no ranker remembers by default.

        Args:
            queries: Their words.
        """
        return np.zeros(len(queries), dtype=bool)

    def new_columns(self):
        """Returns the layer whose head gave the score, and the cost columns."""
        return frames.EXIT_COLUMNS

    def full_model(self) -> tuple[int, int]:
        """Returns the layers of the full model and the multiply-adds of one, by which costs are counted."""
        return self.full_layers, self.layer_size

    def head_costs(self, layers: Sequence[int]) -> Sequence[float]:
        """Returns what it takes to come from the text to each of some layers, in layers of the full model."""
        return layers

    def plan_now(self) -> Plan:
        """Returns the plan that the policy means for the model's heads."""
        return self.policy.resolve(self.head_layers)

    def rerank(self, frame: pd.DataFrame, blocks: frames.Blocks) -> pd.DataFrame:
        """Returns the candidates as the policy ranks them."""
        return self.follow(frame, blocks, self.plan_now(), self.policy.exited)

    def follow(
        self,
        frame: pd.DataFrame,
        blocks: frames.Blocks,
        plan: Plan,
        exited: str,
        handover: "Handover | None" = None,
    ) -> pd.DataFrame:
        """Returns a frame's candidates ranked by a plan.

        Args:
            frame: A results frame that is not empty.
            blocks: Its blocks.
            plan: The heads, and the rules between them.
            exited: Whether candidates that leave early rank ``"below"`` the others, or are removed (``"drop"``).
            handover: The states that a stage takes over and leaves.
        """
        return self.ranked(frame, blocks, plan, self.head_scores(frame, blocks, plan, handover=handover), exited)

    def ranked(
        self, frame: pd.DataFrame, blocks: frames.Blocks, plan: Plan, found: HeadScores, exited: str
    ) -> pd.DataFrame:
        """Returns a frame's candidates ranked by their scores at a plan's heads; arguments as for :meth:`follow`."""
        run = layers_run(self.head_costs(plan.layers), self.reuses_encodings)
        return ranked_by(plan, found, frame, blocks, run, self.full_model(), exited, **self.columns_of(plan, found))

    def columns_of(self, plan: Plan, found: HeadScores) -> dict[str, np.ndarray]:
        """Returns further columns of a result, with a value for each candidate of ``found``; none by default."""
        return {}

    def trace(
        self,
        candidates: pd.DataFrame,
        path: str | None = None,
        pool: Any = None,
        *,
        front: pt.Transformer | None = None,
    ) -> "Trace":
        """Returns the scores of all heads for all candidates, from which any policy follows without the model.

        Args:
            candidates: A results frame with texts.
            path: A folder to keep the :class:`~pyterrier_cascade.Trace` in; one that is there is completed.
            pool: Workers that score (:class:`~pyterrier_cascade.RayPool`); this process unless given.
            front: A reranker that all candidates enter before this one, any transformer that scores. Its scores are
                kept too, so that every cut follows: ``trace.results(k=50, alpha=0.4)`` is
                ``front % 50 >> ranker(alpha=0.4)``.
        """
        from pyterrier_cascade.early_exit.trace import Trace

        return Trace.record(self, candidates, path, pool, front)

    def explain(self, candidates: pd.DataFrame) -> pd.DataFrame:
        """Returns the score that each head gave to each candidate that reached it, and who went on; a row for each.

        Columns: ``qid``, ``query``, ``docno``, ``layer``, ``score``, ``place`` among the candidates that reached that
        head (from 0), and ``kept``. :func:`~pyterrier_cascade.river` draws it.

        Args:
            candidates: A results frame with texts.
        """
        from pyterrier_cascade.early_exit.explain import explained

        if self.deadline_ms is not None:
            raise ValueError(
                f"deadline_ms={self.deadline_ms!r} drops other candidates in every run, which explain() cannot show; "
                "look at exit_layer in the results, or explain ranker(deadline_ms=None, alpha=...)"
            )
        return explained(self, candidates)

    def __getitem__(self, layer: int) -> "Stage":
        """Returns the stage that ranks by the head after a layer, for ``ranker[4] % 0.6 >> ranker[12]``."""
        from pyterrier_cascade.early_exit.stage import Stage

        return Stage(self, layer)

    __iter__ = None

    def __mod__(self, kept: float):
        """Returns this ranker with a cutoff behind it: ``% 20`` keeps 20 candidates, ``% 0.6`` keeps 60% of them."""
        from pyterrier_cascade.early_exit.cutoff import cutoff

        return self >> cutoff(kept, self.policy.rounding)


for _setting in fields(Policy):
    setattr(EarlyExitRanker, _setting.name, PolicySetting(_setting.name))


def layers_run(costs: Sequence[float], reuses_encodings: bool) -> np.ndarray:
    """Returns the layers that were run for a candidate that leaves at each head of a plan, ``(n_heads,)``.

    Args:
        costs: The layers from the text to each head.
        reuses_encodings: Whether each head goes on from the head before (CT-9), or starts from the text again (CT-8).
    """
    return np.array(costs) if reuses_encodings else np.cumsum(costs)


def ranked_by(
    plan: Plan,
    found: HeadScores,
    frame: pd.DataFrame,
    blocks: frames.Blocks,
    layers_run: np.ndarray,
    full_model: tuple[int, int],
    exited: str,
    **columns: np.ndarray,
) -> pd.DataFrame:
    """Returns the results frame that a plan gives.

    Args:
        plan: The heads, and the rules between them.
        found: The candidates' scores at these heads.
        frame: The candidates.
        blocks: Their blocks.
        layers_run: The layers run for a candidate that leaves at each of the plan's layers, ``(n_layers,)``.
        full_model: The layers of the full model, and the multiply-adds of one of them for a token.
        exited: ``"below"``, or ``"drop"``, which leaves those that came furthest in their query.
        **columns: Further columns, with a value for each candidate of ``found``, each ``(n,)``.
    """
    rows = found.rows
    order, exits, falling = ranking.final(blocks.codes[rows], found.scores)
    if exited == "drop":
        furthest = np.zeros(len(blocks), dtype=exits.dtype)
        np.maximum.at(furthest, blocks.codes[rows], exits)
        order = order[exits[order] == furthest[blocks.codes[rows[order]]]]
        order = order[survivors(plan.rules[-1], blocks.codes[rows[order]], falling[order])]
    back = np.empty_like(rows)
    back[rows] = np.arange(len(rows))
    layers, inputs = (np.broadcast_to(one, len(rows)) for one in (layers_run[exits] - found.begun, found.inputs))
    costs = frames.charged(frame, blocks, layers[back], full_model[0], inputs[back], found.tokens[back])
    costs = frames.in_all(frame, costs, full_model)
    exit_layer = np.array(plan.layers)[exits][back]
    columns = {name: values[back] for name, values in columns.items()}
    return frames.ranked(frame, blocks, falling[back], rows[order], exit_layer=exit_layer, **costs, **columns)
