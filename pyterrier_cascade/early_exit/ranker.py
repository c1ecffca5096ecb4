"""What the Cascade Transformer and its sequential rival share: heads in a row, and fewer candidates after each."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_cascade import frames
from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.early_exit import pruning
from pyterrier_cascade.ranker import Ranker

if TYPE_CHECKING:
    from pyterrier_cascade.early_exit.stage import Stage
    from pyterrier_cascade.early_exit.trace import Trace


@dataclass(frozen=True)
class Plan:
    """Where candidates are judged, and who goes on.

    Attributes:
        layers: The layers whose heads are asked, ascending.
        cutoffs: What goes on after each of them: one cutoff after the other, or none. What does not go on after the
            last is gone, whatever becomes of those that leave before.
        rounding: ``"floor"`` or ``"nearest"``.
        batch_size: How many of a question's candidates are judged together; None for all.
    """

    layers: tuple[int, ...]
    cutoffs: tuple[tuple[pruning.Cutoff, ...], ...]
    rounding: str = "floor"
    batch_size: int | None = None

    @classmethod
    def of(
        cls,
        heads: Sequence[int],
        alpha: float | Sequence[float] = 0.0,
        counts: Sequence[int] | None = None,
        plan: Sequence[int] | None = None,
        batch_size: int | None = None,
        rounding: str = "floor",
    ) -> "Plan":
        """Returns the plan that a user's settings mean; what each is says :class:`~pyterrier_cascade.Cascade`.

        Args:
            heads: The layers that have heads.
            alpha: What each head but the last drops.
            counts: What each keeps instead.
            plan: The layers that are asked.
            batch_size: How many candidates are judged together.
            rounding: How shares become numbers.
        """
        layers = tuple(heads) if plan is None else tuple(plan)
        if not set(layers) <= set(heads):
            raise ValueError(f"plan={layers!r}, but there are heads at layers {tuple(heads)} only")
        if counts is not None:
            given, name = tuple(pruning.cutoff(count) for count in counts), f"counts={counts!r}"
        elif isinstance(alpha, Real):
            given, name = (pruning.share(alpha),) * (len(layers) - 1), ""
        else:
            given, name = tuple(pruning.share(one) for one in alpha), f"alpha={alpha!r}"
        if len(given) != len(layers) - 1:
            raise ValueError(
                f"{name} has {len(given)} values, but {len(layers) - 1} heads drop candidates, those at layers "
                f"{layers[:-1]}; the last, at {layers[-1]}, only scores"
            )
        return cls(layers, (*((one,) for one in given), ()), rounding, batch_size)


def check_plan(
    alpha: float | Sequence[float],
    counts: Sequence[int] | None,
    plan: Sequence[int] | None,
    batch_size: int | None,
    rounding: str,
    exited: str,
) -> None:
    """Raises where these settings cannot be, whatever the heads."""
    for alpha_of_head in alpha if np.ndim(alpha) == 1 else (alpha,):
        pruning.share(alpha_of_head)
    if counts is not None:
        if np.any(alpha):
            raise ValueError(f"alpha={alpha!r} and counts={counts!r} exclude each other; give one of them")
        if np.ndim(counts) != 1 or not all(map(pruning.is_count, counts)):
            raise ValueError(
                f"counts={counts!r}: give whole numbers of candidates to keep, 1 or more, for each head but the last"
            )
    if plan is not None and not pruning.are_layers(plan):
        raise ValueError(f"plan={plan!r}: give layers in ascending order, each once")
    if batch_size is not None and not pruning.is_count(batch_size):
        raise ValueError(f"batch_size={batch_size!r}: give 1 or more, or None for all of a query's candidates")
    check_choices(rounding=(rounding, pruning.ROUNDINGS), exited=(exited, pruning.EXITED))


@dataclass(frozen=True)
class Judged:
    """Candidates with their scores at the heads of a plan.

    Attributes:
        rows: Positions of the frame's rows in their own order: query by query, each by earlier rank ``(n,)``.
        scores: The score at each layer of the plan, NaN behind the one where a candidate left ``(n, n_layers)``.
        tokens: The tokens of each ``(n,)``.
    """

    rows: np.ndarray
    scores: np.ndarray
    tokens: np.ndarray


class Staged(Ranker):
    """A ranker with heads after several layers, each of which drops candidates.

    A subclass takes the settings ``alpha``, ``counts``, ``plan``, ``batch_size``, ``rounding`` and ``exited``, and
    implements :meth:`judge` and the abstract properties.
    """

    alpha: float | tuple[float, ...]
    counts: tuple[int, ...] | None
    plan: tuple[int, ...] | None
    batch_size: int | None
    rounding: str
    exited: str
    reuses_encodings: bool
    """Whether a head goes on from the layer of the one before, or starts anew."""

    @property
    @abstractmethod
    def head_layers(self) -> tuple[int, ...]:
        """The layers that heads read, ascending."""

    @property
    @abstractmethod
    def full_layers(self) -> int:
        """The layers of the full encoder."""

    @abstractmethod
    def judge(self, frame: pd.DataFrame, blocks: frames.Blocks, plan: Plan, prune: bool = True) -> Judged:
        """Returns the candidates' scores.

        Args:
            frame: A results frame that is not empty.
            blocks: Its blocks.
            plan: Who is judged where.
            prune: Whether candidates are dropped on the way; if not, all heads of the plan score all.
        """

    @property
    @abstractmethod
    def weights(self) -> object:
        """What names the weights: equal for rankers on the same."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Returns a hash of all that the heads' scores depend on."""

    def new_columns(self):
        """Returns the layer whose head gave the score, and the cost columns."""
        return frames.EXIT_COLUMNS

    def keep_plan(self, alpha, counts, plan, batch_size, rounding, exited) -> None:
        """Stores the settings that all these rankers have, sequences as tuples."""
        self.alpha, self.counts, self.plan = (
            tuple(given) if np.ndim(given) == 1 else given for given in (alpha, counts, plan)
        )
        self.batch_size, self.rounding, self.exited = batch_size, rounding, exited

    def check_settings(self) -> None:
        """Raises where the settings cannot be, whatever the model."""
        check_plan(self.alpha, self.counts, self.plan, self.batch_size, self.rounding, self.exited)

    def schedule(self) -> Plan:
        """Returns where candidates are judged and who goes on, by the settings as they are now."""
        self.check_settings()
        return Plan.of(self.head_layers, self.alpha, self.counts, self.plan, self.batch_size, self.rounding)

    def rerank(self, frame: pd.DataFrame, blocks: frames.Blocks) -> pd.DataFrame:
        """Returns the result as the settings say."""
        return self.follow(frame, blocks, self.schedule(), self.exited)

    def follow(self, frame: pd.DataFrame, blocks: frames.Blocks, plan: Plan, exited: str) -> pd.DataFrame:
        """Returns a frame's candidates ranked by a plan.

        Args:
            frame: A results frame that is not empty.
            blocks: Its blocks.
            plan: Who is judged where.
            exited: What becomes of those that leave early, ``"below"`` or ``"drop"``.
        """
        judged = self.judge(frame, blocks, plan)
        spent = layers_run(plan.layers, self.reuses_encodings)
        return assembled(frame, blocks, judged, plan, spent, self.full_layers, exited)

    def trace(self, candidates: pd.DataFrame, path: str | None = None, pool: Any = None) -> "Trace":
        """Returns all heads' scores of all candidates, from which any cascade follows without the model.

        Args:
            candidates: A results frame with texts.
            path: A folder to keep the :class:`~pyterrier_cascade.Trace` in; one that is there is completed.
            pool: Whose workers score (:class:`~pyterrier_cascade.RayPool`); this process unless given.
        """
        from pyterrier_cascade.early_exit.trace import Trace

        return Trace.record(self, candidates, path, pool)

    def explain(self, candidates: pd.DataFrame) -> pd.DataFrame:
        """Returns what each head said of each candidate that came to it, and who went on; a row for each.

        Columns: ``qid``, ``query``, ``docno``, ``layer``, ``score``, ``place`` among those that came to that head
        (from 0), and ``kept``. :func:`~pyterrier_cascade.river` draws it.

        Args:
            candidates: A results frame with texts.
        """
        from pyterrier_cascade.early_exit.explain import explained

        return explained(self, candidates)

    def __getitem__(self, layer: int) -> "Stage":
        """Returns the stage that ranks by the head after a layer, for ``ranker[4] % 0.6 >> ranker[12]``."""
        from pyterrier_cascade.early_exit.stage import Stage

        return Stage(self, layer)

    __iter__ = None

    def __mod__(self, kept: float):
        """Returns this and a cutoff: ``% 20`` keeps 20 candidates, ``% 0.6`` keeps 60%."""
        from pyterrier_cascade.early_exit.stage import cut

        return self >> cut(kept)


