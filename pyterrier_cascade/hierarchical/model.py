"""The compare-aggregate backbone and the levels on it (HR-1 to HR-7, HR-10)."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from pyterrier_cascade.checkpoint import weights_of
from pyterrier_cascade.checks import KnownSettings, is_count
from pyterrier_cascade.encoder.device import uploaded
from pyterrier_cascade.hierarchical.convolution import linear, maxima
from pyterrier_cascade.hierarchical.pairs import QuestionAnswerPairs, consecutive, filled_up
from pyterrier_cascade.hierarchical.schemes import Scheme
from pyterrier_cascade.hierarchical.vectors import WordVectors

CONFIG, WEIGHTS = "config.json", "model.safetensors"
WORDS = "vectors._extra_state"
"""The name of the vocabulary among the weights."""


@dataclass(frozen=True)
class HierarchicalArchitecture(KnownSettings):
    """The sizes and options of the backbone; the defaults are the paper's (HR-1, HR-5, HR-6).

    Args:
        embedding_width: The size of a word vector. A file of vectors decides its own size.
        width: The hidden units of the encoding, d.
        channels: The channels of each kernel size of the CNN.
        kernels: The largest kernel size; the CNN has all sizes from 1 on.
        hidden: The hidden units of a level's perceptron, which the paper does not give.
        projection: Whether a linear map to ``channels`` and a tanh follow the CNN, as in Wang and Jiang's code (HR-5).
        null_word: Whether a word may attend to no word at all, as in Wang and Jiang's code (HR-3).
        k_max: How many words a word of the question attends to, and how many a word of the answer (HR-7); None is all.
            The paper limits them on WikiQA without the numbers; ``(10, 5)`` is a guess from public code.
        lowercase: Whether texts become lower case before words are looked up.
        frequent_words: How many of the most frequent words of a file of vectors are kept beside the words seen in
            training, so that the model understands new texts.
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
            if not is_count(getattr(self, name)):
                raise ValueError(f"{name} must be a whole number from 1, not {getattr(self, name)!r}")
        if len(self.k_max) != 2 or any(k is not None and not is_count(k) for k in self.k_max):
            raise ValueError(f"k_max must be two whole numbers from 1, or None for all words, not {self.k_max!r}")
        if not is_count(self.frequent_words, least=0):
            raise ValueError(f"frequent_words must be a whole number from 0, not {self.frequent_words!r}")

    @property
    def features(self) -> int:
        """The width of a level's own features, both sides together: 1,500 in the paper."""
        return 2 * self.channels * (1 if self.projection else self.kernels)


