"""Files that are on disk whole or not at all, and that know whether they were changed."""

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyterrier_cascade.store import locks

TEMPORARY = ".tmp-"
WRITER = ".writer-"
LOCK = ".lock"
SEAL = "sha256"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, *FULL)


def seal(fields: dict[str, Any]) -> str:
    """Returns the sha256 of the fields, but for the seal itself."""
    text = json.dumps({key: value for key, value in fields.items() if key != SEAL}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256(path: str | Path) -> str:
    """Returns the SHA-256 of a file, which is read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def sealed(fields: dict[str, Any]) -> bytes:
    """Returns the fields and their seal as JSON, the same bytes for the same fields."""
    return json.dumps(fields | {SEAL: seal(fields)}, sort_keys=True).encode()


def read_sealed(path: Path) -> dict[str, Any]:
    """Returns the fields of a sealed file.

    Raises:
        FileNotFoundError: If it is missing.
        ValueError: If it is not what was written.
    """
    content = path.read_bytes()
    try:
        fields = json.loads(content)
        if content == sealed(fields):
            return fields
    except (ValueError, TypeError, AttributeError):
        pass
    raise ValueError(f"{str(path)!r} is damaged: it is not what was written")


def sync(path: Path) -> None:
    """Waits until a file, or the list of files of a folder, is on the disk."""
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DiskFull(OSError):
    """There is no room, and what that means."""


@contextmanager
def full_disk_named(what: str) -> Iterator[None]:
    """Says what a full disk means for the work inside."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or isinstance(error, DiskFull):
            raise
        raise DiskFull(error.errno, f"{what} ({os.strerror(error.errno)})") from error


class Writer:
    """A process's right to write in a folder, under temporary names that are swept once it is gone.

    Its sign of life is a lock on a file, so that a process that was killed is told from one that is at work.

    Args:
        folder: The folder, made if it is missing.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.name = uuid.uuid4().hex[:12]

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.alone():
            self.sweep()
            self._life = locks.hold(self.folder / f"{WRITER}{self.name}")
        return self

    def __exit__(self, *error):
        self._remove(self.name)
        if self._life:
            self._life.close()
        (self.folder / f"{WRITER}{self.name}").unlink(missing_ok=True)

    def alone(self):
        """Lets one writer at a time into a block."""
        return locks.alone(self.folder / LOCK)

    def sweep(self) -> None:
        """Removes what writers left that are gone."""
        left = {path.name[len(TEMPORARY) :].split("-")[0] for path in self.folder.glob(f"{TEMPORARY}*")}
        left |= {path.name[len(WRITER) :] for path in self.folder.glob(f"{WRITER}*")}
        for name in left - {self.name}:
            if locks.abandoned(self.folder / f"{WRITER}{name}"):
                self._remove(name)
                (self.folder / f"{WRITER}{name}").unlink(missing_ok=True)

    def _remove(self, name: str) -> None:
        for path in self.folder.glob(f"{TEMPORARY}{name}-*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    @contextmanager
    def publishing(self, name: str) -> Iterator[Path]:
        """A temporary folder that becomes ``name`` at the end, or vanishes if something fails.

        Where another writer was quicker, its folder stays.
        """
        unfinished, target = self.folder / f"{TEMPORARY}{self.name}-{name}", self.folder / name
        unfinished.mkdir()
        try:
            yield unfinished
            for path in unfinished.iterdir():
                sync(path)
            sync(unfinished)
            try:
                os.replace(unfinished, target)
            except OSError:
                if not target.is_dir():
                    raise
            sync(self.folder)
        finally:
            self._remove(self.name)

    def publish(self, name: str, content: bytes) -> None:
        """Writes a file that is there whole or not at all."""
        unfinished = self.folder / f"{TEMPORARY}{self.name}-{name}"
        unfinished.write_bytes(content)
        sync(unfinished)
        os.replace(unfinished, self.folder / name)
        sync(self.folder)
