"""How fast hierarchical rankers are: reranking beside a cross-encoder, training beside the usual way. Ratios, on CPU.

    python benchmarks/hierarchical_speed.py > benchmarks/results/hierarchical_speed.md
    python benchmarks/hierarchical_speed.py --data wikiqa --model ../shared/models/e5-small --questions 120
    python benchmarks/hierarchical_speed.py --quick                                           # a minute, only to try it

Contenders take turns in one process, as in ``speed.py``. The sizes are the paper's (300 hidden units, 150 channels of
each of five kernels, three levels), and the weights are random. Reranking is measured from frame to frame, with
tokenisation: PRI(list) and a ``CrossEncoder`` of 12 layers of 384 on our engine score the same candidates. Training is
measured over all questions in steps of 30. The usual way computes one question at a time, with its candidates padded to
the longest, by ``torch.nn.functional.conv1d`` and one backward pass for each question, and adds up the gradients of the
30 questions.
"""

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from speed import interleaved, random_model, random_texts, ratio, silence, spread, table

from pyterrier_cascade import CrossEncoder, HierarchicalArchitecture, HierarchicalRanker, HierarchicalTraining
from pyterrier_cascade.frames import Blocks
from pyterrier_cascade.hierarchical.model import CompareAggregate
from pyterrier_cascade.hierarchical.trainer import LabelledQuestions, QuestionTrainer
from pyterrier_cascade.hierarchical.training import joint_loss, question_losses


def main() -> None:
    """Runs both sections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", choices=["wikiqa", "trecqa"], help="use the real questions of this data set, not invented words"
    )
    parser.add_argument("--model", help="a cross-encoder's folder with a tokenizer for them, 12 layers x 384")
    parser.add_argument("--questions", type=int, default=60, help="how many questions are trained on")
    parser.add_argument("--queries", type=int, default=8, help="how many queries are reranked")
    parser.add_argument("--candidates", type=int, default=100, help="how many candidates each query has")
    parser.add_argument("--rounds", type=int, default=5, help="how many rounds count, after one that does not")
    parser.add_argument("--quick", action="store_true", help="2 queries x 50, 6 questions, 1 round: only to try it")
    options = parser.parse_args()
    if options.quick:
        options.queries, options.candidates, options.questions, options.rounds = 2, 50, 6, 1
    silence()
    print(f"# Speed of hierarchical ranking\n\n    python {shlex.join(sys.argv)}\n")
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}; medians of {options.rounds} rounds.\n")
    rerank(options)
    train(options)


def rerank(options: argparse.Namespace) -> None:
    """Prints how long reranking takes, and how many times as fast it is as the cross-encoder."""
    frame = reranked(options)
    ours = HierarchicalRanker("PRI", "list")
    ours.model.loaded.prepare_training([*frame["query"], *frame["text"]], seed=0)
    with tempfile.TemporaryDirectory() as folder:
        encoder = CrossEncoder.from_pretrained(options.model if options.data else random_model(folder, 384))
        contenders = {
            "cross-encoder fp32": lambda: encoder(frame),
            "PRI(list) fp32": lambda: ours(frame),
            "cross-encoder bf16": lambda: encoder(precision="bf16")(frame),
            "PRI(list) bf16": lambda: ours(precision="bf16")(frame),
        }
        times, _ = interleaved(contenders, options.rounds)
    print(f"## Reranking {len(frame)} candidates (goal: cross-encoder / PRI(list) >= 10)\n")
    rows = []
    for name, seconds in times.items():
        base = f"cross-encoder {name[-4:]}"
        compared = "" if name == base else spread(ratio(times, base, name), 1)
        rows.append([name, f"{np.median(seconds) / len(frame) * 1e3:.3f}", compared])
    table(["", "ms a candidate", "times as fast"], rows)


def train(options: argparse.Namespace) -> None:
    """Prints how long a pass over questions takes, and how many times as fast it is as the usual way."""
    frame = training_data(options)
    labels, blocks = frame["label"].to_numpy(dtype=np.int64, copy=True), Blocks.of(frame)
    contenders, n_words = {}, 0
    for name, precision in (("ours fp32", "fp32"), ("ours bf16", "bf16"), ("question by question", None)):
        ranker = HierarchicalRanker("PRI", "list", architecture=HierarchicalArchitecture())
        model = ranker.model.loaded
        module = model.prepare_training([*frame["query"], *frame["text"]], seed=0)
        pairs = model.pairs(frame["query"].tolist(), frame["text"].tolist())
        settings = HierarchicalTraining(precision=precision or "fp32")
        trainer = QuestionTrainer(module, LabelledQuestions(pairs, labels, blocks), settings)
        contenders[name] = epoch(trainer) if precision else usual_epoch(trainer)
        n_words = int(pairs.lengths.sum())
    times, _ = interleaved(contenders, options.rounds)
    sizes = HierarchicalArchitecture()
    # The forward and backward passes of three levels. A kernel of size k multiplies k words at each place.
    work = 3 * 2 * 3 * n_words * sizes.width * sizes.channels * sum(range(1, sizes.kernels + 1))
    print(f"## Training on {len(frame)} pairs of {len(blocks)} questions (goal: at least 5 times as fast)\n")
    rows = []
    for name, seconds in times.items():
        compared = "" if name == "question by question" else spread(ratio(times, "question by question", name), 1)
        whole = np.median(seconds) / len(frame) * 8_672
        rows.append([name, f"{whole:.1f}", f"{work / np.median(seconds) / 1e9:.0f}", compared])
    table(["", "s for 8,672 such pairs", "GFLOP/s", "times as fast"], rows)


def candidates(queries: list[str], texts: list[str], n: int) -> pd.DataFrame:
    """Returns a results frame of n candidates a query."""
    numbers = np.arange(len(texts))
    return pd.DataFrame(
        {"qid": (numbers // n).astype(str), "query": queries, "docno": numbers.astype(str), "text": texts, "score": 0.0}
    )


def reranked(options: argparse.Namespace) -> pd.DataFrame:
    """Returns candidates: real ones of test questions, or invented ones."""
    n = options.queries * options.candidates
    if options.data is None:
        return candidates(*random_texts(options.queries, options.candidates, "sentence"), options.candidates)
    return real(options.data, "test").iloc[:n].assign(score=0.0)


def real(name: str, split: str) -> pd.DataFrame:
    """Returns the labelled candidates of a data set."""
    import pyterrier as pt

    folder = os.environ.get("PTC_DATA") or str(Path(os.environ.get("PTC_SHARED", "../shared")) / "data")
    return pt.get_dataset(f"as2:{name}/{split}", folder=folder).get_candidates()


def training_data(options: argparse.Namespace) -> pd.DataFrame:
    """Returns labelled candidates: real ones, or ten invented ones for each question, the first of which is right."""
    if options.data is None:
        frame = candidates(*random_texts(options.questions, 10, "sentence"), 10)
        return frame.assign(label=(np.arange(len(frame)) % 10 == 0).astype(int))
    frame = real(options.data, "train")
    return frame[frame["qid"].isin(frame["qid"].unique()[: options.questions])]


def epoch(trainer: QuestionTrainer) -> Callable[[], None]:
    """Returns a function that trains once on all questions as the package does."""

    def run() -> None:
        questions = np.arange(len(trainer.rows))
        for start in range(0, len(questions), 30):
            trainer.train_step(questions[start : start + 30])

    return run


def usual_epoch(trainer: QuestionTrainer) -> Callable[[], None]:
    """Returns a function that trains once on all questions, one at a time, by torch's own layers."""
    module, settings, scheme = trainer.module, trainer.settings, trainer.module.scheme
    optimizer = torch.optim.Adam(list(trainer.rates), settings.learning_rate)

    def run() -> None:
        for start in range(0, len(trainer.rows), 30):
            optimizer.zero_grad()
            step = trainer.rows[start : start + 30]
            for rows in step:
                outputs = padded_outputs(module, trainer, rows)
                labels = torch.from_numpy(trainer.questions.labels[rows])
                losses = question_losses(outputs, scheme.objectives, labels, settings)
                (joint_loss(losses, scheme.objectives, settings) / len(step)).backward()
            optimizer.step()

    return run


