"""DC-BERT over documents that a cache holds: no text is needed (DC-1)."""

import numpy as np
import pandas as pd

from pyterrier_cascade import frames
from pyterrier_cascade.checks import check_choices, warn_user
from pyterrier_cascade.dcbert.cache import DocumentCache
from pyterrier_cascade.dcbert.ranker import COSTS, DCBERT, INTERACTIONS
from pyterrier_cascade.dcbert.scoring import score_candidates
from pyterrier_cascade.encoder.device import check_device
from pyterrier_cascade.ranker import Ranker

MISSING = ("error", "encode", "drop")


class CachedRanker(Ranker):
    """Ranks by documents that a cache holds; no text is needed. ``cache.reranker()`` makes it.

    Args:
        cache: The documents.
        model: The DC-BERT whose question encoder and joint layers are used, with its settings; the one that made the
            cache unless given. Its document encoder must be that of the cache.
        interaction: ``"joint"`` or ``"late"``, as in :class:`DCBERT`; the model's unless given.
        missing: The treatment of candidates that the cache does not hold: ``"error"`` refuses them, ``"encode"``
            encodes their text, and ``"drop"`` drops them, with a warning that counts them.
        device: Where to compute; the model's unless given.
        verbose: Whether to show progress.
        text_field: The column with the text, which is read for missing candidates only; the model's unless given.
    """

    def __init__(
        self,
        cache: DocumentCache,
        model: DCBERT | None = None,
        *,
        interaction: str | None = None,
        missing: str = "error",
        device: str | None = None,
        verbose: bool = False,
        text_field: str | None = None,
    ):
        check_choices(interaction=(interaction, (*INTERACTIONS, None)), missing=(missing, MISSING))
        check_device(device)
        if not isinstance(model, DCBERT | None):
            raise ValueError(f"model must be a DCBERT, such as DCBERT.from_pretrained(...), not {model!r}")
        self.cache, self.model, self.interaction, self.missing = cache, model, interaction, missing
        self.device, self.verbose, self.text_field = device, verbose, text_field

    def new_columns(self):
        """Returns the cost columns."""
        return COSTS

    def dcbert(self) -> DCBERT:
        """Returns the model, with the settings that the documents were encoded with."""
        given = {name: getattr(self, name) for name in ("interaction", "device", "text_field")}
        given = {name: value for name, value in given.items() if value is not None}
        return self.cache.dcbert(self.model, verbose=self.verbose, **given)

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the candidates of each query with new scores and ranks.

        Args:
            inp: A results frame with ``qid``, ``query`` and ``docno``, and the text if missing candidates are encoded.
        """
        text = self.dcbert().text_field if self.missing == "encode" else None
        frames.validate(inp, context=self, text_field=text)
        if self.missing == "drop" and len(inp):
            there = self.cache.find(inp["docno"].tolist()) >= 0
            if not there.all():
                warn_user(f"{int((~there).sum())} of {len(inp)} candidates are not in {self.cache!r} and are dropped")
                inp = inp[there]
        blocks = frames.Blocks.of(inp)
        return self.rerank(inp, blocks) if len(inp) else self.empty(inp, blocks)

    def score(self, frame: pd.DataFrame, blocks: frames.Blocks) -> dict[str, np.ndarray]:
        """Returns the relevance of each candidate and the cost columns."""
        # Made anew each time, because the model may have been trained since and settings are attributes.
        dcbert = self.dcbert()
        self.cache.check(dcbert.document_fingerprint(), repr(dcbert))
        dcbert.warn_if_untrained()
        found = self.check_held(frame)
        texts = self._texts(frame, found, dcbert)
        return score_candidates(dcbert, frame, blocks, texts, store=self.cache, found=found, label="CachedRanker")

    def _texts(self, frame: pd.DataFrame, found: np.ndarray, dcbert: DCBERT) -> list[str]:
        """Returns the texts of the candidates that the cache does not hold, and empty texts for the others."""
        gone = np.flatnonzero(found < 0)
        texts = [""] * len(frame)
        if len(gone):
            for row, text in zip(gone.tolist(), frames.texts(frame.iloc[gone], dcbert.text_field), strict=True):
                texts[row] = text
        return texts

    def check_held(self, frame: pd.DataFrame) -> np.ndarray:
        """Returns the number of each candidate in the cache, -1 for one that it does not hold ``(n_rows,)``.

        Raises:
            KeyError: If the cache does not hold a candidate and ``missing`` is ``"error"``.
        """
        found = self.cache.find(frame["docno"].tolist())
        gone = np.flatnonzero(found < 0)
        if len(gone) and self.missing == "error":
            names = ", ".join(map(repr, dict.fromkeys(frame["docno"].iloc[gone].tolist())))
            names = names if len(names) < 80 else names[:80] + " ..."
            raise KeyError(
                f"{len(gone)} of {len(frame)} candidates are not in {self.cache!r}: {names}; add them with "
                "cache.add(documents), or use missing='encode' (from their text) or missing='drop'"
            )
        return found

    def __repr__(self):
        """Returns an expression that makes an equal ranker."""
        return f"{self.cache!r}.reranker({', '.join(self._arguments(skip=('cache',)))})"
