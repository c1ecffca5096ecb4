"""Libraries that only some uses need, and the pip command that installs them."""

from importlib import import_module
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
    if missing:
        verb = "need" if purpose.endswith("s") else "needs"
        raise ImportError(f'{purpose} {verb} {" and ".join(missing)}: pip install "pyterrier_cascade[{extra}]"')
    return found[0]
