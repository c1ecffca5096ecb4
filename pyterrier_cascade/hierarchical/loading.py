"""A backbone with its vocabulary: fresh, or from a folder."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from pyterrier_cascade.encoder.pretrained import undamaged
from pyterrier_cascade.hierarchical import schemes
from pyterrier_cascade.hierarchical.model import CONFIG, VOCABULARY, WEIGHTS, CompareAggregate, HierarchicalArchitecture
from pyterrier_cascade.hierarchical.words import WordTokenizer

MODEL_TYPE = "hierarchical_ranker"


@dataclass
class HierarchicalModel:
    """A backbone with its tokenizer.

    Attributes:
        module: The backbone.
        untrained: Why scores mean nothing yet, or None.
    """

    module: CompareAggregate
    untrained: str | None
    _tokenizer: WordTokenizer | None = None

    @property
    def tokenizer(self) -> WordTokenizer:
        """The tokenizer of the vocabulary as it is now: it grows in training."""
        words = self.module.vectors.words
        if self._tokenizer is None or len(self._tokenizer.words) != len(words):
            self._tokenizer = WordTokenizer(words, self.module.architecture.lowercase)
        return self._tokenizer


def build(
    name: str, level: str, architecture: HierarchicalArchitecture, vectors: str | None = None, seed: int = 0
) -> CompareAggregate:
    """Returns a fresh backbone without words.

    Args:
        name: The scheme.
        level: What it is scored by.
        architecture: The sizes.
        vectors: Where its word vectors will come from; noted in the configuration.
        seed: Draws the weights; the caller's random state is left alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        module = CompareAggregate(schemes.scheme(name, level), architecture).float()
    module.config = {
        "model_type": MODEL_TYPE,
        "scheme": name,
        "level": level,
        "vectors": vectors,
        "architecture": asdict(architecture),
        "trained": False,
    }
    return module.eval()


def load(
    source: str,
    scheme: str | None = None,
    level: str | None = None,
    vectors: str | None = None,
    architecture: HierarchicalArchitecture | None = None,
) -> HierarchicalModel:
    """Returns the ranker in a folder or on the Hub, or, given a scheme, a fresh one.

    Args:
        source: A folder or a Hub name; any name for a fresh one.
        scheme: Of a fresh one.
        level: Of a fresh one.
        vectors: Of a fresh one: where training will take word vectors from.
        architecture: Of a fresh one.
    """
    if scheme is not None:
        module = build(scheme, level, architecture, vectors)
        return HierarchicalModel(module, f"{scheme}({level}) is fresh and knows no words")
    folder = _folder(source)
    config = json.loads((folder / CONFIG).read_text())
    if config.get("model_type") != MODEL_TYPE:
        raise ValueError(
            f"{source!r} holds a model of type {config.get('model_type')!r}, not {MODEL_TYPE!r}; load it by the class "
            "that saved it"
        )
    sizes = config["architecture"] | {"k_max": tuple(config["architecture"]["k_max"])}
    module = build(config["scheme"], config["level"], HierarchicalArchitecture(**sizes))
    module.config = config
    words = WordTokenizer.from_pretrained(str(folder)).words
    with undamaged(source):
        weights = load_file(folder / WEIGHTS)
    n_words = len(weights["vectors.tuned"]) + len(weights["vectors.rest"]) - 1
    if len(words) != n_words:
        raise ValueError(
            f"{source!r} has vectors for {n_words} words, but its vocabulary has {len(words)}; save it again"
        )
    module.vectors.words = words
    module.load_state_dict(weights | {VOCABULARY: module.vectors.get_extra_state()})
    return HierarchicalModel(module, None if config["trained"] else f"{source!r} was saved before it was trained")


def _folder(source: str) -> Path:
    if Path(source).is_dir():
        if not (Path(source) / CONFIG).is_file():
            raise FileNotFoundError(f"{source!r} has no {CONFIG}; give a folder that save_pretrained wrote")
        return Path(source)
    if source.startswith((".", "/", "~")):
        raise FileNotFoundError(f"there is no folder {source!r}; give one that save_pretrained wrote, or a Hub name")
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(source))
