"""Neural rerankers that follow a fast retriever, as PyTerrier transformers.

The names are imported when they are first used, so that ``import pyterrier_cascade`` costs nothing.
"""

from pyterrier_cascade import registry

__version__ = "0.1.0"

__all__ = list(registry.homes())


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return registry.public(name)


def __dir__():
    return sorted([*globals(), *__all__])
