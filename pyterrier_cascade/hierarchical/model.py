"""The backbone, compare-aggregate, and the levels on it (HR-1 to HR-8, HR-10)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from pyterrier_cascade.checkpoint import weights_of
from pyterrier_cascade.hierarchical import attention
from pyterrier_cascade.hierarchical.convolution import linear, maxima
from pyterrier_cascade.hierarchical.embedding import WordVectors
from pyterrier_cascade.hierarchical.packing import Block, Pairs, spread
from pyterrier_cascade.hierarchical.schemes import Scheme

CONFIG, WEIGHTS = "config.json", "model.safetensors"
VOCABULARY = "vectors._extra_state"


@dataclass(frozen=True)
class HierarchicalArchitecture:
    """The sizes and options of the backbone; the defaults are the paper's (HR-1, HR-5, HR-6).

    Args:
        embedding_width: The numbers of a word vector; what a file of vectors has, if one is given.
        width: The hidden units of the encoding, d.
        channels: The channels of each kernel size of the CNN.
        kernels: The largest kernel size; all from 1 on are used.
        hidden: The hidden units of a level's perceptron, which the paper does not say.
        projection: Whether a linear map to ``channels`` and a tanh follow the CNN, as in the code of Wang and Jiang.
        null_word: Whether a word may attend to nothing, likewise.
        k_max: How many words a word of the question, and a word of the answer, attends to (HR-7); None is all. The
            paper does so on WikiQA and does not say how many; ``(10, 5)`` is a guess from public code.
        lowercase: Whether texts are made lower case before words are looked up.
        frequent_words: The most frequent words of a file of vectors that are kept beside those seen in training, so
            that new texts are understood.
    """

    embedding_width: int = 300
    width: int = 300
    channels: int = 150
    kernels: int = 5
    hidden: int = 300
    projection: bool = False
    null_word: bool = False
    k_max: tuple[int | None, int | None] = (None, None)
    lowercase: bool = True
    frequent_words: int = 100_000

    def __post_init__(self):
        object.__setattr__(self, "k_max", tuple(self.k_max))
        for name in ("embedding_width", "width", "channels", "kernels", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        if len(self.k_max) != 2 or any(k is not None and k < 1 for k in self.k_max):
            raise ValueError(f"k_max must be two numbers from 1, or None for all words, not {self.k_max!r}")
        if self.frequent_words < 0:
            raise ValueError(f"frequent_words must not be negative, but it is {self.frequent_words!r}")

    @property
    def features(self) -> int:
        """How wide a level's own features are: 1,500 as published, both sides together."""
        return 2 * self.channels * (1 if self.projection else self.kernels)


