"""The pace of a machine: the seconds that layers, tokens and frames take, learned as they are spent. Numbers only."""

from collections.abc import Sequence

import numpy as np

from pyterrier_cascade.forks import Lock

MOVE = 0.2
"""The weight of the newest observation in a moving average."""

FASTEST = 0.5
"""The least speed that is assumed without seeing it."""

LEAST_SHARE = 0.4
"""The share that each head lets through where the time is too short for all candidates.

The first span of a few candidates less pays for further spans of the best ones, which say more about the first places.
With 100 candidates of BM25 on TREC DL 2019, a distilled cascade of four layers and 28% of its cost, NDCG@10 against the
full ranking is .46 so, where it is .24 with the first span for all, and .39 and .24 with candidates in random order.
The paper's grid of alpha, too, ends at dropping .6 (CT-61).
"""


class Pace:
    """The seconds that each part of the scoring takes on this machine, as moving averages.

    A span of layers takes ``speed * layers * (per_layer + per_token * tokens)`` seconds. The two rates in the brackets
    are measured once, by :meth:`measure`; the speed follows every span that is run. Threads may share a pace.

    Attributes:
        speed: The factor by which spans take longer now than when they were measured.
        per_layer: The seconds of a layer that do not depend on the tokens.
        per_token: The seconds of a layer for each token.
        per_character: The seconds to tokenise a character of query and text.
        tokens_per_character: The tokens of such a character.
        frame: The seconds to make the result of one query.
    """

    def __init__(self):
        self.speed, self.per_layer, self.per_token = 1.0, 0.0, 0.0
        self.per_character, self.tokens_per_character, self.frame = 0.0, 0.0, 0.0
        self.measured = False
        self._lock = Lock()

    def measure(self, tokens: Sequence[float], seconds: Sequence[float]) -> None:
        """Sets the two rates of a layer.

        Args:
            tokens: The tokens of two runs of a layer, the smaller number first.
            seconds: The seconds that the runs took.
        """
        (few, many), (short, long) = tokens, seconds
        with self._lock:
            # A disturbed measurement could say that tokens are free, or that a layer without any is less than free.
            slope = (long - short) / (many - few) if many > few else long / many
            self.per_token = min(max(slope, 0.1 * long / many), long / many)
            self.per_layer = long - self.per_token * many
            self.speed, self.measured = 1.0, True

    def span(self, layers: int, tokens: np.ndarray | float) -> np.ndarray | float:
        """Returns the seconds of a span; a span without tokens takes none.

        Args:
            layers: The number of its layers.
            tokens: The tokens of all its inputs, one number or an array.
        """
        return self.speed * layers * (self.per_layer * (np.asarray(tokens) > 0) + self.per_token * tokens)

    def ran(self, layers: int, tokens: float, seconds: float) -> None:
        """Notes the seconds that a span took."""
        expected = self.span(layers, tokens)
        if expected > 0:
            with self._lock:
                # A single long pause says little about the next span.
                factor = min(max(seconds / expected, 0.5), 2.0)
                self.speed *= 1 + MOVE * (factor - 1)

    def rested(self) -> None:
        """Notes that no span was run: a slow moment is forgotten by and by, or nothing would ever be run again.

        The moment of the measurement may have been slow too, so after many queries the machine is tried again as if it
        were up to twice as fast. The more that trial is late, the longer it takes until the next.
        """
        with self._lock:
            self.speed += MOVE * (min(self.speed, 1.0) - self.speed)
            self.speed = max(FASTEST, (1 - MOVE / 20) * self.speed)

    def read(self, characters: int, tokens: int, seconds: float) -> None:
        """Notes the seconds that tokenising some characters took, and the tokens that they became."""
        self._moved("per_character", seconds / max(1, characters))
        self._moved("tokens_per_character", tokens / max(1, characters))

    def finished(self, seconds: float) -> None:
        """Notes the seconds that making the result of a query took."""
        self._moved("frame", seconds)

    def _moved(self, name: str, value: float) -> None:
        with self._lock:
            before = getattr(self, name)
            setattr(self, name, before + MOVE * (value - before) if before else value)

    def begin(self, tokens: np.ndarray, layers: Sequence[int], seconds: float, characters: np.ndarray | int = 0) -> int:
        """Returns how many candidates the first span can be run for, such that time is left for the best of them.

        If all candidates can be run, that is with each head letting through :data:`LEAST_SHARE` or more, all are.

        Args:
            tokens: The tokens of each candidate, in the order in which they are taken ``(n,)``.
            layers: The layers of each span.
            seconds: The time that is left.
            characters: The characters of each candidate, if they have to be tokenised too ``(n,)``.
        """
        n = np.arange(len(tokens) + 1)
        read = np.concatenate([[0], np.cumsum(np.broadcast_to(characters, len(tokens)))]) * self.per_character
        counts = np.floor(n[:, None] * LEAST_SHARE ** np.arange(len(layers)) + 1e-9)
        return _most(read + self._spans(tokens, layers, counts), seconds)

    def go_on(self, tokens: np.ndarray, layers: Sequence[int], seconds: float) -> int:
        """Returns how many candidates can go on after a head.

        All further heads let the same share of their candidates through, so that the remaining spans just fit.

        Args:
            tokens: The tokens of each candidate, best first ``(n,)``.
            layers: The layers of each remaining span.
            seconds: The time that is left.
        """
        n = np.arange(len(tokens) + 1)
        share = n / max(1, len(tokens))
        counts = np.floor(n[:, None] * share[:, None] ** np.arange(len(layers)) + 1e-9)
        return _most(self._spans(tokens, layers, counts), seconds)

    def _spans(self, tokens: np.ndarray, layers: Sequence[int], counts: np.ndarray) -> np.ndarray:
        """Returns the seconds of all spans for each choice ``(n_choices,)``.

        Args:
            tokens: The tokens of each candidate ``(n,)``.
            layers: The layers of each span.
            counts: How many of the candidates each span runs under each choice ``(n_choices, n_spans)``.
        """
        summed = np.concatenate([[0], np.cumsum(tokens)])[counts.astype(np.int64)]
        return sum(self.span(n_layers, column) for n_layers, column in zip(layers, summed.T, strict=True))


def _most(costs: np.ndarray, seconds: float) -> int:
    """Returns the last choice that fits, where costs rise with the choice; the first where none does."""
    return max(0, int(np.searchsorted(costs, seconds, side="right")) - 1)
