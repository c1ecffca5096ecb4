"""Atomic, durable writing: a file or a folder is at its path whole or not at all, also after a kill or a power cut.

Use these for everything that the package writes:

* :func:`publishing_folder` for a folder that you fill: an index, a trace, a shard;
* :func:`~.update.updating_folder` for a folder in which users keep files of their own too: a model;
* :func:`publishing_file` for a file that you write in pieces, and :func:`publish_file` for content in memory.

All of them write aside in the same folder, under a temporary name, then fsync, then rename. Readers therefore see the
old state or the new one. A process that is killed leaves its temporary files; the next write to the same path removes
them. A sign of life, a locked file beside the temporary one, tells a killed process from one that is at work.
"""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyterrier_cascade.store import locks

TEMPORARY, OLD, WRITER = ".tmp-", ".old-", ".writer-"
"""Temporary names and signs of life begin so. Then 12 hexadecimal digits, which name the writer, and the final name
follow."""
LEFTOVER = re.compile(r"(?P<kind>\.tmp-|\.old-|\.writer-)(?P<who>[0-9a-f]{12}-(?P<target>.+))", re.DOTALL)
SEAL = "sha256"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, *FULL)
HERE, EXCHANGE = -100, 2
"""``AT_FDCWD`` and ``RENAME_EXCHANGE`` of Linux."""


@contextmanager
def publishing_folder(path: str | Path, *, overwrite: bool = False, keep: bool = False) -> Iterator[Path]:
    """Yields an empty folder to fill; it becomes ``path`` when the block ends, and vanishes if the block raises.

    Every file in it is fsynced before. With ``overwrite`` the old folder and the new one change places in one step on
    Linux (``renameat2`` with ``RENAME_EXCHANGE``): a killed process leaves the old folder or the new one at the path.
    Other systems and some network file systems cannot exchange. There the old folder is renamed and then the new one;
    the path is empty between these two renames, and after a kill in between the next call puts the old folder back.

    Args:
        path: The final folder. Its parents are made if they are missing.
        overwrite: Whether a folder or file that is at the path is replaced.
        keep: Whether a folder that is at the path in the end stays, and what was written here is dropped. It is for
            processes that write the same content at the same time.

    Raises:
        FileExistsError: If something is at the path and neither ``overwrite`` nor ``keep`` is given. It is raised
            before the block runs, or at its end if another process was quicker.
    """
    with writing_aside(path) as (aside, target):
        if not (overwrite or keep):
            _refuse(target)
        aside.mkdir()
        yield aside
        sync_all(aside)
        if overwrite and os.path.lexists(target):
            _exchange(aside, target)
        else:
            try:
                os.replace(aside, target)
            except OSError:
                if not target.is_dir():
                    raise
                if not keep:
                    _refuse(target)
        sync(target.parent)


@contextmanager
def publishing_file(path: str | Path) -> Iterator[Path]:
    """Yields a path to write to; the file replaces ``path`` when the block ends, and vanishes if the block raises.

    Args:
        path: The final file. Its parents are made if they are missing.
    """
    with writing_aside(path) as (aside, target):
        yield aside
        sync(aside)
        os.replace(aside, target)
        sync(target.parent)


def publish_file(path: str | Path, content: bytes) -> None:
    """Writes a file that is there whole or not at all, over an old one if there is one.

    Args:
        path: The final file.
        content: What it will hold.
    """
    with publishing_file(path) as aside:
        aside.write_bytes(content)


@contextmanager
def writing_aside(path: str | Path) -> Iterator[tuple[Path, Path]]:
    """Yields a temporary path beside a path, and that path as an absolute one; removes the temporary one at the end."""
    target = Path(path).expanduser().absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent, target.name)
    who = f"{uuid.uuid4().hex[:12]}-{target.name}"
    sign, aside = (target.parent / f"{kind}{who}" for kind in (WRITER, TEMPORARY))
    # Another process may hold it for a moment, while it looks whether this writer is alive.
    while not (life := locks.hold(sign)):
        pass
    try:
        yield aside, target
    finally:
        remove(aside)
        life.close()
        sign.unlink(missing_ok=True)


