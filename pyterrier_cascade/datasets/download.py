"""Downloading the files of a data set: with a progress bar, a checksum, and only whole files under the final name."""

import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

import pyterrier as pt

from pyterrier_cascade.store.publish import publish_file

TIMEOUT_SECONDS = 60
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class DataFile:
    """A file of a data set, and its official address.

    Args:
        name: The name under which the file is kept.
        url: The address. A ``.gz`` file is unpacked, and from a ``.zip`` file ``member`` is taken. None for a file that
            cannot be downloaded by itself.
        sha256: The checksum of the unpacked content.
        member: The path inside the zip file.
        aliases: Other names that the file may have in a user's folder.
    """

    name: str
    url: str | None = None
    sha256: str | None = None
    member: str | None = None
    aliases: tuple[str, ...] = ()


def download(files: Sequence[DataFile], folder: Path) -> None:
    """Downloads files that share one address; each appears in the folder whole and checked, or not at all.

    Args:
        files: The files, which have the same ``url``.
        folder: The folder, made if it is missing.

    Raises:
        FileNotFoundError: If the download fails.
        ValueError: If the content is damaged or does not have the expected checksum.
    """
    packed = _fetched(files[0])
    for file in files:
        publish_file(folder / file.name, _checked(file, _unpacked(file, packed)))


def _fetched(file: DataFile) -> bytes:
    content = io.BytesIO()
    try:
        with urlopen(file.url, timeout=TIMEOUT_SECONDS) as response:
            total = int(response.headers.get("Content-Length", 0)) or None
            with pt.tqdm(desc=f"downloading {file.name}", total=total, unit="B", unit_scale=True) as bar:
                while chunk := response.read(CHUNK_BYTES):
                    bar.update(content.write(chunk))
            if total is not None and content.tell() != total:
                raise ConnectionError(f"the connection ended after {content.tell()} of {total} bytes")
    except (OSError, HTTPException) as err:
        raise FileNotFoundError(
            f"{file.name} could not be downloaded from {file.url} ({err}); try again, or get it yourself and name its "
            f"folder with folder=... or PTC_DATA"
        ) from err
    return content.getvalue()


def _unpacked(file: DataFile, packed: bytes) -> bytes:
    try:
        if file.member is not None:
            with zipfile.ZipFile(io.BytesIO(packed)) as archive:
                return archive.read(file.member)
        return gzip.decompress(packed) if file.url.endswith(".gz") else packed
    except (OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as err:
        raise ValueError(f"{file.url} delivered no {file.name} that can be unpacked ({err}); nothing was kept") from err


def _checked(file: DataFile, content: bytes) -> bytes:
    seen = hashlib.sha256(content).hexdigest()
    if seen != file.sha256:
        raise ValueError(
            f"{file.name} from {file.url} has sha256 {seen} instead of {file.sha256}; nothing was kept. Try again; if "
            f"the official file has changed, get it yourself and name its folder with folder=... or PTC_DATA"
        )
    return content
