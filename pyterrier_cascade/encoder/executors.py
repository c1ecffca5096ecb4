"""The engines and precisions that can run an encoder, and the executors of one encoder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from pyterrier_cascade.checks import check_choices, warn_user
from pyterrier_cascade.encoder.device import (
    CALIBRATED,
    CALIBRATION,
    PRECISIONS,
    check_device,
    device_of,
    scoring_precision,
)
from pyterrier_cascade.encoder.heads import Head
from pyterrier_cascade.encoder.int8 import has_int8, int8_precision
from pyterrier_cascade.encoder.int8_executor import int8_executor
from pyterrier_cascade.encoder.openvino_executor import OpenVINOExecutor, openvino_precision
from pyterrier_cascade.encoder.openvino_graphs import check_installed
from pyterrier_cascade.encoder.pairs import TokenPairs
from pyterrier_cascade.encoder.torch_executor import TorchExecutor
from pyterrier_cascade.encoder.weight_cache import WeightCache
from pyterrier_cascade.forks import Lock

ENGINES = {"torch": (*PRECISIONS, *CALIBRATED), "openvino": ("auto", "fp32", "bf16", *CALIBRATED)}
"""The precisions of each engine."""


def check_engine(engine: str, precision: str, device: str | None, torch_compile: bool = False) -> None:
    """Raises if an engine is unknown or not installed, or if it does not have the precision or another setting."""
    check_choices(engine=(engine, ENGINES))
    check_device(device)
    if precision not in ENGINES[engine]:
        others = [name for name, precisions in ENGINES.items() if precision in precisions]
        hint = f" ({precision} needs engine={others[0]!r})" if others else ""
        raise ValueError(
            f"precision must be one of {', '.join(ENGINES[engine])} with engine={engine!r}, not {precision!r}{hint}"
        )
    if not isinstance(torch_compile, bool) or (torch_compile and (engine != "torch" or precision in CALIBRATED)):
        raise ValueError(
            f"torch_compile={torch_compile!r} with engine={engine!r} and precision={precision!r}: give True with "
            "engine='torch' and another precision than int8 or mixed, or False"
        )
    if engine == "openvino":
        if device not in (None, "cpu"):
            raise ValueError(f"engine='openvino' computes on the CPU, not on device={device!r}; use engine='torch'")
        check_installed()
    elif device is not None:
        scoring_precision(precision, torch.device(device))


def computed_precision(engine: str, precision: str, device: str | None) -> str:
    """Returns the precision that an engine computes in on this machine, whatever the user calls it."""
    if engine == "torch":
        found = scoring_precision(precision, device_of(device))
        return int8_precision(found) if found in CALIBRATED else found
    return openvino_precision("fp32" if precision == "auto" else precision)


class Executors:
    """The executors of an encoder with its heads. They are made on first use, and again after the weights changed.

    Args:
        encoder: A Hugging Face encoder without a head on top.
        heads: The heads, in order of their layers.

    Attributes:
        calibration: The inputs that int8 is calibrated on; None before the calibration.
    """

    def __init__(self, encoder: nn.Module, heads: Sequence[Head]):
        self.encoder, self.heads = encoder, tuple(heads)
        self._made = WeightCache(encoder, *(head.module for head in self.heads))
        self._lock = Lock()
        self.calibration: TokenPairs | None = None

    def calibrate(self, pairs: TokenPairs) -> None:
        """Sets the inputs that int8 is calibrated on; of more than 320 inputs it takes 320, evenly spread."""
        least, most = CALIBRATION
        n = len(pairs.lengths)
        if n < least:
            raise ValueError(
                f"int8 is calibrated on the candidates that are scored first, at least {least}, but these are {n}; "
                "call calibrate(results) with some hundred candidates before"
            )
        with self._lock:
            self.calibration = pairs.select(np.linspace(0, n - 1, min(n, most)).astype(np.int64))
            self._made.forget(lambda key: key[1] in CALIBRATED)

    def get(
        self,
        engine: str,
        precision: str,
        device: str | None,
        pairs: TokenPairs,
        cache: Path | None = None,
        torch_compile: bool = False,
    ) -> TorchExecutor | OpenVINOExecutor:
        """Returns the executor of an engine in a precision.

        Args:
            engine: One of :data:`ENGINES`.
            precision: One of the engine's precisions.
            device: The device on which torch computes; None chooses one.
            pairs: The inputs to score. int8 is calibrated on them, unless it was calibrated before.
            cache: The folder for converted graphs, or None to keep none.
            torch_compile: Whether torch compiles the layers.
        """
        where = device_of(device)
        precision = scoring_precision(precision, OpenVINOExecutor.device if engine == "openvino" else where)

        if engine == "torch" and precision in CALIBRATED and not has_int8():
            instead = int8_precision(precision)
            warn_user(
                f"precision={precision!r} needs a CPU with VNNI and oneDNN's operators for int8 in torch; this "
                f"computes in {instead} instead"
            )
            precision = instead

        def make() -> TorchExecutor | OpenVINOExecutor:
            if engine == "torch" and precision in CALIBRATED:
                return int8_executor(self.encoder, self.heads, precision, self.calibration)
            if engine == "torch":
                return TorchExecutor(self.encoder, self.heads, where, precision, torch_compile)
            return OpenVINOExecutor(self.encoder, self.heads, precision, cache, self.calibration)

        with self._lock:
            if precision in CALIBRATED and self.calibration is None:
                self.calibrate(pairs)
            return self._made.get((engine, precision, where, torch_compile), make)
