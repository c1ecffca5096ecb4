"""Libraries that only some uses need, and the pip command that installs them."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def require(extra: str, *modules: str, purpose: str) -> ModuleType:
    """Returns an optional module; where it is not installed, the error gives the pip command.

    Args:
        extra: The extra of this package that brings it.
        *modules: All modules that are needed; the first is returned.
        purpose: What needs them, as the subject of the error's first sentence, such as ``"plots"``.
    """
    found, missing = [], []
    for name in modules:
        try:
            found.append(import_module(name))
        except ImportError as error:
            # A module that is there and fails has a fault of its own to report.
            if error.name is None or not name.startswith(error.name):
                raise
            missing.append(name)
    _raise_if_missing(missing, extra, purpose)
    return found[0]


def check_installed(extra: str, *modules: str, purpose: str) -> None:
    """Raises the error of :func:`require` where modules are not installed, without the time to import them.

    Args:
        extra: The extra of this package that brings them.
        *modules: All modules that are needed, at the top level.
        purpose: What needs them, as the subject of the error's first sentence.
    """
    _raise_if_missing([name for name in modules if find_spec(name) is None], extra, purpose)


def _raise_if_missing(missing: list[str], extra: str, purpose: str) -> None:
    if missing:
        verb = "need" if purpose.endswith("s") else "needs"
        raise ImportError(f'{purpose} {verb} {" and ".join(missing)}: pip install "pyterrier_cascade[{extra}]"')