class CompareAggregate(nn.Module):
    """Shared encoding and interaction, and for each level of a scheme its own CNN and perceptron (HR-10).

    Args:
        scheme: Who feeds whom.
        architecture: The sizes.
    """

    def __init__(self, scheme: Scheme, architecture: HierarchicalArchitecture):
        super().__init__()
        self.scheme, self.architecture, self.config = scheme, architecture, {}
        sizes, n_levels = architecture, len(scheme.feeds)
        self.vectors = WordVectors(sizes.embedding_width)
        # W1 and W2 of equation 1 side by side.
        self.encoding = nn.Linear(sizes.embedding_width, 2 * sizes.width)
        # The levels' CNNs side by side: what they read is the same, so that one product serves all of them.
        self.kernels = nn.ModuleList(
            nn.Linear(k * sizes.width, n_levels * sizes.channels) for k in range(1, sizes.kernels + 1)
        )
        self.projections = nn.ModuleDict(
            {level: nn.Linear(sizes.kernels * sizes.channels, sizes.channels) for level in scheme.feeds}
            if sizes.projection
            else {}
        )
        self.perceptrons = nn.ModuleDict(
            {
                level: nn.Sequential(
                    nn.Linear(width, sizes.hidden),
                    nn.Tanh(),
                    nn.Linear(sizes.hidden, 2 if scheme.objectives[level] == "point" else 1),
                )
                for level, width in scheme.widths(sizes.features).items()
            }
        )

    def forward(
        self, pairs: Pairs, dtype: torch.dtype = torch.float32, level: str | None = None
    ) -> dict[str, torch.Tensor]:
        """Returns each level's output for each pair: ``(n, 2)`` logits of the point level, ``(n, 1)`` of the others.

        Args:
            pairs: Questions and answers.
            dtype: In which the CNN multiplies.
            level: The one level that is wanted; nothing is computed that it does not need. All unless given.
        """
        blocks, scheme = list(pairs.blocks()), self.scheme
        levels = list(scheme.feeds) if level is None else scheme.needed(level)
        own = self.aggregated(self.compared(pairs, blocks), blocks, dtype, levels)
        enhanced = enhance(own, scheme)
        if level is not None:
            enhanced = {level: enhanced[level]}
        order = torch.from_numpy(np.argsort(np.concatenate([block.rows for block in blocks])))
        return {level: self.predicted(level, features)[order] for level, features in enhanced.items()}

    def encoded(self, ids: np.ndarray) -> torch.Tensor:
        """Returns H ``(n, d)`` of words ``(n,)`` (eq. 1); a word that comes again is not computed again."""
        unique, places = np.unique(ids, return_inverse=True)
        mapped = linear(self.vectors(torch.from_numpy(unique)), self.encoding.weight, self.encoding.bias)
        gate, content = mapped.chunk(2, -1)
        return F.embedding(torch.from_numpy(places), gate.sigmoid() * content.tanh())

    def compared(self, pairs: Pairs, blocks: list[Block]) -> torch.Tensor:
        """Returns C^q of all pairs, then C^a of all pairs, end to end in the order of the blocks, ``(n_words, d)``."""
        answers = pairs.answers.take(np.concatenate([block.rows for block in blocks]))
        n_question_words = len(pairs.questions.ids)
        h_questions, h_answers = self.encoded(np.concatenate([pairs.questions.ids, answers.ids])).split(
            [n_question_words, len(answers.ids)]
        )
        of_questions, of_answers = [], []
        sizes = [int(block.answer_lengths.sum()) for block in blocks]
        for block, words in zip(blocks, h_answers.split(sizes), strict=True):
            n, longest = len(block.rows), int(block.answer_lengths[-1])
            places = pairs.questions.starts[pairs.question[block.rows]][:, None] + np.arange(block.question_length)
            question = h_questions[torch.from_numpy(places)]
            mask = torch.from_numpy(np.arange(longest) < block.answer_lengths[:, None])
            padded = words.view(n, longest, -1) if mask.all() else words.new_zeros(n, longest, words.shape[1])
            if not mask.all():
                padded = padded.index_put((mask,), words)
            c_q, c_a = attention.compare(
                question,
                padded,
                None if mask.all() else mask,
                self.architecture.k_max,
                self.architecture.null_word,
            )
            of_questions.append(c_q.flatten(0, 1))
            of_answers.append(c_a.flatten(0, 1) if mask.all() else c_a[mask])
        return torch.cat([*of_questions, *of_answers])

    def aggregated(
        self, compared: torch.Tensor, blocks: list[Block], dtype: torch.dtype, levels: list[str]
    ) -> dict[str, torch.Tensor]:
        """Returns r of some levels, ``(n_pairs, features)`` in the order of the blocks (eq. 5, HR-5).

        ReLU, then the maximum over time, for each kernel size. Texts shorter than the largest kernel are padded with
        zeros up to it, whatever they are computed with.
        """
        sizes = self.architecture
        lengths = np.concatenate(
            [np.repeat([b.question_length for b in blocks], [len(b.rows) for b in blocks])]
            + [b.answer_lengths for b in blocks]
        )
        long = np.maximum(lengths, sizes.kernels)
        order = np.argsort(long, kind="stable")
        starts = np.empty_like(long)
        starts[order] = np.cumsum(long[order]) - long[order]
        places = torch.from_numpy(spread(starts, lengths))
        x = compared.new_zeros(int(long.sum()), sizes.width, dtype=dtype).index_copy(0, places, compared.to(dtype))
        spans = list(zip(*(values.tolist() for values in np.unique(long, return_counts=True)), strict=True))
        tops = maxima(x, spans, [self._of(levels, kernel.weight).to(dtype) for kernel in self.kernels])
        tops = tops.float() + torch.stack([self._of(levels, kernel.bias) for kernel in self.kernels])
        tops = tops.relu()[torch.from_numpy(np.argsort(order))]
        # (2 n_pairs, kernels, levels * channels) -> a level's (2 n_pairs, kernels * channels)
        of_levels = tops.view(len(long), sizes.kernels, len(levels), sizes.channels).transpose(1, 2).flatten(2)
        found = {}
        for number, level in enumerate(levels):
            features = of_levels[:, number]
            if sizes.projection:
                features = self.projections[level](features).tanh()
            found[level] = torch.cat(features.chunk(2), -1)
        return found

    def _of(self, levels: list[str], channels: torch.Tensor) -> torch.Tensor:
        """Returns the rows of some levels, ``(levels * channels, ...)``, of those of all levels."""
        every = list(self.scheme.feeds)
        if levels == every:
            return channels
        parts = channels.split(self.architecture.channels)
        return torch.cat([parts[every.index(level)] for level in levels])

    def predicted(self, level: str, features: torch.Tensor) -> torch.Tensor:
        """Returns a level's output from its enhanced features, by its perceptron of two layers (HR-6)."""
        hidden, tanh, out = self.perceptrons[level]
        return out(tanh(linear(features, hidden.weight, hidden.bias)))

    def attention(self, pairs: Pairs) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns what the words of one pair attend to: ``(n, m)`` of the question's, ``(m, n)`` of the answer's."""
        question, answer = self.encoded(pairs.questions.ids), self.encoded(pairs.answers.ids)
        similarity, sizes = (question @ answer.T)[None], self.architecture
        to_answer = attention.attend(similarity, None, sizes.k_max[0], sizes.null_word)
        to_question = attention.attend(similarity.transpose(1, 2), None, sizes.k_max[1], sizes.null_word)
        return to_answer[0], to_question[0]

    def save_pretrained(self, path: str) -> None:
        """Writes the weights and the configuration; the vocabulary is the tokenizer's to write."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        weights = weights_of(self)
        del weights[VOCABULARY]
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
        (folder / CONFIG).write_text(json.dumps(self.config, indent=2) + "\n")


def enhance(own: Mapping[str, torch.Tensor], scheme: Scheme) -> dict[str, torch.Tensor]:
    """Returns each level's enhanced features (eq. 11 to 15); gradients flow through all of them (HR-26).

    Args:
        own: r of each level that is wanted or feeds one, ``(n, features)``.
        scheme: Who feeds whom.
    """
    found = {}
    for level, feeders in scheme.feeds.items():
        if level in own:
            found[level] = torch.cat([*(found[feeder] for feeder in feeders), own[level]], -1)
    return found


def relevance(output: torch.Tensor) -> torch.Tensor:
    """Returns the score of each candidate, ``(n,)``, from a level's output.

    For the point level it is the log-odds of the positive class: the order of its probability, without the rounding to
    1 that makes ties (HR-12). For the list level it is what comes before the softmax, so that it does not depend on the
    other candidates.
    """
    return output[:, 1] - output[:, 0] if output.shape[1] == 2 else output[:, 0]
