"""What words a model knows: chosen when it is first trained, saved with it (HR-8)."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pyterrier_cascade.hierarchical import vectors as vector_files
from pyterrier_cascade.hierarchical.loading import HierarchicalModel, build
from pyterrier_cascade.hierarchical.model import CompareAggregate
from pyterrier_cascade.hierarchical.words import tokens

SCALE = 1.0
"""The standard deviation of vectors that are learnt from scratch: words must differ clearly to be told apart."""


def prepare(model: HierarchicalModel, texts: Iterable[str], seed: int) -> CompareAggregate:
    """Makes a model ready for a training on these texts, and returns its backbone.

    The weights of a fresh one are drawn by the seed. With a source of vectors, it gets the words that the texts and
    the source have in common, which are tuned, and the source's most frequent others, which are not. Without one,
    every word of the texts that it does not know yet gets a random vector.

    Args:
        model: The model; its backbone is another object afterwards if it was fresh.
        texts: All texts of the training questions and answers.
        seed: Of the training.
    """
    config = model.module.config
    lowercase = model.module.architecture.lowercase
    # In the order in which they first appear, so that the same data make the same model.
    seen = list(dict.fromkeys(token for text in texts for token in tokens(text, lowercase)))
    if not model.untrained:
        if config["vectors"] is None:
            _add_random(model.module, seen, seed)
        return model.module
    architecture = model.module.architecture
    if config["vectors"] is None:
        model.module = build(config["scheme"], config["level"], architecture, None, seed)
        _add_random(model.module, seen, seed)
        return model.module
    words, vectors = vector_files.read(config["vectors"], seen, architecture.frequent_words)
    architecture = replace(architecture, embedding_width=vectors.shape[1])
    model.module = build(config["scheme"], config["level"], architecture, config["vectors"], seed)
    known = set(seen)
    model.module.vectors.add(words, vectors, sum(word in known for word in words))
    return model.module


def _add_random(module: CompareAggregate, seen: list[str], seed: int) -> None:
    known = set(module.vectors.words)
    new = [word for word in seen if word not in known]
    rng = np.random.default_rng([seed, len(known)])
    width = module.architecture.embedding_width
    module.vectors.add(new, rng.normal(0, SCALE, (len(new), width)).astype(np.float32), len(new))
