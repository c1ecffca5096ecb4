"""The torch executor with linear maps in int8."""

from collections.abc import Sequence

import torch
from torch import nn

from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.int8 import Watching, int8_maps, int8_precision
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.torch_executor import TorchExecutor
from pyterrier_cascade.encoder.workers import calling_thread


def int8_executor(encoder: nn.Module, heads: Sequence[Head], precision: str, inputs: TokenPairs) -> TorchExecutor:
    """Returns an executor whose layers multiply in int8, with states and norms in fp32.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        heads: The heads, in order of their layers.
        precision: ``int8``, or ``mixed``, which leaves the most sensitive linear maps in bf16.
        inputs: The inputs of the calibration.
    """
    cpu, watched = torch.device("cpu"), []

    def watching(*weights) -> Watching:
        watched.append(Watching(*weights))
        return watched[-1]

    exact = TorchExecutor(encoder, heads, cpu, linear=watching)
    # Two threads would overwrite what the other has noted.
    exact.workers = calling_thread
    run(exact, inputs)
    maps = iter(int8_maps(watched, mixed=precision == "mixed"))
    return TorchExecutor(encoder, heads, cpu, int8_precision(precision), linear=lambda *weights: next(maps))
