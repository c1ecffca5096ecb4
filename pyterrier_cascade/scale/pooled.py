"""A transformer whose blocks of queries are ranked by the workers of a pool."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.ranker import HELP_URL


@dataclass(repr=False, unsafe_hash=True)
class Pooled(pt.Transformer):
    """A transformer that runs on a pool: each worker ranks some of the queries. ``pool(transformer)`` makes it.

    The result has the same rows in the same order as that of the transformer alone. The transformer may be any pipeline
    that treats each query by itself: rankers, stages, text loaders. Two are equal if they run equal transformers in
    blocks of the same size on the same pool.

    Args:
        transformer: The transformer to run.
        pool: The pool; its ``map(work, blocks)`` returns the results in the order of the blocks.
        rows_per_block: The approximate number of candidates in a block. All candidates of a query are in one block.
    """

    transformer: pt.Transformer
    pool: Any = field(hash=False)
    rows_per_block: int = 1_000

    def __post_init__(self):
        if self.rows_per_block < 1:
            raise ValueError(f"rows_per_block must be at least 1, not {self.rows_per_block!r}")

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the results of all queries.

        Args:
            inp: A frame with the columns that the transformer needs.
        """
        if not len(inp):
            # An empty frame only asks for the columns of the result, and no worker is needed to find them.
            return self.transformer(inp)
        blocks = list(self._blocks(inp))
        return pd.concat(list(self.pool.map(self.transformer, blocks)), ignore_index=True)

    def _blocks(self, frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
        blocks = frames.Blocks.of(frame)
        rows = np.argsort(blocks.codes, kind="stable")
        before = np.cumsum(blocks.sizes) - blocks.sizes
        first = np.unique(before // self.rows_per_block, return_index=True)[1]
        for part in np.split(rows, before[first[1:]]):
            yield frame.iloc[part]

    def compile(self) -> "Pooled":
        """Returns the compiled transformer on the same pool."""
        return Pooled(self.transformer.compile(), self.pool, self.rows_per_block)

    def __repr__(self):
        """Returns an expression that makes the transformer again."""
        rows = f", rows_per_block={self.rows_per_block}" if self.rows_per_block != 1_000 else ""
        return f"Pooled({self.transformer!r}, {self.pool!r}{rows})"

    def subtransformers(self) -> dict:
        """Returns the transformer that runs on the workers."""
        return {"transformer": self.transformer}

    def schematic(self, *, input_columns=None) -> dict[str, Any]:
        """Returns the box that PyTerrier draws."""
        settings = {"pool": repr(self.pool), "rows_per_block": self.rows_per_block}
        return {"label": "Pooled", "settings": settings, "help_url": HELP_URL}
