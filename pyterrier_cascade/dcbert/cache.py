"""The document cache of DC-BERT (DC-1): the token states of all documents, encoded once."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyterrier_cascade.store.encoding import Encode
from pyterrier_cascade.store.store import DocumentStore

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyterrier_cascade.dcbert.cached_ranker import CachedRanker
    from pyterrier_cascade.dcbert.ranker import DCBERT

FROM_CACHE = ("query_length", "document_length", "passages")


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

        return DCBERT.from_pretrained(self.meta["model"], **self.meta["parts"])

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