class CompareAggregate(nn.Module):
    """The shared encoding and interaction, and for each level of a scheme a CNN and a perceptron of its own (HR-10).

    Args:
        scheme: Which level reads the features of which others.
        architecture: The sizes.
    """

    def __init__(self, scheme: Scheme, architecture: HierarchicalArchitecture):
        super().__init__()
        self.scheme, self.architecture, self.config = scheme, architecture, {}
        sizes, n_levels = architecture, len(scheme.feeds)
        self.vectors = WordVectors(sizes.embedding_width)
        # W1 and W2 of equation 1 side by side.
        self.encoding = nn.Linear(sizes.embedding_width, 2 * sizes.width)
        # The CNNs of all levels side by side: they read the same input, so that one product serves all of them.
        self.kernels = nn.ModuleList(
            nn.Linear(k * sizes.width, n_levels * sizes.channels) for k in range(1, sizes.kernels + 1)
        )
        self.projections = nn.ModuleDict(
            {
                level: nn.Sequential(nn.Linear(sizes.kernels * sizes.channels, sizes.channels), nn.Tanh())
                if sizes.projection
                else nn.Identity()
                for level in scheme.feeds
            }
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
        self, pairs: QuestionAnswerPairs, dtype: torch.dtype = torch.float32, level: str | None = None
    ) -> dict[str, torch.Tensor]:
        """Returns each level's output for each pair: ``(n, 2)`` logits of the point level, ``(n, 1)`` of the others.

        Args:
            pairs: Questions and answers.
            dtype: The precision of the CNN's products.
            level: The one level that is wanted, which spares the levels that it does not read; all unless given.
        """
        blocks, scheme = list(pairs.blocks()), self.scheme
        order = np.concatenate(blocks)
        lengths = np.concatenate([pairs.question_lengths[order], pairs.answers.lengths[order]])
        levels = list(scheme.feeds) if level is None else scheme.needed(level)
        enhanced = scheme.enhanced(self.aggregated(self.compared(pairs, blocks), lengths, dtype, levels))
        back = self._moved(np.argsort(order))
        return {one: self.predicted(one, enhanced[one])[back] for one in (levels if level is None else [level])}

    def _moved(self, values: np.ndarray) -> torch.Tensor:
        """Returns the values of an array on the device of the weights."""
        return uploaded(values, self.encoding.weight.device)

    def encoded(self, ids: np.ndarray) -> torch.Tensor:
        """Returns the states H ``(n, d)`` of words ``(n,)`` (eq. 1); each different word is computed once."""
        unique, places = np.unique(ids, return_inverse=True)
        mapped = linear(self.vectors(self._moved(unique)), self.encoding.weight, self.encoding.bias)
        gate, content = mapped.chunk(2, -1)
        return F.embedding(self._moved(places), gate.sigmoid() * content.tanh())

    def compared(self, pairs: QuestionAnswerPairs, blocks: list[np.ndarray]) -> torch.Tensor:
        """Returns C^q of all pairs, then C^a of all pairs, end to end in the order of the blocks, ``(n_words, d)``."""
        answers = pairs.answers.take(np.concatenate(blocks))
        states = self.encoded(np.concatenate([pairs.questions.ids, answers.ids]))
        h_questions, h_answers = states.split([len(pairs.questions.ids), len(answers.ids)])
        sizes, of_questions, of_answers = self.architecture, [], []
        lengths = [pairs.answers.lengths[rows] for rows in blocks]
        for rows, n_words, words in zip(blocks, lengths, h_answers.split([n.sum() for n in lengths]), strict=True):
            places = filled_up(pairs.questions.starts[pairs.question[rows]], pairs.question_lengths[rows])
            question = h_questions[self._moved(places)]
            answer = words[self._moved(filled_up(np.cumsum(n_words) - n_words, n_words))]
            real = np.arange(n_words[-1]) < n_words[:, None]
            mask = None if real.all() else self._moved(real)
            c_q, c_a = compare(question, answer, mask, sizes.k_max, sizes.null_word)
            of_questions.append(c_q.flatten(0, 1))
            of_answers.append(c_a.flatten(0, 1)[self._moved(np.flatnonzero(real))])
        return torch.cat([*of_questions, *of_answers])

    def aggregated(
        self, compared: torch.Tensor, lengths: np.ndarray, dtype: torch.dtype, levels: list[str]
    ) -> dict[str, torch.Tensor]:
        """Returns the features r of some levels, ``(n_pairs, features)`` (eq. 5, HR-5).

        Each kernel size is followed by ReLU and the maximum over time. A text shorter than the largest kernel is padded
        with zeros up to its size, whichever texts are computed with it.

        Args:
            compared: See :meth:`compared`.
            lengths: The number of words in each text there, ``(2 * n_pairs,)``.
            dtype: The precision of the products.
            levels: The levels that are wanted.
        """
        sizes = self.architecture
        padded = np.maximum(lengths, sizes.kernels)
        order = np.argsort(padded, kind="stable")
        starts = np.empty_like(padded)
        starts[order] = np.cumsum(padded[order]) - padded[order]
        places = self._moved(consecutive(starts, lengths))
        x = compared.new_zeros(int(padded.sum()), sizes.width, dtype=dtype).index_copy(0, places, compared.to(dtype))
        spans = np.stack(np.unique(padded, return_counts=True), 1).tolist()
        tops = maxima(x, spans, [self._channels_of(levels, kernel.weight).to(dtype) for kernel in self.kernels])
        tops = tops.float() + torch.stack([self._channels_of(levels, kernel.bias) for kernel in self.kernels])
        tops = tops.relu()[self._moved(np.argsort(order))]
        # (2 n_pairs, kernels, levels * channels) -> for each level (2 n_pairs, kernels * channels)
        of_levels = tops.view(len(padded), sizes.kernels, len(levels), sizes.channels).transpose(1, 2).flatten(2)
        return {
            level: torch.cat(self.projections[level](features).chunk(2), -1)
            for level, features in zip(levels, of_levels.unbind(1), strict=True)
        }

    def _channels_of(self, levels: list[str], channels: torch.Tensor) -> torch.Tensor:
        """Returns the rows of some levels, ``(levels * channels, ...)``, out of the rows of all levels."""
        if len(levels) == len(self.scheme.feeds):
            return channels
        parts = dict(zip(self.scheme.feeds, channels.split(self.architecture.channels), strict=True))
        return torch.cat([parts[level] for level in levels])

    def predicted(self, level: str, features: torch.Tensor) -> torch.Tensor:
        """Returns a level's output for its enhanced features, by its perceptron of two layers (HR-6)."""
        hidden, tanh, out = self.perceptrons[level]
        return out(tanh(linear(features, hidden.weight, hidden.bias)))

    def attention(self, pairs: QuestionAnswerPairs) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the attention weights of one pair: question to answer ``(n, m)``, and answer to question ``(m, n)``.

        Args:
            pairs: A single pair.
        """
        question, answer = self.encoded(pairs.questions.ids), self.encoded(pairs.answers.ids)
        similarity, sizes = question @ answer.T, self.architecture
        to_answer = attend(similarity[None], None, sizes.k_max[0], sizes.null_word)
        to_question = attend(similarity.T[None], None, sizes.k_max[1], sizes.null_word)
        return to_answer[0], to_question[0]

    def save_pretrained(self, path: str) -> None:
        """Writes the weights and the configuration; the tokenizer writes the vocabulary."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        weights = weights_of(self)
        del weights[WORDS]
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
        (folder / CONFIG).write_text(json.dumps(self.config, indent=2) + "\n")