def sweep(folder: Path, name: str | None = None) -> None:
    """Removes the temporary files of processes that are gone, and finishes an overwriting that one of them began.

    Args:
        folder: The folder.
        name: The final name whose leftovers are removed; all leftovers in the folder unless given.
    """
    with os.scandir(folder) as entries:
        found = [match for match in (LEFTOVER.fullmatch(entry.name) for entry in entries) if match]
    found = [match for match in found if name in (None, match["target"])]
    alive = {match["who"] for match in found if not locks.abandoned(folder / f"{WRITER}{match['who']}")}
    for match in found:
        if match["who"] not in alive:
            if match["kind"] == OLD and not os.path.lexists(folder / match["target"]):
                os.replace(folder / match[0], folder / match["target"])
            remove(folder / match[0])


def _refuse(target: Path) -> None:
    if os.path.lexists(target):
        raise FileExistsError(f"{str(target)!r} exists; choose another path or pass overwrite=True")


def remove(path: Path) -> None:
    """Removes a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _exchange(aside: Path, target: Path) -> None:
    """Puts what is aside in the place of the target. The old target is removed afterwards."""
    if _exchanged(aside, target):
        return
    old = aside.with_name(OLD + aside.name.removeprefix(TEMPORARY))
    os.replace(target, old)
    try:
        os.replace(aside, target)
    except OSError:
        os.replace(old, target)
        raise
    remove(old)


def _exchanged(one: Path, other: Path) -> bool:
    """Lets two paths change places in one step; returns False where the system or the file system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(AttributeError):
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        return rename(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0
    return False


def sync(path: Path) -> None:
    """Waits until a file, or the list of files of a folder, is on the disk; does nothing for links and pipes."""
    kind = path.lstat().st_mode
    if not (stat.S_ISREG(kind) or (stat.S_ISDIR(kind) and os.name == "posix")):
        return
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Waits until everything in a folder is on the disk."""
    for one in sorted(folder.rglob("*"), reverse=True):
        sync(one)
    sync(folder)


def sha256(path: str | Path) -> str:
    """Returns the SHA-256 of a file, which is read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


class Damaged(ValueError):
    """A file is not what was written; the message names it and says what to do."""


def seal(fields: dict[str, Any]) -> str:
    """Returns the SHA-256 of the fields without the seal itself."""
    text = json.dumps({key: value for key, value in fields.items() if key != SEAL}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(fields: dict[str, Any]) -> bytes:
    """Returns the fields and their seal as JSON; equal fields give equal bytes."""
    return json.dumps(fields | {SEAL: seal(fields)}, sort_keys=True).encode()


def read_sealed(path: Path, remedy: str = "copy its folder again, or make it anew") -> dict[str, Any]:
    """Returns the fields of a file that :func:`sealed` made.

    Args:
        path: The file.
        remedy: What to do where it is damaged.

    Raises:
        FileNotFoundError: If the file is missing.
        Damaged: If it is not the file that was written.
    """
    content = path.read_bytes()
    fields = _fields(content)
    if content == sealed(fields):
        return fields
    raise Damaged(f"{str(path)!r} is damaged: it is not what was written; {remedy}")


def unsealed(path: Path) -> dict[str, Any]:
    """Returns the fields of a JSON file, whether it has a seal or not; none if it is no JSON object."""
    return _fields(path.read_bytes())


def _fields(content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


class DiskFull(OSError):
    """The disk has no room; the message says what to do."""


@contextmanager
def explaining_full_disk(message: str) -> Iterator[None]:
    """Raises :class:`DiskFull` with this message where the block finds that the disk is full.

    Args:
        message: What a full disk means here, and what to do.
    """
    try:
        yield
    except Exception as error:
        number = _errno(error)
        if number not in FULL or isinstance(error, DiskFull):
            raise
        raise DiskFull(number, f"{message} ({os.strerror(number)})") from error


def _errno(error: Exception) -> int | None:
    if getattr(error, "errno", None) is not None:
        return error.errno
    # Safetensors tells the number in words only, and NumPy tells of a write that was cut short.
    said = re.search(r"\(os error (\d+)\)|\d+ requested and \d+ written", str(error))
    return (int(said[1]) if said[1] else errno.ENOSPC) if said else None
