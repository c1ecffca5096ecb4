"""DC-BERT over documents that a cache holds: no text is needed (DC-1)."""

import warnings

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import frames
from pyterrier_cascade.checks import check_choices
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
        model: The DC-BERT whose question encoder and joint layers are used, with its settings; the one that made the
            cache unless given. Its document encoder must be that of the cache.
        interaction: ``"joint"`` or ``"late"``, as in :class:`DCBERT`; the model's unless given.
        missing: What becomes of candidates that the cache does not hold: ``"error"``, ``"encode"`` from their text, or
            ``"drop"``, which says how many.
        device: Where to compute; the model's unless given.
        verbose: Whether to show progress.
        text_field: The column with the text, read for what is missing only; the model's unless given.
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
        if not isinstance(model, DCBERT | None):
            raise ValueError(f"model must be a DCBERT, such as DCBERT.from_pretrained(...), not {model!r}")
        self.cache, self.model, self.interaction, self.missing = cache, model, interaction, missing
        self.device, self.verbose, self.text_field = device, verbose, text_field

    def new_columns(self):
        """Returns the cost columns."""
        return COSTS

    def dcbert(self) -> DCBERT:
        """Returns the model, with the settings that the documents were encoded with."""
        meta, given = self.cache.meta, ("interaction", "device", "text_field")
        if self.model is None:
            model, named = self._maker(), ("query_length", "document_length", "passages")
        else:
            model, named = self.model(document_length=meta["max_length"]), ()
            if model.query_length is None:
                named += ("query_length",)
            # The same states serve the greatest and the mean score of the passages.
            if (model.passages == "first") != (meta["passages"] == "first"):
                named += ("passages",)
        settings = {name: getattr(self, name) for name in given if getattr(self, name) is not None}
        return model(precision=meta["precision"], **{name: meta[name] for name in named}, **settings)

    def _maker(self) -> DCBERT:
        """Returns the model that made the cache, which is loaded once."""
        if getattr(self, "_made_by", None) is None:
            meta = self.cache.meta
            self._made_by = DCBERT.from_pretrained(meta["model"], **_parts(meta["parts"]))
        return self._made_by

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the candidates of each query with new scores and ranks.

        Args:
            inp: A results frame with ``qid``, ``query`` and ``docno``, and the text to encode what is missing.
        """
        text = self.dcbert().text_field if self.missing == "encode" else None
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
        # Each time anew: the model may have been trained since, and settings are attributes.
        dcbert = self.dcbert()
        self.cache.check(dcbert.document_fingerprint(), repr(dcbert))
        dcbert.warn_if_untrained()
        found = self.cache.find(frame["docno"].tolist())
        texts, there = self._texts(frame, found, dcbert), found >= 0
        queries, joined = frames.texts(frame, "query"), Joined.empty(len(frame))
        with pt.tqdm(total=len(frame), desc="CachedRanker", unit="pair", disable=not self.verbose) as bar:
            for part in slabs(list(blocks), dcbert.room(texts)):
                questions = dcbert.questions([queries[block[0]] for block in part])
                documents = CachedDocuments(self.cache, self._encoded(np.concatenate(part), found, texts, dcbert))
                numbers = [found[block] for block in part]
                for block, one in zip(part, join(dcbert, questions, documents, numbers, bar.update), strict=True):
                    joined.put(block, one)
        return {"score": joined.scores, **dcbert.costs(frame, blocks, joined, there)}

    def _texts(self, frame: pd.DataFrame, found: np.ndarray, dcbert: DCBERT) -> list[str]:
        """Returns the texts of what the cache does not hold, and empty ones for the rest."""
        gone = np.flatnonzero(found < 0)
        if len(gone) and self.missing != "encode":
            names = ", ".join(map(repr, dict.fromkeys(frame["docno"].iloc[gone].tolist())))
            names = names if len(names) < 80 else names[:80] + " ..."
            raise KeyError(
                f"{len(gone)} of {len(frame)} candidates are not in {self.cache!r}: {names}; encode them into a cache "
                "and merge both, or use missing='encode' (from their text) or missing='drop'"
            )
        texts = [""] * len(frame)
        if len(gone):
            for row, text in zip(gone.tolist(), frames.texts(frame.iloc[gone], dcbert.text_field), strict=True):
                texts[row] = text
        return texts

    def _encoded(self, rows: np.ndarray, found: np.ndarray, texts: list[str], dcbert: DCBERT):
        """Encodes what the cache does not hold of some rows, and notes its numbers, which are below 0."""
        gone = rows[found[rows] < 0]
        if not len(gone):
            return None
        documents, codes = dcbert.encoded_texts([texts[row] for row in gone])
        found[gone] = -1 - codes
        return documents.stored_as(self.cache.dtype)

    def __getstate__(self):
        state = self.__dict__.copy()
        state.pop("_made_by", None)
        return state

    def __repr__(self):
        """Returns what can be typed back in."""
        return f"{self.cache!r}.reranker({', '.join(self._arguments(skip=('cache',)))})"


def _parts(options: dict) -> dict:
    """Returns the arguments of ``from_pretrained`` that a checkpoint's options stand for."""
    return {("variant" if name == "interaction" else name): value for name, value in options.items()}