def attend(
    similarity: torch.Tensor, mask: torch.Tensor | None = None, k_max: int | None = None, null: bool = False
) -> torch.Tensor:
    """Returns how much each word of one side attends to each word of the other, ``(b, n, m)``; rows add up to 1.

    Args:
        similarity: ``(b, n, m)`` (eq. 2).
        mask: True for the real words of the other side, ``(b, m)``, because padding gets no weight; None if all words
            are real.
        k_max: How many of a row's largest weights are kept and made to add up to 1 again (HR-7); None keeps all.
        null: Whether a zero vector stands beside the other side, so that a word can attend to no word (HR-3, an
            option). A row then adds up to its weight on real words.
    """
    if mask is not None:
        similarity = similarity.masked_fill(~mask[:, None], -torch.inf)
    if null:
        similarity = torch.cat([similarity, torch.zeros_like(similarity[..., :1])], -1)
    weights = similarity.softmax(-1)
    if k_max is not None and k_max < weights.shape[-1]:
        kept = weights.topk(k_max, -1)
        weights = torch.zeros_like(weights).scatter(-1, kept.indices, kept.values)
        weights = weights / weights.sum(-1, keepdim=True)
    return weights[..., :-1] if null else weights


def compare(
    question: torch.Tensor,
    answer: torch.Tensor,
    answer_mask: torch.Tensor | None = None,
    k_max: tuple[int | None, int | None] = (None, None),
    null: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns C^q ``(b, n, d)`` and C^a ``(b, m, d)``: each word multiplied by the words it attends to (eq. 2 to 4).

    The printed equation 3 multiplies the attention by the words of the same side, whose number does not fit. Here a
    word attends to the other side, as in Wang and Jiang's code (HR-3).

    Args:
        question: H^q of questions of one length, ``(b, n, d)``.
        answer: H^a, ``(b, m, d)``.
        answer_mask: True for real words, ``(b, m)``; None if all words are real.
        k_max: See :func:`attend`; for the words of the question, and for those of the answer.
        null: See :func:`attend`.
    """
    similarity = question @ answer.transpose(1, 2)
    to_answer = attend(similarity, answer_mask, k_max[0], null)
    to_question = attend(similarity.transpose(1, 2), None, k_max[1], null)
    return (to_answer @ answer) * question, (to_question @ question) * answer


def relevance(output: torch.Tensor) -> torch.Tensor:
    """Returns the score of each candidate, ``(n,)``, from a level's output.

    The score of the point level is the log-odds of the positive class. They give the order of its probability (HR-12)
    without the ties that rounding to 1 makes. The score of the list level is the output before the softmax, so that it
    does not depend on the other candidates.
    """
    return output[:, 1] - output[:, 0] if output.shape[1] == 2 else output[:, 0]
