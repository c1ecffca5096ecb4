"""A document store: the token states of documents, written once, read by name and changed as the collection changes."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyterrier as pt

from pyterrier_cascade.checks import is_count
from pyterrier_cascade.forks import cached_property
from pyterrier_cascade.store import change, parts
from pyterrier_cascade.store.build import Builder
from pyterrier_cascade.store.documents import documents_of, refuse_string
from pyterrier_cascade.store.dtypes import DTYPES, dtype_of
from pyterrier_cascade.store.encoding import Encode
from pyterrier_cascade.store.folder import META, StoreFolder
from pyterrier_cascade.store.index import Index
from pyterrier_cascade.store.indexing import open_index
from pyterrier_cascade.store.shards import MOST_DOCUMENTS
from pyterrier_cascade.store.states import Reader, States

if TYPE_CHECKING:
    from typing_extensions import Self

VERSION = 1
DOCNOS = "a list of docnos: ['d1', 'd2']"


class DocumentStore(pt.Artifact):
    """The token states of documents in a folder of shards, each there whole or not at all.

    A build that is killed loses the shard under way; the same call completes it. Several processes may build different
    shards at once. A complete store can be changed by :meth:`add`, :meth:`replace`, :meth:`delete` and :meth:`compact`;
    each change counts as a whole or not at all, also after a kill. Readers see the documents that counted when they
    first looked, until :meth:`refresh`.

    A wrong state is never returned. When a shard is first used, a wrong size, a shard of another model and a changed
    ``shard.json`` are refused. When a document is read, a changed byte in its states, scales, lengths or docno is found
    by its CRC-32. :meth:`verify` finds a changed byte anywhere, by SHA-256. Opening costs the same whatever the size,
    and next to no memory.

    Args:
        path: The folder.
        trust: Leave out the CRC-32 of what is read.
    """

    ARTIFACT_TYPE = "document_store"
    ARTIFACT_FORMAT = "shards"
    ARTIFACT_PACKAGE_HINT = "pyterrier_cascade"

    def __init__(self, path: str | Path, *, trust: bool = False):
        super().__init__(path)
        self.trust = trust
        self.meta = self._read_meta(self.path)

    @classmethod
    def _kind(cls) -> dict[str, Any]:
        return {
            "type": cls.ARTIFACT_TYPE,
            "format": cls.ARTIFACT_FORMAT,
            "package_hint": cls.ARTIFACT_PACKAGE_HINT,
            "version": VERSION,
        }

    @classmethod
    def _read_meta(cls, folder: Path) -> dict[str, Any]:
        """Returns the content of ``pt_meta.json``, after a check of its kind."""
        if not (folder / META).is_file():
            raise FileNotFoundError(f"no document cache at {str(folder)!r}; make one with {cls.__name__}.build")
        meta = parts.read_meta(folder, cls._kind())
        are_right = {
            **{name: isinstance(meta.get(name), str) for name in ("model", "fingerprint")},
            **{name: is_count(meta.get(name)) for name in ("width", "shard_size")},
            "dtype": isinstance(meta.get("dtype"), str) and meta["dtype"] in DTYPES,
        }
        for name, is_right in are_right.items():
            if not is_right:
                raise ValueError(f"{str(folder / META)!r} has {name} {meta.get(name)!r:.100}; build the cache anew")
        return meta

    @classmethod
    def build(
        cls,
        path: str | Path,
        corpus: Any,
        encode: Encode,
        *,
        meta: Mapping[str, Any],
        dtype: str = "fp16",
        shard_size: int = 5000,
        batch_size: int = 256,
        shards: Iterable[int] | None = None,
        n_documents: int | None = None,
        text_field: str = "text",
        verbose: bool = False,
        pool: Any = None,
    ) -> "Self":
        """Encodes a corpus, or the documents of it that are missing, and returns the store.

        Shard k holds documents ``k * shard_size`` and following of the corpus. The same input gives the same bytes,
        whoever writes them. Shards that are there are compared to the corpus and not encoded again.

        Args:
            path: The folder of the store, new or one that the same call began.
            corpus: A data frame, an iterable of dictionaries with ``docno`` and the text, or a data set.
            encode: Gives for texts their token states ``(n_tokens, width)`` end to end in float32, the tokens of each
                entry ``(n_entries,)`` and the text of each entry as an ascending number ``(n_entries,)``. An entry is
                a text, or a passage of a long one.
            meta: The facts about the model that a reader must know: ``model`` (its name), ``fingerprint``, ``width``
                and further settings, all of types that JSON has.
            dtype: ``"fp16"``, or ``"int8"`` with a scale per token: half the disk.
            shard_size: Documents in a shard.
            batch_size: Texts that are encoded together.
            shards: The numbers of the shards that this process makes; all by default.
            n_documents: The size of the corpus, for the time left and the room needed; known of lists and frames.
            text_field: The field with the text.
            verbose: Whether to say the size and show the progress.
            pool: The pool whose workers encode, a shard each at a time (:class:`~pyterrier_cascade.RayPool`); this
                process encodes unless given. The workers must see the folder.
        """
        dtype_of(dtype)
        for name, value in (("shard_size", shard_size), ("batch_size", batch_size), ("width", meta.get("width"))):
            if not is_count(value):
                raise ValueError(f"{name} is {value!r}; give a whole number of 1 or more")
        if shard_size > MOST_DOCUMENTS:
            raise ValueError(f"shard_size is {shard_size}; at most {MOST_DOCUMENTS}")
        if missing := [name for name in ("model", "fingerprint") if name not in meta]:
            raise ValueError(f"meta has no {', '.join(missing)}; a reader must know them")
        # Workers elsewhere have other current folders.
        folder, documents = Path(path).expanduser().absolute(), documents_of(corpus)
        if (folder / META).is_file():
            cls._read_meta(folder)
        meta = json.loads(json.dumps(dict(meta) | cls._kind() | {"dtype": dtype, "shard_size": shard_size}))
        if n_documents is None and hasattr(documents, "__len__"):
            n_documents = len(documents)
        Builder(
            folder=StoreFolder.now(folder, meta),
            encode=encode,
            batch_size=batch_size,
            shards=None if shards is None else frozenset(shards),
            n_documents=n_documents,
            text_field=text_field,
            verbose=verbose,
        ).run(documents, pool)
        return cls(path)

    @property
    def folder(self) -> StoreFolder:
        """The folder with the shards and changes that count now."""
        return StoreFolder.now(self.path, self.meta)

    @cached_property
    def _reader(self) -> Reader:
        # The last value is a temporary folder that lives as long as this object.
        folder, index, self._aside = open_index(self.folder)
        return Reader(folder, index, self.trust)

    @property
    def _index(self) -> Index:
        return self._reader.index

    def refresh(self) -> "Self":
        """Sees the documents that count now, and returns itself."""
        self.__dict__.pop("_reader", None)
        return self

    @property
    def dtype(self) -> str:
        """The dtype of the stored states: ``"fp16"`` or ``"int8"``."""
        return self.meta["dtype"]

    @property
    def width(self) -> int:
        """The numbers in a token's state."""
        return self.meta["width"]

    def __len__(self):
        """Returns the number of documents."""
        return len(self._index)

    @property
    def n_tokens(self) -> int:
        """The tokens of all documents."""
        return self._index.counts["n_tokens"]

    @property
    def n_entries(self) -> int:
        """The entries of all documents: as many as documents, and more where long ones are kept as passages."""
        return self._index.counts["n_entries"]

    @property
    def missing(self) -> list[int]:
        """The numbers of the shards that are known to be missing."""
        return self.folder.missing()

    @property
    def complete(self) -> bool:
        """Whether the whole corpus and all changes are in it."""
        folder = self.folder
        if folder.end is None or folder.missing():
            return False
        return max(folder.built(), default=-1) < folder.end["n_shards"]

    @property
    def documents(self) -> np.ndarray:
        """The numbers of all documents, in the order in which they were written ``(n_documents,)``."""
        return self._index.documents()

    def find(self, docnos: Sequence[str]) -> np.ndarray:
        """Returns the numbers of documents, -1 for those that are not here ``(n,)``.

        They stay the same when documents are added. A document that is one entry has the number of that entry.

        Args:
            docnos: Their names.
        """
        refuse_string(docnos, DOCNOS)
        return self._index.find(list(docnos))

    def docnos(self, documents: Sequence[int]) -> np.ndarray:
        """Returns the names of documents ``(n,)``.

        Args:
            documents: Their numbers.
        """
        return self._index.docnos(np.asarray(documents, np.int64))

    def entries(self, documents: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the entries of documents, one document after the other, and how many each has ``(n,)``.

        A document is one entry, or one for each of its passages.

        Args:
            documents: Their numbers.
        """
        return self._index.entries(np.asarray(documents, np.int64))

    def read(self, entries: Sequence[int]) -> States:
        """Returns the states of entries, in this order.

        Args:
            entries: Their numbers.

        Raises:
            ValueError: If the disk holds something else than was written.
        """
        return self.begin(entries)()

    def begin(self, entries: Sequence[int]) -> Callable[[], States]:
        """Lets the disk begin to fetch entries, and returns a function that waits for them and returns their states.

        Args:
            entries: Their numbers.
        """
        return self._reader.begin(np.asarray(entries, np.int64))

    def encoder(self, encode: Any = None) -> Encode:
        """Returns the function that encodes new documents as those in the store were encoded.

        Args:
            encode: The function, as :meth:`build` takes it.
        """
        if encode is None:
            raise ValueError("the store knows no model; give encode, the function that encoded its documents")
        return encode

    def add(self, documents: Any, encode: Any = None, **options: Any) -> "Self":
        """Adds documents, all of them or none, and returns itself. Docnos that are there are refused.

        Args:
            documents: A data frame, an iterable of dictionaries with ``docno`` and the text, or a data set.
            encode: The function that encoded the documents of the store, as :meth:`build` takes it.
            **options: ``batch_size`` (256), ``text_field`` (``"text"``) and ``verbose`` (False), as in :meth:`build`.
        """
        return self._write(documents, encode, replaces=False, **options)

    def replace(self, documents: Any, encode: Any = None, **options: Any) -> "Self":
        """Replaces documents by those with the same docnos, all of them or none, and returns itself.

        Docnos that are not there are refused.

        Args:
            documents: As in :meth:`add`, like the further ones.
            encode: See there.
            **options: See there.
        """
        return self._write(documents, encode, replaces=True, **options)

    def _write(self, documents: Any, encode: Any, replaces: bool, **options: Any) -> "Self":
        change.write(self, documents, self.encoder(encode), replaces, **options)
        return self

    def delete(self, docnos: Iterable[str]) -> "Self":
        """Deletes documents, all of them or none, and returns itself. Docnos that are not there are refused.

        Their states stay on disk until :meth:`compact`.

        Args:
            docnos: Their names.
        """
        refuse_string(docnos, DOCNOS)
        change.delete(self, list(docnos))
        return self

    def compact(self) -> "Self":
        """Frees the disk of deleted and replaced documents, joins small shards, and returns itself.

        Only the shards that have such documents or are not full are written anew; the disk needs room for these. The
        documents in them get new numbers, and readers that looked before must :meth:`refresh`.
        """
        change.compact(self)
        return self

    def verify(self, verbose: bool = False) -> None:
        """Reads everything and raises unless it is what was written, whole and without a docno twice.

        Args:
            verbose: Whether to show the progress.
        """
        from pyterrier_cascade.store.verify import faults

        if found := faults(self.folder, verbose):
            raise ValueError(f"the cache at {str(self.path)!r} is not sound: " + "; ".join(found))

    @classmethod
    def merge(cls, stores: Iterable["str | Path | DocumentStore"], out: str | Path) -> "Self":
        """Joins stores of one model in a new folder and returns it; shards are linked where the disk allows.

        Complete stores follow one another, without their deleted documents. Stores of which none is complete are taken
        for parts of one corpus: their shards keep their numbers.

        Args:
            stores: The stores, or their folders.
            out: The new folder.
        """
        from pyterrier_cascade.store.merge import merge

        if isinstance(stores, str | bytes | Path | DocumentStore):
            raise TypeError(f"merge was given {stores!r} alone; give a list of caches or of their folders")
        merge([one if isinstance(one, cls) else cls(one) for one in stores], Path(out))
        return cls(out)

    def __repr__(self):
        """Returns an expression that makes an equal store."""
        return f"{type(self).__name__}({str(self.path)!r}{', trust=True' * self.trust})"

    def __eq__(self, other):
        """Whether both are the same folder, used in the same way."""
        if type(self) is not type(other):
            return NotImplemented
        return (self.path.resolve(), self.trust) == (other.path.resolve(), other.trust)

    def __hash__(self):
        """Equal stores hash alike."""
        return hash((self.path.resolve(), self.trust))

    def __getstate__(self):
        """It pickles as its path, with the time of the last change: a worker that opened it before notices a change."""
        path = os.path.abspath(self.path)
        return {"path": path, "trust": self.trust, "changed": os.stat(path).st_mtime_ns}

    def __setstate__(self, state):
        """Opens it again."""
        self.__init__(state["path"], trust=state["trust"])
