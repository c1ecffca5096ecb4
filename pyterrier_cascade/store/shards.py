"""A shard of a document store: a folder with some documents that is there whole or not at all."""

import hashlib
import io
import os
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyterrier_cascade.checks import is_count
from pyterrier_cascade.store import parts, publish
from pyterrier_cascade.store.dtypes import DTYPES
from pyterrier_cascade.store.publish import Damaged
from pyterrier_cascade.store.strings import Strings

META = "shard.json"
TOKENS, SCALES = "tokens.bin", "scales.bin"
DOCNOS = "docnos"
ARRAYS = {"entries": "<u8", "offsets": "<u8", "checks": "<u4", "hashes": "<u8"}
"""The first entry of each document, the first token of each entry, the checksum of each entry, each docno's hash."""
MOST_DOCUMENTS, MOST_ENTRIES = 1 << 24, 1 << 16
"""The most documents of a shard and the most entries of a document: an entry's number has no room for more."""
OF_MODEL = ("fingerprint", "dtype", "width")
"""The settings that a shard shares with its store."""
REMEDY = (
    "delete that folder and build the cache again, which does this shard only (documents that came by add or replace "
    "are added again)"
)


def encoded(docnos: Sequence[str]) -> list[bytes]:
    """Returns docnos as bytes."""
    try:
        return [docno.encode("utf-8", "surrogatepass") for docno in docnos]
    except AttributeError:
        wrong = next(docno for docno in docnos if not isinstance(docno, str))
        raise ValueError(f"docno {wrong!r} is {type(wrong).__name__}, not str") from None


def hashed(docnos: Sequence[bytes]) -> np.ndarray:
    """Returns a number for each docno ``(n,)``, the same on any machine."""
    digests = b"".join(hashlib.blake2b(docno, digest_size=8).digest() for docno in docnos)
    return np.frombuffer(digests, "<u8")


def checksum(docno: bytes, place: int, n_entries: int, contents: Sequence[np.ndarray]) -> int:
    """Returns the CRC-32 of an entry. It tells an entry from every other entry of every document.

    Args:
        docno: The name of its document.
        place: Which of the document's entries it is.
        n_entries: How many the document has.
        contents: Its bytes in ``tokens.bin`` and, for a dtype with scales, in ``scales.bin``.
    """
    check = zlib.crc32(struct.pack("<QQ", place, n_entries), zlib.crc32(docno))
    for content in contents:
        check = zlib.crc32(content, check)
    return check


def as_bytes(array: np.ndarray) -> np.ndarray:
    """Returns the bytes of an array ``(n_bytes,)`` without copying them."""
    return array.reshape(-1).view(np.uint8)


class ShardWriter:
    """Writes a shard into a folder, some documents at a time. The same input gives the same bytes.

    It is a context manager: when its block ends it writes the small files, and last ``shard.json`` with the sizes and
    checksums of all. Where the block raises it leaves the folder unfinished.

    Args:
        folder: An empty folder.
        meta: The store's ``pt_meta.json``, of which ``shard.json`` keeps :data:`OF_MODEL`.
        **more: Further fields of ``shard.json``.
    """

    def __init__(self, folder: Path, meta: Mapping[str, Any], **more: Any):
        self.folder, self.fields = folder, {key: meta[key] for key in OF_MODEL} | more
        self.dtype = DTYPES[meta["dtype"]]
        self.docnos: list[str] = []
        self.lengths = [np.empty(0, np.int64)]
        self.n_entries = [np.empty(0, np.int64)]
        self.checks: list[int] = []

    def __enter__(self):
        names = (TOKENS, SCALES) if self.dtype.has_scales else (TOKENS,)
        self.flat = [open(self.folder / name, "wb") for name in names]  # noqa: SIM115
        return self

    def __exit__(self, error, *more):
        for file in self.flat:
            file.close()
        if error is None:
            self._finish()

    def add(self, docnos: Sequence[str], states: np.ndarray, lengths: np.ndarray, owner: np.ndarray) -> None:
        """Adds documents that were encoded; see :class:`~pyterrier_cascade.store.encoding.Batch`."""
        bad = self.dtype.first_misfit(states)
        if bad is not None:
            docno = docnos[owner[np.searchsorted(np.cumsum(lengths), bad, "right")]]
            worst = states[bad][np.argmax(np.abs(states[bad]))]
            remedy = "use dtype='int8', which has no limit" if np.isfinite(worst) else "the model's weights are broken"
            raise ValueError(
                f"the states of document {docno!r} hold {worst:g}, which {self.dtype.name} cannot store; {remedy}"
            )
        counts = np.bincount(owner, minlength=len(docnos))
        if counts.max() > MOST_ENTRIES:
            raise ValueError(f"document {docnos[counts.argmax()]!r} has {counts.max()} entries; at most {MOST_ENTRIES}")
        self.add_stored(docnos, *self.dtype.pack(states), lengths, counts)

    def add_stored(
        self,
        docnos: Sequence[str],
        stored: np.ndarray,
        scales: np.ndarray | None,
        lengths: np.ndarray,
        n_entries: np.ndarray,
    ) -> None:
        """Adds documents whose states are in the store's dtype already.

        Args:
            docnos: Their names.
            stored: The stored numbers of their tokens end to end ``(n_tokens, width)``.
            scales: The scale of each token ``(n_tokens,)``; None for a dtype without scales.
            lengths: The tokens of each entry ``(n_entries,)``.
            n_entries: How many entries each document has ``(n,)``.
        """
        flat = [stored] if scales is None else [stored, scales]
        names, owner, ends = encoded(docnos), np.repeat(np.arange(len(docnos)), n_entries), np.cumsum(lengths)
        places = np.arange(len(owner)) - (np.cumsum(n_entries) - n_entries)[owner]
        for number, place, start, end in zip(
            owner.tolist(), places.tolist(), (ends - lengths).tolist(), ends.tolist(), strict=True
        ):
            contents = [as_bytes(part[start:end]) for part in flat]
            self.checks.append(checksum(names[number], place, int(n_entries[number]), contents))
        self.docnos += docnos
        self.lengths.append(np.asarray(lengths, np.int64))
        self.n_entries.append(np.asarray(n_entries, np.int64))
        for file, part in zip(self.flat, flat, strict=True):
            file.write(part.data)

    def _finish(self) -> None:
        lengths, n_entries = np.concatenate(self.lengths), np.concatenate(self.n_entries)
        Strings.pack(self.docnos).save(self.folder, DOCNOS)
        arrays = {
            "entries": np.concatenate([[0], np.cumsum(n_entries)]),
            "offsets": np.concatenate([[0], np.cumsum(lengths)]),
            "checks": self.checks,
            "hashes": hashed(encoded(self.docnos)),
        }
        for name, dtype in ARRAYS.items():
            np.save(self.folder / f"{name}.npy", np.asarray(arrays[name]).astype(dtype), allow_pickle=False)
        files = parts.described(self.folder)
        counts = {"n_documents": len(self.docnos), "n_entries": len(lengths), "n_tokens": int(lengths.sum())}
        (self.folder / META).write_bytes(publish.sealed(self.fields | counts | {"files": files}))


