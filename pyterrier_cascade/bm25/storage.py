"""An index on disk: a folder that is there whole or not at all, and whose files have checksums."""

import contextlib
from pathlib import Path
from typing import Any

from pyterrier_cascade.store import parts, publish
from pyterrier_cascade.store.parts import META

KIND = {"type": "sparse_index", "format": "bm25s", "package_hint": "pyterrier_cascade", "version": 2}
REMEDY = "copy or save the index again"


def check_folder(folder: Path) -> None:
    """Raises FileNotFoundError unless a folder is there and has the file that is written last; reads nothing.

    Where a system cannot exchange folders and a kill between two renames left none, it puts the old one back.
    """
    if not folder.is_dir() and folder.parent.is_dir():
        with contextlib.suppress(OSError):
            publish.sweep(folder.parent, folder.name)
    if not folder.is_dir():
        raise FileNotFoundError(f"no BM25 index at {str(folder)!r}; make one with BM25.from_docs(docs).save(path)")
    if not (folder / META).is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} is not a finished BM25 index: {META}, which is written last, is missing; "
            "copy it again or delete the folder and save the index again"
        )


def read_meta(folder: Path, contents: bool = True) -> dict[str, Any]:
    """Returns the metadata of a saved index, and checks its kind and its files.

    Args:
        folder: The folder of the index.
        contents: Whether to read all files for their checksums, and not their sizes only.

    Raises:
        FileNotFoundError: If the folder is missing or is not a finished index.
        Damaged: If a file is missing or not what was written.
        ValueError: If the folder holds something else.
    """
    check_folder(folder)
    meta = parts.read_meta(folder, KIND)
    with parts.refusing_forgeries(folder, REMEDY):
        parts.check(folder, meta["files"], REMEDY, contents)
    return meta


def check_replaceable(folder: Path) -> None:
    """Raises FileExistsError if there is something else than a finished index at this path."""
    if folder.exists():
        try:
            read_meta(folder, contents=False)
        except (OSError, ValueError) as error:
            raise FileExistsError(
                f"{str(folder)!r} is no finished BM25 index; to replace it, delete it first"
            ) from error


def write_meta(folder: Path, fields: dict[str, Any]) -> None:
    """Writes the metadata, the last file of a folder: where it is, the folder is finished."""
    (folder / META).write_bytes(publish.sealed({**KIND, **fields, "files": parts.described(folder)}))
