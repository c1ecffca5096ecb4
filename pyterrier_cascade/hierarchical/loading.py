"""A hierarchical ranker's model in memory: fresh, from a folder, and made ready for a training."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from pyterrier_cascade import registry
from pyterrier_cascade.checkpoint import check_folder
from pyterrier_cascade.checks import check_scores
from pyterrier_cascade.encoder.device import DTYPES
from pyterrier_cascade.encoder.pretrained import json_object, undamaged
from pyterrier_cascade.encoder.weight_cache import WeightCache
from pyterrier_cascade.encoder.workers import calling_thread, workers
from pyterrier_cascade.forks import cached_property
from pyterrier_cascade.frames import distinct
from pyterrier_cascade.hierarchical.model import (
    CONFIG,
    WEIGHTS,
    WORDS,
    CompareAggregate,
    HierarchicalArchitecture,
    relevance,
)
from pyterrier_cascade.hierarchical.pairs import QuestionAnswerPairs
from pyterrier_cascade.hierarchical.schemes import Scheme
from pyterrier_cascade.hierarchical.vectors import read_vectors
from pyterrier_cascade.hierarchical.words import VOCABULARY, WordTokenizer, numbered, tokens
from pyterrier_cascade.model import LoadedModel

RANKER, MODEL_TYPE = "HierarchicalRanker", "hierarchical_ranker"

PORTION_WORDS = 2_000
"""The words that one core scores at a time, unless the user gives a budget."""
GPU_WORDS = 32_768
"""The words that a GPU scores at a time: the windows of the largest kernel take five times as much memory as they."""
CPU = torch.device("cpu")


class HierarchicalModel(LoadedModel):
    """A backbone with its vocabulary.

    Args:
        module: The backbone.
        untrained: The reason why scores mean nothing yet, as the beginning of a sentence; None for a trained model.
    """

    module: CompareAggregate

    def __init__(self, module: CompareAggregate, untrained: str | None = None):
        self.module, self.untrained = module, untrained

    @property
    def tokenizer(self) -> WordTokenizer:
        """The tokenizer of the vocabulary as it is now, because the vocabulary grows in training."""
        return WordTokenizer(self.module.vectors.numbers, self.module.architecture.lowercase)

    @property
    def tokenizer_identity(self) -> str:
        """Empty, because the vocabulary is among the weights."""
        return ""

    @property
    def full_layers(self) -> int:
        """1, because costs count the CNN as one layer."""
        return 1

    @property
    def layer_size(self) -> int:
        """The multiply-adds of the CNN for a word, of the levels that the score needs.

        As with transformers, attention is not counted, nor what is computed once for each different word.
        """
        module = self.module
        n_levels, n_all = len(module.scheme.needed(module.scheme.main)), len(module.scheme.feeds)
        return sum(kernel.weight.numel() for kernel in module.kernels) * n_levels // n_all

    def describe(self) -> dict[str, Any]:
        """Returns the description of the model that ``python -m pyterrier_cascade info`` prints."""
        names = ("scheme", "level", "vectors", "architecture", "trained_on")
        return {**{name: self.module.config[name] for name in names}, "words": len(self.module.vectors.numbers)}

    def pairs(self, queries: Sequence[str], texts: Sequence[str]) -> QuestionAnswerPairs:
        """Returns queries and the texts beside them as numbers of words; each different query is read once."""
        question, unique = distinct(queries)
        return QuestionAnswerPairs(self.tokenizer(unique), self.tokenizer(texts), question)

    def score(
        self,
        pairs: QuestionAnswerPairs,
        budget: int | None = None,
        precision: str = "fp32",
        progress: Callable[[int], Any] = lambda n: None,
        device: torch.device = CPU,
    ) -> np.ndarray:
        """Returns the score of each pair by the scheme's scoring level, ``(n_pairs,)``; all cores take part.

        Args:
            pairs: Questions and answers.
            budget: The most words that one core or a GPU computes at a time; a longer pair stands alone.
            precision: The precision of the CNN's products, ``"fp32"``, ``"bf16"`` or ``"fp16"``.
            progress: Is called with the number of pairs that were just finished.
            device: Where to compute.
        """
        found, on_cpu = np.empty(len(pairs)), device.type == "cpu"
        # The module itself stays where it is.
        module = self.module if on_cpu else self._copies.get(device, lambda: _copied(self.module).to(device))

        def compute(rows: np.ndarray) -> np.ndarray:
            with torch.inference_mode():
                level = module.scheme.main
                scores = relevance(module(pairs.take(rows), DTYPES[precision], level)[level])
                return scores.cpu().double().numpy()

        with (workers if on_cpu else calling_thread)() as pool:
            portions = pairs.portions(budget or (PORTION_WORDS if on_cpu else GPU_WORDS), pool.n_threads)
            for rows, values in zip(portions, pool.map(compute, portions), strict=True):
                found[rows] = values
                progress(len(rows))
        check_scores(found, "scores", precision)
        return found

    @cached_property
    def _copies(self) -> WeightCache:
        return WeightCache(self.module)

    def prepare_training(self, texts: Iterable[str], seed: int) -> CompareAggregate:
        """Returns the backbone, ready to be trained on these texts.

        The seed draws the weights of an untrained model, whose backbone is replaced. Where the model has a source of
        word vectors, it takes the words of the texts that the source knows, whose vectors are trained, and the source's
        most frequent other words, whose vectors are not. Without a source, each word that the model does not know yet
        gets a random vector.

        Args:
            texts: All texts of the training questions and answers.
            seed: The seed of the training.
        """
        config, architecture = self.module.config, self.module.architecture
        source = config["vectors"]
        # In the order in which words first appear, so that the same data make the same model.
        seen = list(dict.fromkeys(token for text in texts for token in tokens(text, architecture.lowercase)))
        if self.untrained is not None:
            if source is not None:
                words, table = read_vectors(source, seen, architecture.frequent_words)
                architecture = replace(architecture, embedding_width=table.shape[1])
            self.module = build(config["scheme"], config["level"], architecture, source, seed)
            for name in ("_hashes", "_copies"):
                self.__dict__.pop(name, None)
            if source is not None:
                self.module.vectors.add(words, table, len({*words} & {*seen}))
        if source is None:
            self.module.vectors.add_random(seen, seed)
        return self.module


def build(
    name: str, level: str, architecture: HierarchicalArchitecture, vectors: str | None = None, seed: int = 0
) -> CompareAggregate:
    """Returns a fresh backbone without words.

    Args:
        name: The scheme.
        level: The level that gives the score.
        architecture: The sizes.
        vectors: The source that its word vectors will be read from; the configuration notes it.
        seed: Draws the weights. The caller's random state stays as it is.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        module = CompareAggregate(Scheme.named(name, level), architecture).float()
    module.config = {
        "model_type": MODEL_TYPE,
        "scheme": name,
        "level": level,
        "vectors": vectors,
        "architecture": asdict(architecture),
        "trained_on": None,
    }
    return module.eval()


