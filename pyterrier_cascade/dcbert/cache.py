"""The document cache of DC-BERT (DC-1): the token states of all documents, encoded once."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyterrier_cascade.checks import is_count
from pyterrier_cascade.dcbert.settings import PARTS
from pyterrier_cascade.encoder.device import DTYPES
from pyterrier_cascade.encoder.passages import PASSAGES
from pyterrier_cascade.forks import cached_property
from pyterrier_cascade.store.encoding import Encode
from pyterrier_cascade.store.folder import META
from pyterrier_cascade.store.store import DocumentStore

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyterrier_cascade.dcbert.cached_ranker import CachedRanker
    from pyterrier_cascade.dcbert.ranker import DCBERT

FROM_CACHE = ("query_length", "document_length", "passages")


SETTINGS = {
    "max_length": is_count,
    "query_length": lambda value: value is None or is_count(value),
    "document_length": lambda value: value is None or is_count(value),
    "passages": lambda value: isinstance(value, str) and value in PASSAGES,
    "precision": lambda value: isinstance(value, str) and value in DTYPES,
}
"""The settings of a DC-BERT that a cache keeps, each with the check of its value."""


class DocumentCache(DocumentStore):
    """The token states of documents, encoded once by a DC-BERT and read instead of their texts::

        cache = model.encode(dataset.get_corpus_iter(), "wikiqa.dc")
        bm25 >> cache.reranker()

    It is a folder of shards, each there whole or not at all. A build that is killed loses the shard under way; the
    same call completes it. Several processes may build different shards at once. When the collection changes,
    :meth:`add`, :meth:`replace` and :meth:`delete` change the cache, each as a whole or not at all, also after a kill::

        cache.add([{"docno": "new", "text": "a new document"}]).delete(["old"])

    Readers see the documents that counted when they first looked, until :meth:`refresh`.

    A wrong state is never returned. When a shard is first used, a wrong size, a shard of another model and a changed
    ``shard.json`` are refused. When a document is read, a changed byte in its states, scales, lengths or docno is found
    by its CRC-32. :meth:`verify` finds a changed byte anywhere, by SHA-256. Opening costs the same whatever the size,
    and next to no memory.

    Args:
        path: The folder.
        trust: Leave out the CRC-32 of what is read.
    """

    ARTIFACT_TYPE = "dcbert_cache"

    @classmethod
    def _read_meta(cls, folder: Path) -> dict[str, Any]:
        """Returns the content of ``pt_meta.json``, after a check of all that a DC-BERT is made with."""
        meta = super()._read_meta(folder)
        parts = meta.get("parts", {})
        # Whoever made the file may have written anything: an option such as trust_remote_code would run his code.
        if not isinstance(parts, dict) or not all(type(part) is PARTS.get(name) for name, part in parts.items()):
            raise ValueError(
                f"{str(folder / META)!r} has the parts {_excerpt(parts)}; a cache may name "
                f"{', '.join(f'{name} ({kind.__name__})' for name, kind in PARTS.items())} and nothing else: encode "
                "the corpus anew"
            )
        for name, is_right in SETTINGS.items():
            if name in meta and not is_right(meta[name]):
                raise ValueError(f"{str(folder / META)!r} has {name} {_excerpt(meta[name])}; encode the corpus anew")
        return meta

    def check(self, fingerprint: str, name: str) -> None:
        """Raises unless the cache was made by the model with this fingerprint.

        Args:
            fingerprint: The model's fingerprint.
            name: The model's name in the error.
        """
        if fingerprint != self.meta["fingerprint"]:
            raise ValueError(
                f"the cache at {str(self.path)!r} was made by {self.meta['model']} (fingerprint "
                f"{self.meta['fingerprint'][:12]}), not by {name} ({fingerprint[:12]}), whose states would mean "
                "something else; encode the corpus with this model, or load the other one"
            )

    def describe(self) -> dict[str, Any]:
        """Returns the description of the cache that ``python -m pyterrier_cascade info`` prints."""
        return {
            "kind": "document cache",
            "documents": len(self),
            "entries": self.n_entries,
            "tokens": self.n_tokens,
            "dtype": self.dtype,
            "width": self.width,
            "complete": self.complete,
            "missing_shards": self.missing,
            "model": self.meta["model"],
            "parts": self.meta.get("parts", {}),
            "document_fingerprint": self.meta["fingerprint"],
        }

    @cached_property
    def maker(self) -> "DCBERT":
        """The DC-BERT that made the cache. All rerankers of this object share its weights."""
        from pyterrier_cascade.dcbert.ranker import DCBERT

        try:
            return DCBERT.from_pretrained(self.meta["model"], **self.meta["parts"])
        except ValueError as error:
            raise ValueError(f"{str(self.path / META)!r} names a model that cannot be: {error}") from error

    def dcbert(self, model: "DCBERT | None" = None, **settings: Any) -> "DCBERT":
        """Returns a DC-BERT with the settings that the documents were encoded with.

        Args:
            model: The DC-BERT; :attr:`maker` unless given.
            **settings: Further settings of the DC-BERT.
        """
        if model is None:
            model, named = self.maker, FROM_CACHE
        else:
            model, named = model(document_length=self.meta["max_length"]), ()
            if model.query_length is None:
                named += ("query_length",)
            # The same states serve the greatest and the mean score of the passages.
            if (model.passages == "first") != (self.meta["passages"] == "first"):
                named += ("passages",)
        return model(precision=self.meta["precision"], **{name: self.meta[name] for name in named}, **settings)

    def encoder(self, encode: Any = None) -> Encode:
        """Returns the function that encodes new documents as those in the cache were encoded.

        Args:
            encode: A :class:`~pyterrier_cascade.DCBERT` with the document encoder of the cache; the one that made the
                cache unless given. A function is taken as it is.
        """
        from pyterrier_cascade.dcbert.ranker import DCBERT, Encoding

        if not isinstance(encode, DCBERT | None):
            return encode
        dcbert = self.dcbert(encode)
        self.check(dcbert.document_fingerprint(), repr(dcbert))
        return Encoding(dcbert)

    def add(self, documents: Any, encode: Any = None, **options: Any) -> "Self":
        """Adds documents, all of them or none, and returns itself. Docnos that are there are refused.

        Args:
            documents: A data frame, an iterable of dictionaries with ``docno`` and the text, or a data set.
            encode: A :class:`~pyterrier_cascade.DCBERT` with the document encoder of the cache; the one that made the
                cache unless given.
            **options: ``batch_size`` (256), ``text_field`` and ``verbose``, as in :meth:`build`; the last two are those
                of the DC-BERT unless given.
        """
        return super().add(documents, encode, **options)

    def _write(self, documents: Any, encode: Any, replaces: bool, **options: Any) -> "Self":
        from pyterrier_cascade.dcbert.ranker import DCBERT

        if isinstance(encode, DCBERT):
            options = {"text_field": encode.text_field, "verbose": encode.verbose} | options
        return super()._write(documents, encode, replaces, **options)

    def reranker(self, model: "DCBERT | None" = None, **settings: Any) -> "CachedRanker":
        """Returns a reranker that reads documents here.

        Args:
            model: The DC-BERT whose joint layers are used; the one that made the cache unless given.
            **settings: Those of :class:`~pyterrier_cascade.CachedRanker`.
        """
        from pyterrier_cascade.dcbert.cached_ranker import CachedRanker

        return CachedRanker(self, model, **settings)


def _excerpt(value: Any) -> str:
    """Returns the beginning of a value for an error."""
    return textwrap.shorten(repr(value), 100)