class Shard:
    """A shard on disk. Opening it reads ``shard.json`` and compares the sizes of the files, and does no more.

    Args:
        folder: The shard's folder.
        meta: The store's ``pt_meta.json``; the shard must have the same :data:`OF_MODEL`.
    """

    def __init__(self, folder: Path, meta: Mapping[str, Any]):
        self.folder = folder
        if not folder.is_dir():
            raise self._gone()
        try:
            self.meta = publish.read_sealed(folder / META)
        except (ValueError, OSError) as error:
            raise Damaged(f"{str(folder / META)!r} is missing or damaged; {REMEDY}") from error
        files = self.meta.get("files")
        if not isinstance(files, dict) or not all(_describes(name, file) for name, file in files.items()):
            raise Damaged(f"{str(folder / META)!r} does not list the shard's own files; {REMEDY}")
        parts.check(folder, files, REMEDY, contents=False)
        for key in OF_MODEL:
            if self.meta.get(key) != meta[key]:
                raise ValueError(
                    f"shard {str(folder)!r} has {key} {self.meta.get(key)!r}, the cache {meta[key]!r}; a shard of "
                    "another cache? Take it away, and use merge to join caches"
                )

    def _gone(self) -> FileNotFoundError:
        return FileNotFoundError(f"shard {str(self.folder)!r} is missing; build the cache again, which does it only")

    @property
    def n_documents(self) -> int:
        """The number of its documents."""
        return self.meta["n_documents"]

    def array(self, name: str) -> np.ndarray:
        """Returns one of its small arrays, after a comparison of its checksum."""
        return parts.array(self.folder, name, self.meta["files"], REMEDY)

    def docnos(self) -> list[str]:
        """Returns the names of its documents."""
        packed = Strings(self.array(f"{DOCNOS}.bytes"), self.array(f"{DOCNOS}.ends"))
        return packed.take(np.arange(len(packed))).tolist()

    def expect(self, name: str, parts: Iterable[tuple[int, np.ndarray]]) -> None:
        """Lets the disk begin to fetch what :meth:`read` will read."""
        if hasattr(os, "posix_fadvise"):
            with self._opened(name) as file:
                for start, wanted in parts:
                    os.posix_fadvise(file.fileno(), start, len(wanted), os.POSIX_FADV_WILLNEED)

    def read(self, name: str, parts: Iterable[tuple[int, np.ndarray]]) -> None:
        """Reads parts of a flat file.

        Args:
            name: ``tokens.bin`` or ``scales.bin``.
            parts: The first byte of each part, and the bytes to fill.
        """
        # Read, not mapped: a file that is cut while it is in use is an error then, and not the end of the process; no
        # page of it counts as this process's memory, and thousands of shards need no open files.
        with self._opened(name) as file:
            for start, wanted in parts:
                file.seek(start)
                while len(wanted):
                    n = file.readinto(wanted)
                    if not n:
                        raise Damaged(f"{str(file.name)!r} ends too early; {REMEDY}")
                    wanted = wanted[n:]

    def _opened(self, name: str) -> io.FileIO:
        try:
            return open(os.path.join(self.folder, name), "rb", buffering=0)
        except FileNotFoundError:
            raise self._gone() from None


def _describes(name: str, file: Any) -> bool:
    """Returns whether a record is that of a file in the shard's own folder; a forged one could name any other file."""
    is_inside = name == os.path.basename(name) and name not in ("", ".", "..")
    return (
        is_inside and isinstance(file, dict) and is_count(file.get("bytes"), 0) and isinstance(file.get("sha256"), str)
    )