def _copied(module: CompareAggregate) -> CompareAggregate:
    """Returns a backbone with a copy of the weights and words of another one."""
    made = build(module.config["scheme"], module.config["level"], module.architecture)
    made.load_state_dict(module.state_dict())
    return made


def load(
    source: str,
    scheme: str | None = None,
    level: str | None = None,
    vectors: str | None = None,
    architecture: HierarchicalArchitecture | None = None,
) -> HierarchicalModel:
    """Returns the model in a folder or on the Hub, or, given a scheme, a fresh one.

    Args:
        source: A folder or a Hub name; any name for a fresh model.
        scheme: The scheme of a fresh model.
        level: Its scoring level.
        vectors: The source that training will read its word vectors from; None for random vectors.
        architecture: Its sizes.
    """
    if scheme is not None:
        module = build(scheme, level, architecture, vectors)
        return HierarchicalModel(module, f"{scheme}({level}) is fresh and knows no words")
    registry.refuse_others(source, RANKER)
    folder = _folder(source)
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{source!r} has no {CONFIG}; give a name that push_to_hub filled")
    config = json_object(folder / CONFIG)
    registry.refuse_others(source, RANKER, config)
    if config.get("model_type") != MODEL_TYPE:
        raise ValueError(
            f"{source!r} holds a model of type {config.get('model_type')!r}, not {MODEL_TYPE!r}; give a folder that "
            f"{RANKER}.save_pretrained wrote"
        )
    with undamaged(source):
        weights, architecture = load_file(folder / WEIGHTS), HierarchicalArchitecture(**config["architecture"])
        _check_sizes(source, architecture, weights)
        module = build(config["scheme"], config["level"], architecture)
        module.config, module.vectors.numbers = config, numbered((folder / VOCABULARY).read_bytes())
        n_words = len(module.vectors.numbers)
        n_vectors = len(weights["vectors.tuned"]) + len(weights["vectors.rest"]) - 1
        if n_words != n_vectors:
            raise ValueError(
                f"{source!r} has vectors for {n_vectors} words, but its vocabulary has {n_words}; save it again"
            )
        module.load_state_dict(weights | {WORDS: module.vectors.get_extra_state()})
        untrained = None if config["trained_on"] else f"{source!r} was saved before it was trained"
    return HierarchicalModel(module, untrained)


def _check_sizes(source: str, architecture: HierarchicalArchitecture, weights: Mapping[str, torch.Tensor]) -> None:
    """Raises unless an architecture is that of weights, before anything of its sizes takes memory."""
    kernels = [tensor for name, tensor in weights.items() if re.fullmatch(r"kernels\.\d+\.weight", name)]
    hidden = [tensor for name, tensor in weights.items() if re.fullmatch(r"perceptrons\.\w+\.0\.weight", name)]
    there = {
        "embedding_width": weights["vectors.tuned"].shape[1],
        "width": len(weights["encoding.weight"]) // 2,
        "kernels": len(kernels),
        "channels": len(weights["kernels.0.weight"]) // len(hidden),
        "hidden": len(hidden[0]),
    }
    for name, size in there.items():
        if getattr(architecture, name) != size:
            raise ValueError(
                f"the architecture in {str(Path(source) / CONFIG)!r} is not that of the weights beside it: {name} is "
                f"{getattr(architecture, name)}, but the weights have {size}; use the {CONFIG} that was saved with them"
            )


def _folder(source: str) -> Path:
    check_folder(source)
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(source))
