"""Layers compiled by torch, which fuses the small operations between the products.

All layers of one kind share the same compiled code, and it takes inputs of any length: shapes are symbols in it. The
attention follows from the lengths of a chunk, so it stays outside.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.encoder.executor import Executor
from pyterrier_cascade.encoder.families.base import Encoder
from pyterrier_cascade.encoder.layers import Layout

TRIED = np.full(67, 13)
"""The lengths of the chunk that layers compile for. No weight has these sizes: torch takes equal sizes for the same
symbol."""


class Outside:
    """A layout whose operations are no part of a compiled graph.

    Args:
        layout: The layout.
        tables: The tables by position that the layer reads.
    """

    def __init__(self, layout: Layout, tables: Sequence[torch.Tensor]):
        self._layout, self._tables = layout, tables
        self._rows = [layout.at_positions(table) for table in tables]

    def at_positions(self, table: torch.Tensor) -> torch.Tensor:
        """Returns the layout's rows of one of the tables."""
        return next(rows for known, rows in zip(self._tables, self._rows, strict=True) if known is table)

    @torch.compiler.disable
    def attend(self, *given, **more) -> torch.Tensor:
        """Returns the layout's attention."""
        return self._layout.attend(*given, **more)


class CompiledLayer(nn.Module):
    """A layer with compiled code.

    Args:
        layer: The layer; its linear maps are plain ones.
    """

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer, self.compiled = layer, torch.compile(layer, dynamic=True)
        self.tables = (layer.cos, layer.sin) if hasattr(layer, "cos") else ()

    def forward(self, hidden: torch.Tensor, layout: Layout, first_only: bool = False) -> torch.Tensor:
        """Returns what the layer returns; where it computes first symbols only, compiling would gain nothing."""
        if first_only:
            return self.layer(hidden, layout, first_only)
        return self.compiled(hidden, Outside(layout, self.tables))


def compiled(encoder: Encoder) -> Encoder:
    """Returns an encoder whose layers compile when they are first run."""
    return dataclasses.replace(encoder, layers=[CompiledLayer(layer) for layer in encoder.layers])


def compile_now(executor: Executor) -> None:
    """Compiles the layers of an executor, or raises a RuntimeError that says why torch cannot compile here.

    Args:
        executor: The executor, whose encoder is a compiled one.
    """

    @torch.inference_mode()
    def run(lengths: np.ndarray) -> None:
        layout = executor.layout(lengths)
        hidden = torch.zeros(int(lengths.sum()), executor.width, dtype=executor.dtype, device=executor.device)
        hidden = layout.spread(hidden)
        for number in range(len(executor.heads)):
            _, hidden = executor.span(number, hidden, layout)

    try:
        # Generated code for a CPU has the number of threads in it: one, as in the workers that will run it.
        with executor.workers() as pool:
            list(pool.map(run, [TRIED]))
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise RuntimeError(
            f"torch_compile=True: torch cannot compile on this machine ({type(error).__name__}: {reason}); it needs a "
            "C++ compiler such as g++ for CPUs, and Triton for GPUs; install them, or leave torch_compile out"
        ) from error
