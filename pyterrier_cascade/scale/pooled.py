"""A pipeline's reranking part, block by block on the workers of a pool."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.ranker import HELP_URL


@dataclass(frozen=True)
class Ranking:
    """What a worker does with a block: a value that can be run twice with the same result.

    Attributes:
        transformer: What ranks.
    """

    transformer: pt.Transformer

    def __call__(self, block: pd.DataFrame) -> pd.DataFrame:
        """Returns the block's results."""
        return self.transformer(block)


class Pooled(pt.Transformer):
    """A transformer that runs on a pool: each worker ranks some of the queries; ``pool(transformer)`` makes it.

    Rows come back as the transformer alone would give them, in its order. It may be any pipeline that treats each query
    by itself: rankers, stages, loaders of texts.

    Args:
        transformer: What ranks.
        pool: Whose ``map(work, blocks)`` gives the results in order.
        rows_per_block: About how many candidates are sent together; a query is never divided.
    """

    def __init__(self, transformer: pt.Transformer, pool: Any, rows_per_block: int = 1_000):
        if rows_per_block < 1:
            raise ValueError(f"rows_per_block must be at least 1, not {rows_per_block!r}")
        self.transformer, self.pool, self.rows_per_block = transformer, pool, rows_per_block

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the results of all queries."""
        if not len(inp):
            # Which columns there will be is known here; no worker is troubled.
            return self.transformer(inp)
        blocks = list(self._blocks(inp))
        return pd.concat(self.pool.map(Ranking(self.transformer), blocks), ignore_index=True)

    def _blocks(self, frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
        blocks = frames.Blocks.of(frame)
        rows = np.argsort(blocks.codes, kind="stable")
        before = np.cumsum(blocks.sizes) - blocks.sizes
        first = np.unique(before // self.rows_per_block, return_index=True)[1]
        for part in np.split(rows, before[first[1:]]):
            yield frame.iloc[part]

    def compile(self) -> "Pooled":
        """Returns the compiled transformer on the pool."""
        return Pooled(self.transformer.compile(), self.pool, self.rows_per_block)

    def __repr__(self):
        """Returns what can be typed back in."""
        rows = f", rows_per_block={self.rows_per_block}" if self.rows_per_block != 1_000 else ""
        return f"Pooled({self.transformer!r}, {self.pool!r}{rows})"

    def __eq__(self, other):
        """Whether the same is done on the same pool."""
        if not isinstance(other, Pooled):
            return NotImplemented
        return (self.transformer, self.pool, self.rows_per_block) == (
            other.transformer,
            other.pool,
            other.rows_per_block,
        )

    def __hash__(self):
        """Equal ones hash alike."""
        return hash((Pooled, self.transformer, self.rows_per_block))

    def subtransformers(self) -> dict:
        """Returns what runs on the workers."""
        return {"transformer": self.transformer}

    def schematic(self, *, input_columns=None) -> dict[str, Any]:
        """Returns the box that PyTerrier draws."""
        settings = {"pool": repr(self.pool), "rows_per_block": self.rows_per_block}
        return {"label": "Pooled", "settings": settings, "help_url": HELP_URL}
