"""The base of rankers that read query and document together: texts, tokens, engine, calibration."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pyterrier_cascade import frames
from pyterrier_cascade.checks import is_count
from pyterrier_cascade.encoder.device import CALIBRATED, CALIBRATION, device_of
from pyterrier_cascade.encoder.executors import check_engine, computed_precision
from pyterrier_cascade.encoder.pairs import TokenPairs, fitting, tokenize
from pyterrier_cascade.encoder.torch_executor import TorchExecutor
from pyterrier_cascade.encoder.workers import ahead
from pyterrier_cascade.identity import combined, of_arrays
from pyterrier_cascade.ranker import NeuralRanker

if TYPE_CHECKING:
    from typing_extensions import Self

ROWS = 4_096
"""The candidates that are tokenised and scored together: many of each length, and still a bounded memory."""

ROWS_AHEAD = 1_024
"""The candidates that are tokenised together while a GPU computes those before them."""


class PairRanker(NeuralRanker):
    """A ranker whose model has ``executors``: an encoder over pairs of query and document, with heads.

    A subclass takes ``max_length``, ``passages``, ``engine``, ``precision``, ``device``, ``token_budget`` and
    ``torch_compile`` and checks them by :meth:`check_settings`.
    """

    max_length: int | None
    passages: str
    engine: str
    precision: str
    device: str | None
    token_budget: int | None
    torch_compile: bool
    verbose: bool

    def check_settings(self) -> None:
        """Raises where a setting that all these rankers have is invalid."""
        check_engine(self.engine, self.precision, self.device, self.torch_compile)
        if self.max_length is not None and not is_count(self.max_length, least=8):
            raise ValueError(f"max_length={self.max_length!r} leaves no room for a query and a document; use 8 or more")
        if self.token_budget is not None and not is_count(self.token_budget):
            raise ValueError(f"token_budget={self.token_budget!r}: give a whole number of tokens, 1 or more, or None")

    def new_columns(self):
        """Returns the layer that scored and the cost columns."""
        return frames.EXIT_COLUMNS

    def calibrate(self, results: pd.DataFrame) -> "Self":
        """Calibrates int8 on candidates like those that will be scored, some hundred of them, and returns the ranker.

        The calibration holds for all rankers on these weights. Without it int8 is calibrated on the first candidates
        that are scored.

        Args:
            results: A results frame with texts; up to 320 rows, evenly spread, are used.
        """
        frames.validate(results, context=self, text_field=self.text_field)
        if len(results) < CALIBRATION[0]:
            raise ValueError(f"int8 needs at least {CALIBRATION[0]} candidates to calibrate on, not {len(results)}")
        rows = np.linspace(0, len(results) - 1, min(len(results), ROWS)).astype(np.int64)
        self.model.loaded.executors.calibrate(self._tokenize(*self._texts(results.iloc[rows])))
        return self

    def calibrate_if_needed(self, results: pd.DataFrame) -> None:
        """Calibrates on candidates, if the precision needs it, nothing did so before, and there are enough of them."""
        if self.precision in CALIBRATED and not self.calibrated_on() and len(results) >= CALIBRATION[0]:
            self.calibrate(results)

    def calibrated_on(self) -> str:
        """Returns a hash of the inputs that int8 is calibrated on; an empty text where it is not calibrated."""
        given = self.model.loaded.executors.calibration if self.precision in CALIBRATED else None
        if given is None:
            return ""
        return of_arrays([given.lengths, *given.columns.values()])

    @property
    def computed_precision(self) -> str:
        """The precision that scores are computed in on this machine, whatever the user calls it."""
        return computed_precision(self.engine, self.precision, self.device)

    def reading(self):
        """Returns the settings that decide which part of a text the model reads, with the length that holds."""
        return super().reading() | {"max_length": self._limit(), "passages": self.passages}

    def fingerprint(self) -> str:
        """Returns a hash of everything that scores depend on: the model, and the settings of reading and computing."""
        return combined(
            self.model.fingerprint,
            self.reading(),
            self.engine,
            self.computed_precision,
            self.calibrated_on(),
        )

    def _texts(self, frame: pd.DataFrame) -> tuple[list[str], list[str]]:
        """Returns the query and the text of each row; warns once about cut queries and once about missing texts."""
        with self.model.lock:
            queries, _ = fitting(self.model.loaded.tokenizer, frames.texts(frame, "query"), self._limit())
        return queries, frames.texts(frame, self.text_field)

    def _limit(self) -> int:
        model = self.model.loaded
        if self.max_length is None:
            return model.default_length
        if self.max_length > model.length_limit:
            raise ValueError(
                f"max_length={self.max_length}, but {self.model!r} has positions for {model.length_limit} tokens"
            )
        return self.max_length

    def _tokenize(self, queries: list[str], texts: list[str], passages: bool = False) -> TokenPairs:
        with self.model.lock:
            tokenizer = self.model.loaded.tokenizer
            return tokenize(tokenizer, queries, texts, max_length=self._limit(), passages=passages)

    def _inputs(self, queries: list[str], texts: list[str]) -> TokenPairs:
        """Returns pairs as the inputs that are scored; a long document may be several."""
        return self._tokenize(queries, texts, self.passages != "first")

    @property
    def _works_ahead(self) -> bool:
        """Whether a thread tokenises the next candidates while these are computed; a CPU has no core to spare."""
        return self.engine == "torch" and device_of(self.device).type != "cpu"

    def _ahead(self, work: Callable, parts: Sequence[slice]) -> contextlib.AbstractContextManager[Iterator]:
        """Returns a context manager that opens the results of some work on each part, made ahead where it pays."""
        return ahead(work, parts) if self._works_ahead else contextlib.nullcontext(map(work, parts))

    def _executor(self, engine: str, precision: str, pairs: TokenPairs) -> TorchExecutor:
        cache = self.model.cache("openvino")
        return self.model.loaded.executors.get(engine, precision, self.device, pairs, cache, self.torch_compile)
