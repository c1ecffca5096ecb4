"""Finding the files of a data set: in a folder that the user names, or downloaded once."""

import gzip
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyterrier as pt

from pyterrier_cascade.datasets.download import DataFile, download

ENV = "PTC_DATA"


@dataclass(frozen=True)
class Shelf:
    """The files of one data set: ``files`` by key, and the name of the folder that usually holds them."""

    folder: str
    files: Mapping[str, DataFile]

    def locate(self, key: str, folder: str | None = None) -> Path:
        """Returns the path of a file, which is downloaded only if no folder is named.

        A folder named by the argument or by the environment variable ``PTC_DATA`` is final: what is missing there is
        an error and not a download.

        Raises:
            FileNotFoundError: If the named folder has no such file, or the download fails.
        """
        file, named = self.files[key], folder or os.environ.get(ENV)
        if named:
            return self._find(file, Path(named).expanduser())
        cache = Path(pt.io.pyterrier_home()) / "pyterrier_cascade" / self.folder
        if not (cache / file.name).exists():
            download([f for f in self.files.values() if f.url == file.url], cache)
        return cache / file.name

    def _find(self, file: DataFile, folder: Path) -> Path:
        places = [folder, folder / self.folder]
        for place in places:
            for name in (file.name, *file.aliases):
                for path in (place / name, place / f"{name}.gz"):
                    if path.is_file():
                        return path
        raise FileNotFoundError(
            f"{file.name} (or {file.name}.gz) is neither in {places[0]} nor in {places[1]}; name the folder that has "
            f"it with folder=... or {ENV}, or name none to download it from {file.url}"
        )


Stamp = tuple[str, int, int]


def stamp(path: str | Path) -> Stamp:
    """Returns path, modification time and size: a key under which the content of a file can be cached."""
    info = os.stat(path)
    return str(path), info.st_mtime_ns, info.st_size


def read_text(path: str | Path) -> str:
    """Returns the text of a UTF-8 file, plain or gzipped.

    Raises:
        ValueError: If the file is a damaged gzip file or not UTF-8.
    """
    data = Path(path).read_bytes()
    try:
        return (gzip.decompress(data) if str(path).endswith(".gz") else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as err:
        raise ValueError(f"{path} is not a whole gzip file ({err}); get it again") from err
    except UnicodeDecodeError as err:
        raise ValueError(f"{path} is not UTF-8 text ({err.reason} at byte {err.start})") from err


def read_lines(path: str | Path) -> list[str]:
    """Returns the lines of a file without their ends; only ``\\n`` and ``\\r\\n`` end a line.

    ``str.splitlines`` would also cut at characters such as U+2028, which sentences may contain.
    """
    lines = [line.removesuffix("\r") for line in read_text(path).split("\n")]
    return lines[:-1] if lines[-1] == "" else lines
