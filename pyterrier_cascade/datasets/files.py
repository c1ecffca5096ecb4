"""Finding the files of a data set: in a folder that the user names, or in the user's cache after one download."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pyterrier_cascade.datasets.download import DataFile, download
from pyterrier_cascade.store.publish import Damaged, sha256
from pyterrier_cascade.store.user_cache import user_cache

ENV = "PTC_DATA"


@dataclass(frozen=True)
class DataFolder:
    """The files of one data set, and the folders in which they may be.

    Args:
        subfolders: The folders below the user's data folder in which the files may be, besides that folder itself. The
            first one is also the name of the folder in the user's cache.
        files: The files by key.
        how_to_get: What the user should do about files that are not downloaded, as the beginning of a sentence.
    """

    subfolders: tuple[str, ...]
    files: Mapping[str, DataFile]
    how_to_get: str | None = None

    def locate(self, key: str, folder: str | None = None) -> Path:
        """Returns the path of a file. It is downloaded only if no folder is named.

        A folder that the argument or the environment variable ``PTC_DATA`` names is final: a file that is missing there
        is an error and not a download.

        Args:
            key: The key of the file.
            folder: The folder that the user names.

        Raises:
            FileNotFoundError: If the named folder has no such file, or the download fails.
        """
        file, places = self.files[key], self.places(folder)
        for place in places:
            for name in (file.name, *file.aliases):
                for path in (place / name, place / f"{name}.gz"):
                    if path.is_file():
                        return path
        if places or file.url is None:
            raise FileNotFoundError(self._missing(file, places))
        cache = user_cache(self.subfolders[0])
        if not (cache / file.name).exists():
            download([other for other in self.files.values() if other.url == file.url], cache)
        _check(stamp(cache / file.name), file.sha256)
        return cache / file.name

    def places(self, folder: str | None) -> list[Path]:
        """Returns the folders in which the files may be; none if neither an argument nor ``PTC_DATA`` names one."""
        named = folder or os.environ.get(ENV)
        return [Path(named).expanduser() / below for below in ("", *self.subfolders)] if named else []

    def _missing(self, file: DataFile, places: list[Path]) -> str:
        where = f"neither in {' nor in '.join(map(str, places))}" if places else "nowhere, as no folder is named"
        if self.how_to_get is not None:
            remedy = f"{self.how_to_get} and name the folder with folder=... or {ENV}"
        else:
            remedy = (
                f"name the folder that has it with folder=... or {ENV}, or name none to download it from {file.url}"
            )
        return f"{file.name} (or {file.name}.gz) is {where}; {remedy}"


Stamp = tuple[str, int, int]


def stamp(path: str | Path) -> Stamp:
    """Returns path, modification time and size of a file: a key under which its content can be cached."""
    info = os.stat(path)
    return str(path), info.st_mtime_ns, info.st_size


@lru_cache
def _check(file: Stamp, expected: str) -> None:
    """Raises unless a file that was downloaded is still what it was; a file that stays as it is is read only once."""
    if sha256(file[0]) != expected:
        raise Damaged(f"{file[0]!r} is damaged: it is not what was downloaded; delete it, and it is downloaded again")


def checked_folder(folder: str | os.PathLike | None) -> str | None:
    """Returns a folder that the user names as a string, and None as None.

    Raises:
        FileNotFoundError: If there is no such folder.
    """
    if folder is None:
        return None
    if not os.path.isdir(os.path.expanduser(folder)):
        raise FileNotFoundError(f"folder {os.fspath(folder)!r} does not exist; name the one that has the data files")
    return os.fspath(folder)
