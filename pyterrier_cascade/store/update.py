"""Atomic replacement of the files that the package wrote to a folder in which users keep files of their own."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyterrier_cascade.store import publish


@contextmanager
def updating_folder(path: str | Path, stale: re.Pattern) -> Iterator[Path]:
    """Yields an empty folder to fill; when the block ends, what is in it takes the place of its namesakes in ``path``.

    All other files of ``path`` stay, but those that are stale. If the block raises, ``path`` stays as it was.

    The new files are written and fsynced aside, the files that stay are linked beside them (or copied, where the file
    system has no hard links), and the two folders change places as in :func:`~.publish.publishing_folder`: on Linux in
    one step, so that ``path`` is the old folder or the new one at any moment, also after a kill.

    A folder that cannot be moved is the working directory or holds it, is a mount point, or lies in a folder that
    cannot be written to. Its files are renamed one after the other when all of them are on the disk: a disk that is
    full leaves the old files, but a kill during these renames leaves some old and some new ones.

    Args:
        path: The folder; it is made, with its parents, if it is missing. A link keeps naming its folder.
        stale: Matches the paths in it of files and folders that do not stay unless they are written anew.

    Raises:
        FileExistsError: If a file is at the path.
    """
    target = Path(path).expanduser().resolve()
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"{path} is a file; save_pretrained writes a folder")
    if not (target.is_dir() and _stays_in_place(target)):
        with publish.publishing_folder(target, overwrite=True) as new:
            yield new
            if target.is_dir():
                shutil.copymode(target, new)
                _keep_others(target, new, stale)
        return
    with publish.writing_aside(target / "files") as (new, _):
        new.mkdir()
        yield new
        publish.sync_all(new)
        _replace(new, target, stale)
        publish.sync(target)


def _stays_in_place(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        if Path.cwd().is_relative_to(folder):
            return True
    return folder.is_mount() or not os.access(folder.parent, os.W_OK)


def _keep_others(old: Path, new: Path, stale: re.Pattern, inside: str = "") -> None:
    """Links the files of an old folder into the new one, which keeps its own files."""
    for entry in os.scandir(old):
        there, name = new / entry.name, inside + entry.name
        if publish.LEFTOVER.fullmatch(entry.name) or (stale.fullmatch(name) and not there.exists()):
            continue
        if entry.is_dir(follow_symlinks=False):
            if not there.exists():
                there.mkdir()
                shutil.copymode(entry.path, there)
            _keep_others(Path(entry.path), there, stale, f"{name}/")
        elif not os.path.lexists(there):
            _link(entry.path, there)


def _replace(new: Path, target: Path, stale: re.Pattern) -> None:
    """Moves new files over their namesakes, and removes what is stale."""
    written = {path.relative_to(new).as_posix(): path.is_dir() for path in sorted(new.rglob("*"))}
    for name, is_folder in written.items():
        if is_folder:
            (target / name).mkdir(exist_ok=True)
        else:
            os.replace(new / name, target / name)
    for path in sorted(target.rglob("*")):
        name = path.relative_to(target).as_posix()
        if stale.fullmatch(name) and name not in written:
            publish.remove(path)


def _link(path: str, there: Path) -> None:
    try:
        os.link(path, there, follow_symlinks=False)
    except OSError:
        shutil.copy2(path, there, follow_symlinks=False)
