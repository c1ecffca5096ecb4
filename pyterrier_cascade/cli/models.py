"""The reranker that a folder holds, and its class with the settings of a command line."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pyterrier_cascade import registry
from pyterrier_cascade.cli import settings
from pyterrier_cascade.registry import Reranker


def held_by(source: str) -> Reranker | None:
    """Returns the reranker in a folder or on the Hub; None for an encoder, a model without a classifier."""
    from pyterrier_cascade.checkpoint import check_folder
    from pyterrier_cascade.encoder.pretrained import config_fields

    check_folder(source)
    if (found := registry.holds(source)) is not None:
        return found
    if Path(source).is_dir() and not (Path(source) / registry.CONFIG).is_file():
        raise FileNotFoundError(f"{source!r} holds no model: it has no {registry.CONFIG}")
    try:
        config = config_fields(source)
    except OSError as error:
        raise OSError(f"{source!r} is neither a folder nor a model on the Hub that can be read: {error}") from error
    if "ForSequenceClassification" in str(config.get("architectures")):
        return registry.by_command("crossencoder")
    return registry.holds(source, config)


def refuse_unless_dcbert(source: str, found: Reranker | None) -> None:
    """Raises unless a model is a DC-BERT, or an encoder or a cross-encoder, of which one can be made.

    Args:
        source: The folder or the Hub name.
        found: The reranker in it, as :func:`held_by` returns it.
    """
    if found is not None and found.name not in ("DCBERT", "CrossEncoder"):
        raise ValueError(
            f"a document cache needs a DC-BERT, but {source!r} holds a {found.name}; give a DC-BERT, or an encoder to "
            "make one of"
        )


def load(source: str, found: Reranker, given: Sequence[str], skip: Collection[str] = (), **more: Any) -> Any:
    """Returns a ranker; its weights are read when they are first needed.

    Args:
        source: A folder or a Hub name.
        found: The reranker to make of it.
        given: Settings, ``NAME=VALUE``.
        skip: Settings that have no use in a command.
        **more: Further settings; those that the class does not take are left out.
    """
    cls = found.cls
    # The weights decide some arguments of the constructor, such as the scheme of a hierarchical ranker.
    decided = set(cls.setting_names()) - set(cls.defaults())
    known = settings.declared(cls.from_pretrained, cls, skip=settings.ELSEWHERE | decided | set(skip))
    more = {name: value for name, value in more.items() if name in cls.setting_names()}
    return cls.from_pretrained(source, **settings.parsed(given, known, "--with"), **more)