def layers_run(layers: Sequence[int], reuses_encodings: bool) -> np.ndarray:
    """Returns the layers that were run for a candidate that leaves at each layer of a plan, ``(n_layers,)``.

    Args:
        layers: The plan's.
        reuses_encodings: Whether each head goes on from the one before (CT-9), or starts anew (CT-8).
    """
    return np.array(layers) if reuses_encodings else np.cumsum(layers)


def assembled(
    frame: pd.DataFrame,
    blocks: frames.Blocks,
    judged: Judged,
    plan: Plan,
    layers_run: np.ndarray,
    full_layers: int,
    exited: str,
) -> pd.DataFrame:
    """Returns the result of a plan as a frame.

    Args:
        frame: The candidates.
        blocks: Their blocks.
        judged: Their scores.
        plan: Who was judged where.
        layers_run: The layers run for a candidate that leaves at each of the plan's, ``(n_layers,)``.
        full_layers: The layers of the full encoder.
        exited: ``"below"`` or ``"drop"``.
    """
    rows = judged.rows
    order, exits, falling = pruning.final(blocks.codes[rows], judged.scores)
    if exited == "drop":
        order = order[exits[order] == len(plan.layers) - 1]
        order = order[pruning.best(blocks.codes[rows[order]], plan.cutoffs[-1], plan.rounding)]
    back = np.empty_like(rows)
    back[rows] = np.arange(len(rows))
    costs = frames.charged(frame, blocks, layers_run[exits][back], full_layers, np.ones(len(rows)), judged.tokens[back])
    exit_layer = np.array(plan.layers)[exits][back]
    return frames.ranked(frame, blocks, falling[back], rows[order], exit_layer=exit_layer, **costs)
