"""The one folder of a user in which the package keeps files that it downloads or makes."""

from pathlib import Path


def user_cache(*parts: str) -> Path:
    """Returns a path in the user's cache: ``pyterrier_cascade`` in the home of PyTerrier.

    That home is the folder that the environment variable ``PYTERRIER_HOME`` names, else ``~/.pyterrier``. So downloads
    of this package lie beside those of PyTerrier, and one variable moves both to a larger disk.

    Args:
        *parts: Names of folders below the cache.
    """
    import pyterrier as pt

    return Path(pt.io.pyterrier_home(), "pyterrier_cascade", *parts)
