"""One deadline for a whole pipeline: the clock of each question starts where it enters, and not at the cascade."""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.checks import shown, warn_user
from pyterrier_cascade.early_exit import deadline
from pyterrier_cascade.ranker import HELP_URL


@dataclass(repr=False, unsafe_hash=True)
class OneClock(pt.Transformer):
    """A pipeline in which the ``deadline_ms`` of a cascade counts from where the question enters the pipeline::

        pipeline = OneClock(bm25 % 1000 >> front % 50 >> cascade(deadline_ms=200))

    The questions go through the pipeline one after the other. The cascade has what the transformers before it left of
    each question's time: retriever, front, cuts and text loaders alike, of this package or not. What stands behind the
    cascade is not planned for. With several deadlines inside, each counts from the same moment:
    ``small(deadline_ms=80) % 20 >> large(deadline_ms=200)``.

    A cascade without a ``OneClock`` around it starts its clock itself. So does one in another process, which cannot see
    this clock: put the ``OneClock`` into the pool, ``pool(OneClock(pipeline))``.

    Args:
        transformer: The pipeline.
    """

    transformer: pt.Transformer

    def __post_init__(self):
        if not isinstance(self.transformer, pt.Transformer):
            raise ValueError(f"OneClock({self.transformer!r}): give a pipeline that ends with cascade(deadline_ms=...)")

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the results of all questions.

        Args:
            inp: What the pipeline takes, with ``qid``.
        """
        if not len(inp) or "qid" not in inp.columns or deadline.is_started():
            return self.transformer(inp)
        blocks, found, late = frames.Blocks.of(inp), [], []
        for qid, rows in zip(blocks.qids, blocks, strict=True):
            with deadline.started() as start:
                found.append(self.transformer(inp.iloc[rows]))
            if not start.was_read:
                raise ValueError(
                    f"no ranker in {self.transformer!r} read the clock: none has deadline_ms, or the one that has it "
                    "runs in another process; use cascade(deadline_ms=...), and put OneClock into the pool"
                )
            late += [(qid, message) for message in start.warnings]
        if late:
            (qid, message), n = late[0], len({qid for qid, _ in late})
            warn_user(f"{n} of {len(blocks)} questions ran out of time, the first is {shown(qid)}: {message}")
        return pd.concat([one for one in found if len(one)] or found[:1], ignore_index=True)

    def compile(self) -> "OneClock":
        """Returns the compiled pipeline with one clock."""
        return OneClock(self.transformer.compile())

    def __repr__(self):
        """Returns an expression that makes the transformer again."""
        return f"OneClock({self.transformer!r})"

    def subtransformers(self) -> dict:
        """Returns the pipeline."""
        return {"transformer": self.transformer}

    def schematic(self, *, input_columns=None) -> dict[str, Any]:
        """Returns the box that PyTerrier draws."""
        return {"label": "OneClock", "help_url": HELP_URL}