def padded_outputs(module: CompareAggregate, trainer: QuestionTrainer, rows: np.ndarray) -> dict[str, torch.Tensor]:
    """Returns each level's output for a question's candidates, padded to the longest."""
    pairs, sizes = trainer.questions.pairs.take(rows), module.architecture
    weights_1, weights_2 = module.encoding.weight.chunk(2)
    bias_1, bias_2 = module.encoding.bias.chunk(2)

    def encode(ids: np.ndarray) -> torch.Tensor:
        embedded = module.vectors(torch.from_numpy(ids.reshape(-1))).view(*ids.shape, -1)
        return F.linear(embedded, weights_1, bias_1).sigmoid() * F.linear(embedded, weights_2, bias_2).tanh()

    ids = np.zeros((len(rows), int(pairs.answers.lengths.max())), dtype=np.int64)
    mask = np.arange(ids.shape[1]) < pairs.answers.lengths[:, None]
    ids[mask] = pairs.answers.ids
    question, answers, real = encode(pairs.questions.ids), encode(ids), torch.from_numpy(mask)
    similarity = question @ answers.transpose(1, 2)
    to_answers = similarity.masked_fill(~real[:, None], -torch.inf).softmax(-1)
    to_question = similarity.transpose(1, 2).softmax(-1)
    compared = (to_answers @ answers) * question, (to_question @ question) * answers * real[..., None]
    own = {}
    for number, level in enumerate(module.scheme.feeds):
        channels = slice(number * sizes.channels, (number + 1) * sizes.channels)
        sides = []
        for side in compared:
            padded = F.pad(side, (0, 0, 0, max(0, sizes.kernels - side.shape[1]))).transpose(1, 2)
            tops = []
            for k, kernel in enumerate(module.kernels, start=1):
                weight = kernel.weight[channels].view(-1, k, sizes.width).transpose(1, 2)
                tops.append(F.conv1d(padded, weight, kernel.bias[channels]).relu().amax(-1))
            sides.append(torch.cat(tops, 1))
        own[level] = torch.cat(sides, 1)
    return {level: module.perceptrons[level](features) for level, features in module.scheme.enhanced(own).items()}


if __name__ == "__main__":
    main()
