"""What is kept on disk in parts: each file with its size and checksum, which are compared when it is read.

A folder describes its files in one sealed file, its metadata. Every fault is a :class:`~.publish.Damaged` error that
names the file and what to do.
"""

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pyterrier_cascade.store import publish
from pyterrier_cascade.store.publish import Damaged

META = "pt_meta.json"
"""The metadata of an artifact of PyTerrier."""
FILES = "files.json"
"""The description of a part that has no other metadata."""
KIND = ("type", "format", "version")
"""The fields of the metadata that say what a folder holds."""

Files = Mapping[str, Mapping[str, Any]]
"""The ``bytes`` and the ``sha256`` of each file, by its name."""


def described(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns the size and the checksum of each file in a folder, for its metadata."""
    return {
        path.name: {"bytes": path.stat().st_size, "sha256": publish.sha256(path)} for path in sorted(folder.iterdir())
    }


def seal_part(folder: Path, name: str = "") -> str:
    """Writes the description of a folder as its last file, and returns the seal, by which the part is known.

    Args:
        folder: The folder, which may still have a temporary name.
        name: The name by which :func:`is_sound` will know it.
    """
    content = publish.sealed({"name": name, "files": described(folder)})
    (folder / FILES).write_bytes(content)
    return json.loads(content)[publish.SEAL]


def is_sound(folder: Path) -> bool:
    """Returns whether a folder is there, and is what :func:`seal_part` finished under its name; it reads everything."""
    with contextlib.suppress(OSError, Damaged), refusing_forgeries(folder, ""):
        fields = publish.read_sealed(folder / FILES)
        check(folder, fields["files"], "")
        return fields["name"] == folder.name
    return False


def read_meta(folder: Path, kind: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata of an artifact, after a check of its seal and its kind.

    Args:
        folder: The folder of the artifact, with its metadata.
        kind: The fields :data:`KIND` that it must have.

    Raises:
        Damaged: If the metadata are not what was written.
        ValueError: If the folder holds an artifact of another kind.
    """
    try:
        fields = publish.read_sealed(folder / META)
    except Damaged:
        fields = publish.unsealed(folder / META)
        # The metadata of others have no seal.
        if not fields or publish.SEAL in fields or all(fields.get(key) == kind[key] for key in KIND):
            raise
    if any(fields.get(key) != kind[key] for key in KIND):
        seen = ", ".join(f"{key} {fields.get(key)!r}" for key in KIND)
        wanted = f"{kind['type']}, {kind['format']}, version {kind['version']}"
        raise ValueError(f"{str(folder)!r} holds {seen}; this reads {wanted}")
    return fields


def check(folder: Path, files: Files, remedy: str, contents: bool = True) -> None:
    """Raises unless all files of a folder are there and what was written.

    Args:
        folder: The folder.
        files: Its files, as :func:`described` returned them.
        remedy: What to do where a file is damaged.
        contents: Whether to compare the checksums too. Without, nothing is read but the sizes.

    Raises:
        Damaged: If a file is missing, cut or changed.
    """
    with refusing_forgeries(folder, remedy):
        for name, file in files.items():
            path = folder / name
            # A forged description may name files elsewhere.
            if path.parent != folder or not path.is_file() or path.stat().st_size != file["bytes"]:
                raise Damaged(f"{str(path)!r} is missing or not of its {file['bytes']} bytes; {remedy}")
            if contents and publish.sha256(path) != file["sha256"]:
                raise _changed(path, remedy)


@contextlib.contextmanager
def refusing_forgeries(folder: Path, remedy: str) -> Iterator[None]:
    """Raises :class:`~.publish.Damaged` if the block looks in metadata for a field that they lack or have otherwise.

    What the package writes has all fields; others can seal what they like.

    Args:
        folder: The folder with the metadata.
        remedy: What to do.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"the metadata in {str(folder)!r} are not what was written ({error!r}); {remedy}") from error


def array(folder: Path, name: str, files: Files, remedy: str) -> np.ndarray:
    """Returns the array in ``<name>.npy``, read into memory after a comparison of its size and its checksum.

    Args:
        folder: The folder.
        name: The name of the array.
        files: The files of the folder, as :func:`described` returned them.
        remedy: What to do where the file is damaged.

    Raises:
        Damaged: If the file is missing, cut or changed.
    """
    path = folder / f"{name}.npy"
    with refusing_forgeries(folder, remedy):
        check(folder, {path.name: files[path.name]}, remedy, contents=False)
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != files[path.name]["sha256"]:
            raise _changed(path, remedy)
    try:
        return np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise Damaged(f"{str(path)!r} is no array of numbers; {remedy}") from error


def _changed(path: Path, remedy: str) -> Damaged:
    return Damaged(f"{str(path)!r} is damaged: it is not what was written; {remedy}")
