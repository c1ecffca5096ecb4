"""An index on disk: a folder that is there whole or not at all."""

import json
from pathlib import Path

META = "pt_meta.json"
KIND = {"type": "sparse_index", "format": "bm25s", "package_hint": "pyterrier_cascade", "version": 1}


def check_folder(folder: Path) -> None:
    """Raises FileNotFoundError unless a folder is there and has the file that is written last; reads nothing."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no BM25 index at {str(folder)!r}; make one with BM25.from_docs(docs).save(path)")
    if not (folder / META).is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} is not a finished BM25 index: {META}, which is written last, is missing; "
            "copy it again or delete the folder and save the index again"
        )


def read_meta(folder: Path) -> dict:
    """Returns the metadata of a saved index, and checks its kind and the sizes of its files.

    Raises:
        FileNotFoundError: If the folder is missing or is not a finished index.
        ValueError: If the folder holds something else, or a file is missing or does not have its size.
    """
    check_folder(folder)
    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    if any(meta.get(key) != KIND[key] for key in ("type", "format", "version")):
        seen = ", ".join(f"{key} {meta.get(key)!r}" for key in ("type", "format", "version"))
        raise ValueError(
            f"{str(folder)!r} holds {seen}; this BM25 reads sparse_index, bm25s, version 1: open it with its own "
            f"class, or save the index again"
        )
    for name, size in meta["files"].items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != size:
            raise ValueError(
                f"{str(file)!r} is missing or does not have its {size} bytes; copy or save the index again"
            )
    return meta


def check_replaceable(folder: Path) -> None:
    """Raises FileExistsError if there is something else than a finished index at this path."""
    if folder.exists():
        try:
            read_meta(folder)
        except (OSError, ValueError) as error:
            raise FileExistsError(
                f"{str(folder)!r} is no finished BM25 index; to replace it, delete it first"
            ) from error


def write_meta(folder: Path, fields: dict) -> None:
    """Writes the metadata, the last file of a folder: where it is, the folder is finished."""
    files = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    (folder / META).write_text(json.dumps({**KIND, **fields, "files": files}, indent=1), encoding="utf-8")
