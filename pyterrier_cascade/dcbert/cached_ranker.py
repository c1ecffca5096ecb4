"""DC-BERT over documents that a cache holds: no text is needed (DC-1)."""

import warnings

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.choices import check_choices
from pyterrier_cascade.dcbert.cache import DocumentCache
from pyterrier_cascade.dcbert.joining import Joined, join, slabs
from pyterrier_cascade.dcbert.ranker import COSTS, DCBERT, INTERACTIONS
from pyterrier_cascade.dcbert.sources import CachedDocuments
from pyterrier_cascade.ranker import Ranker

MISSING = ("error", "encode", "drop")


class CachedRanker(Ranker):
    """Ranks by documents that a cache holds; no text is needed. ``cache.reranker()`` makes it.

    Args:
        cache: The documents.
        model: The DC-BERT whose question encoder and joint layers are used; the one that made the cache unless given.
            Its document encoder must be that of the cache.
        interaction: ``"joint"`` or ``"late"``, as in :class:`DCBERT`.
        missing: What becomes of candidates that the cache does not hold: ``"error"``, ``"encode"`` from their text, or
            ``"drop"``, which says how many.
        device: Where to compute; by default a GPU where there is one.
        verbose: Whether to show progress.
        text_field: The column with the text, read for what is missing only.
    """

    def __init__(
        self,
        cache: DocumentCache,
        model: DCBERT | None = None,
        *,
        interaction: str = "joint",
        missing: str = "error",
        device: str | None = None,
        verbose: bool = False,
        text_field: str = "text",
    ):
        check_choices(interaction=(interaction, INTERACTIONS), missing=(missing, MISSING))
        self.cache, self.model, self.interaction, self.missing = cache, model, interaction, missing
        self.device, self.verbose, self.text_field = device, verbose, text_field

    def new_columns(self):
        """Returns the cost columns."""
        return COSTS

    def dcbert(self) -> DCBERT:
        """Returns the model, with the settings that the documents were encoded with."""
        meta = self.cache.meta
        model = DCBERT.from_pretrained(meta["model"], **_parts(meta["parts"])) if self.model is None else self.model
        named = ("query_length", "document_length", "passages", "precision")
        return model(
            interaction=self.interaction,
            device=self.device,
            text_field=self.text_field,
            **{name: meta[name] for name in named},
        )

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the candidates of each query with new scores and ranks.

        Args:
            inp: A results frame with ``qid``, ``query`` and ``docno``, and the text to encode what is missing.
        """
        text = self.text_field if self.missing == "encode" else None
        frames.validate(inp, context=self, text_field=text)
        if self.missing == "drop" and len(inp):
            there = self.cache.find(inp["docno"].tolist()) >= 0
            if not there.all():
                warnings.warn(
                    f"{int((~there).sum())} of {len(inp)} candidates are not in {self.cache!r} and are dropped",
                    stacklevel=2,
                )
                inp = inp[there]
        blocks = frames.Blocks.of(inp)
        if not len(inp):
            return frames.ranked(
                inp, blocks, np.empty(0), **{name: np.empty(0, dtype) for name, dtype in COSTS.items()}
            )
        return self.rerank(inp, blocks)

    def score(self, frame: pd.DataFrame, blocks: frames.Blocks) -> dict[str, np.ndarray]:
        """Returns the relevance of each candidate and what it cost."""
        dcbert = self._checked()
        dcbert.warn_if_untrained()
        found = self.cache.find(frame["docno"].tolist())
        found, more = self._encoded(frame, found, dcbert)
        documents = CachedDocuments(self.cache, more)
        queries, joined = frames.texts(frame, "query"), Joined.empty(len(frame))
        with pt.tqdm(total=len(frame), desc="CachedRanker", unit="pair", disable=not self.verbose) as bar:
            for part in slabs(list(blocks)):
                questions = dcbert.questions([queries[block[0]] for block in part])
                numbers = [found[block] for block in part]
                for block, one in zip(part, join(dcbert, questions, documents, numbers, bar.update), strict=True):
                    joined.put(block, one)
        return {"score": joined.scores, **dcbert.costs(frame, blocks, joined, cached=True)}

    def _checked(self) -> DCBERT:
        if getattr(self, "_dcbert", None) is None:
            dcbert = self.dcbert()
            self.cache.check(dcbert.document_fingerprint(), repr(dcbert))
            self._dcbert = dcbert
        return self._dcbert

    def _encoded(self, frame: pd.DataFrame, found: np.ndarray, dcbert: DCBERT):
        """Returns where each row's document is, those that are missing below 0, and the states of these."""
        gone = np.flatnonzero(found < 0)
        if not len(gone):
            return found, None
        if self.missing != "encode":
            names = ", ".join(map(repr, dict.fromkeys(frame["docno"].iloc[gone].tolist())))
            names = names if len(names) < 80 else names[:80] + " ..."
            raise KeyError(
                f"{len(gone)} of {len(frame)} candidates are not in {self.cache!r}: {names}; encode them into it, or "
                "use missing='encode' (from their text) or missing='drop'"
            )
        documents, codes = dcbert.encoded_texts(frames.texts(frame.iloc[gone], self.text_field))
        found = found.copy()
        found[gone] = -1 - codes
        return found, documents.stored_as(self.cache.dtype)

    def __getstate__(self):
        state = self.__dict__.copy()
        state.pop("_dcbert", None)
        return state

    def __repr__(self):
        """Returns what can be typed back in."""
        return f"{self.cache!r}.reranker({', '.join(self._arguments(skip=('cache',)))})"


def _parts(options: dict) -> dict:
    """Returns the arguments of ``from_pretrained`` that a checkpoint's options stand for."""
    return {("variant" if name == "interaction" else name): value for name, value in options.items()}
