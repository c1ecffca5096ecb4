"""Which engine runs an encoder, and the executors that were made for it."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import nn

from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.encoder.device import device_of
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.openvino_executor import CALIBRATED, CALIBRATION, OpenVINOExecutor
from pyterrier_cascade.encoder.openvino_graphs import check_installed
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.torch_executor import DTYPES, TorchExecutor
from pyterrier_cascade.encoder.weight_cache import WeightCache

ENGINES = {"torch": tuple(DTYPES), "openvino": (*DTYPES, *CALIBRATED)}
"""The precisions of each engine."""


def check_engine(engine: str, precision: str, device: str | None) -> None:
    """Raises where there is no such engine, or not in this precision or on this device."""
    check_choices(engine=(engine, ENGINES))
    if precision not in ENGINES[engine]:
        others = [name for name, precisions in ENGINES.items() if precision in precisions]
        hint = f" ({precision} needs engine={others[0]!r})" if others else ""
        raise ValueError(
            f"precision must be one of {', '.join(ENGINES[engine])} with engine={engine!r}, not {precision!r}{hint}"
        )
    if engine == "openvino":
        if device not in (None, "cpu"):
            raise ValueError(f"engine='openvino' computes on the CPU, not on device={device!r}; use engine='torch'")
        check_installed()


class Executors:
    """The executors of an encoder with its heads: made when first needed, and anew when the weights have changed.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        heads: In order of their layers.

    Attributes:
        calibration: The inputs that int8 is calibrated on, once it is.
    """

    def __init__(self, encoder: nn.Module, heads: Sequence[Head]):
        self.encoder, self.heads = encoder, tuple(heads)
        self._made, self._lock = WeightCache(self._weights), threading.RLock()
        self.calibration: TokenPairs | None = None

    def calibrate(self, pairs: TokenPairs) -> None:
        """Takes the inputs that int8 is calibrated on from now on: as many as it uses, evenly from all of these."""
        with self._lock:
            wanted = np.linspace(0, len(pairs.lengths) - 1, min(len(pairs.lengths), CALIBRATION[1])).astype(np.int64)
            self.calibration = pairs.select(wanted)
            self._made.forget(lambda key: key[1] in CALIBRATED)

    def get(
        self, engine: str, precision: str, device: str | None, pairs: TokenPairs, cache: Path | None = None
    ) -> TorchExecutor | OpenVINOExecutor:
        """Returns an executor.

        Args:
            engine: One of :data:`ENGINES`.
            precision: One of its precisions.
            device: Where torch computes.
            pairs: What is to be scored: int8 is calibrated on it unless it was calibrated before.
            cache: A folder for converted graphs, or None to keep none.
        """
        where = device_of(device)

        def make() -> TorchExecutor | OpenVINOExecutor:
            if engine == "torch":
                return TorchExecutor(self.encoder, self.heads, where, precision)
            return OpenVINOExecutor(self.encoder, self.heads, precision, cache, self.calibration)

        with self._lock:
            if precision not in CALIBRATED or self.calibration is not None:
                return self._made.get((engine, precision, where), make)
            self.calibrate(pairs)
            try:
                return self._made.get((engine, precision, where), make)
            except BaseException:
                # Of too few; later ones may do.
                self.calibration = None
                raise

    def _weights(self):
        yield from self.encoder.parameters()
        for head in self.heads:
            yield from head.module.parameters()
