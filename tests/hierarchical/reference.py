"""The backbone written straight from the equations, one pair after the other."""

import numpy as np
import torch
import torch.nn.functional as F

from pyterrier_cascade.hierarchical.loading import build
from pyterrier_cascade.hierarchical.model import CompareAggregate, HierarchicalArchitecture
from pyterrier_cascade.hierarchical.pairs import NumberedTexts, QuestionAnswerPairs

SMALL = HierarchicalArchitecture(embedding_width=6, width=8, channels=4, hidden=5)


def texts(lengths, n_words: int, rng) -> NumberedTexts:
    lengths = np.array(lengths, dtype=np.int64)
    return NumberedTexts(rng.integers(0, n_words + 1, lengths.sum()), lengths)


def pairs(question_lengths, answer_lengths, question, n_words: int = 20, seed: int = 0) -> QuestionAnswerPairs:
    rng = np.random.default_rng(seed)
    return QuestionAnswerPairs(
        texts(question_lengths, n_words, rng), texts(answer_lengths, n_words, rng), np.array(question)
    )


def module(scheme="PRI", level="list", architecture=SMALL, n_words: int = 20, n_tuned: int = 12, seed: int = 0):
    net = build(scheme, level, architecture, seed=seed)
    rng = np.random.default_rng(seed)
    vectors = rng.normal(0, 1, (n_words, architecture.embedding_width)).astype(np.float32)
    net.vectors.add([f"w{n}" for n in range(n_words)], vectors, n_tuned)
    # Larger weights than those of a fresh module, so that scores differ clearly.
    with torch.no_grad():
        for parameter in net.kernels.parameters():
            parameter *= 3
    return net


def outputs(net: CompareAggregate, question: np.ndarray, answer: np.ndarray) -> dict[str, torch.Tensor]:
    """The output of each level for one pair, given as numbers of words."""
    sizes, levels = net.architecture, list(net.scheme.feeds)
    table = torch.cat([net.vectors.tuned, net.vectors.rest])
    table = torch.cat([torch.zeros_like(table[:1]), table[1:]])
    w1, w2 = net.encoding.weight.chunk(2)
    b1, b2 = net.encoding.bias.chunk(2)

    def encode(ids):
        e = table[torch.from_numpy(ids)]
        return torch.sigmoid(e @ w1.T + b1) * torch.tanh(e @ w2.T + b2)

    h_q, h_a = encode(question), encode(answer)
    m = h_q @ h_a.T

    def soft(rows, k):
        exp = torch.exp(rows - rows.max())
        null = torch.exp(-rows.max()).expand(len(rows), 1)
        exp = torch.cat([exp, null], 1) if sizes.null_word else exp
        weights = exp / exp.sum(1, keepdim=True)
        if k is not None and k < weights.shape[1]:
            kept = torch.zeros_like(weights)
            for row in range(len(weights)):
                best = sorted(range(weights.shape[1]), key=lambda c: -weights[row, c].item())[:k]
                kept[row, best] = weights[row, best]
            weights = kept / kept.sum(1, keepdim=True)
        return weights[:, : rows.shape[1]]

    c_q = (soft(m, sizes.k_max[0]) @ h_a) * h_q
    c_a = (soft(m.T, sizes.k_max[1]) @ h_q) * h_a
    own = {}
    for number, level in enumerate(levels):
        channels = slice(number * sizes.channels, (number + 1) * sizes.channels)
        sides = []
        for c in (c_q, c_a):
            short = sizes.kernels - len(c)
            c = F.pad(c, (0, 0, 0, max(0, short)))
            found = []
            for k, kernel in enumerate(net.kernels, start=1):
                weight = kernel.weight[channels].view(-1, k, sizes.width).transpose(1, 2)
                y = F.conv1d(c.T[None], weight, kernel.bias[channels])
                found.append(F.relu(y)[0].amax(1))
            side = torch.cat(found)
            sides.append(torch.tanh(net.projections[level][0](side)) if sizes.projection else side)
        own[level] = torch.cat(sides)
    enhanced = {}
    for level, feeders in net.scheme.feeds.items():
        enhanced[level] = torch.cat([*(enhanced[feeder] for feeder in feeders), own[level]])
    return {level: net.perceptrons[level](features) for level, features in enhanced.items()}


def all_outputs(net: CompareAggregate, of: QuestionAnswerPairs) -> dict[str, torch.Tensor]:
    """The outputs for all pairs, one pair after the other."""
    found = []
    for row in range(len(of)):
        q, a = of.question[row], row
        found.append(
            outputs(
                net,
                of.questions.ids[of.questions.starts[q] : of.questions.starts[q] + of.questions.lengths[q]],
                of.answers.ids[of.answers.starts[a] : of.answers.starts[a] + of.answers.lengths[a]],
            )
        )
    return {level: torch.stack([one[level] for one in found]) for level in found[0]}
