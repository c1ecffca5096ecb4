"""How fast scoring is: beside other engines, with early exit beside its ideal, and in memory. Ratios, all on CPU.

    python benchmarks/speed.py --shape 384 --lengths sentence > benchmarks/results/speed.md
    python benchmarks/speed.py --model FOLDER --data wikiqa --sections machine monolithic
    python benchmarks/speed.py --quick                                                      # two minutes

Contenders take turns in one process: a round runs each of them once, the first round is warm-up and dropped, and
medians over the others are printed with their least and greatest (of a ratio: those of the rounds' own ratios).
``--shape`` means random weights, 12 layers with 12 heads, and texts of invented words whose tokenised lengths are
log-normal: speeds, then, and no quality. A query is a block of ``--candidates`` candidates, also on real data.
onnxruntime, openvino and nncf are optional; contenders that need them are left out where they are missing.
"""

import argparse
import contextlib
import gc
import io
import itertools
import logging
import math
import multiprocessing
import os
import platform
import queue
import shlex
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import torch
import transformers
from ir_measures import AP, RR, P, nDCG
from torch import nn

from pyterrier_cascade import Cascade
from pyterrier_cascade.crossencoder.model import load
from pyterrier_cascade.encoder.device import CALIBRATED, CALIBRATION, has_bf16
from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.encoder.executors import Executors
from pyterrier_cascade.encoder.heads import Head, log_odds
from pyterrier_cascade.encoder.int8 import has_int8
from pyterrier_cascade.encoder.pair_model import PairModel
from pyterrier_cascade.encoder.pairs import TokenPairs, tokenize
from pyterrier_cascade.training.batches import token_budget

SEED = 7
CPU = torch.device("cpu")
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
LENGTHS = {"sentence": (40, 0.45, 12, 128), "passage": (150, 0.3, 40, 400)}
"""Median, sigma, least and most tokens of a pair."""
QUERY_WORDS = 6
ALPHAS = (0.3, 0.4, 0.5)
STAGED = (("torch", "fp32"), ("torch", "bf16"), ("torch", "int8"), ("openvino", "bf16"), ("openvino", "int8"))
BASELINE = "sentence-transformers"

Contenders = dict[str, Callable[[], object]]
Times = dict[str, list[float]]


# Candidates and models


@dataclass
class Bench:
    """What all contenders score, and those of them that more than one section needs.

    Attributes:
        folder: A Hugging Face classifier with its tokenizer.
        queries: One query for each pair.
        texts: One document for each pair.
        per_query: The candidates of a query.
        n_rounds: The rounds that count.
        quick: Whether what takes long is left out.
        cascade: The folder of a trained cascade, or None for one with random heads.
    """

    folder: str
    queries: list[str]
    texts: list[str]
    per_query: int
    n_rounds: int
    quick: bool = False
    cascade: str | None = None

    @cached_property
    def model(self) -> PairModel:
        """The classifier as the package loads it."""
        return load(self.folder)

    @cached_property
    def pairs(self) -> TokenPairs:
        """The candidates, tokenised."""
        return self.tokenized()

    @cached_property
    def groups(self) -> np.ndarray:
        """The query of each pair as a number."""
        return np.arange(len(self.texts)) // self.per_query

    @cached_property
    def peers(self) -> Contenders:
        """What else scores pairs."""
        return {BASELINE: sentence_transformers(self), **onnx_runtime(self), **openvino_whole(self)}

    def tokenized(self) -> TokenPairs:
        """Returns the candidates, tokenised anew."""
        return tokenize(self.model.tokenizer, self.queries, self.texts, max_length=self.model.length_limit)

    def tiled(self, n: int) -> TokenPairs:
        """Returns so many tokenised candidates, the same ones over and over."""
        return self.pairs.select(np.arange(n) % len(self.texts))


def random_model(folder: str, width: int) -> str:
    """Saves a BERT classifier with random weights and a WordPiece tokenizer of invented words; returns the folder."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    vocabulary = {word: number for number, word in enumerate((*special, *words()))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, model_input_names=inputs, **names
    ).save_pretrained(folder)
    torch.manual_seed(SEED)
    config = transformers.BertConfig(
        hidden_size=width, intermediate_size=4 * width, vocab_size=len(vocabulary), num_labels=1
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def words() -> list[str]:
    """Returns the invented words, each one token."""
    return [f"w{number}" for number in range(30_000)]


def random_texts(n_queries: int, per_query: int, lengths: str) -> tuple[list[str], list[str]]:
    """Returns queries and documents whose pairs have the lengths of a distribution, special tokens included."""
    rng, vocabulary = np.random.default_rng(SEED), np.array(words())
    middle, sigma, least, most = LENGTHS[lengths]
    drawn = rng.lognormal(math.log(middle), sigma, n_queries * per_query).round().clip(least, most).astype(int)
    queries = [" ".join(rng.choice(vocabulary, QUERY_WORDS)) for _ in range(n_queries)]
    texts = [" ".join(rng.choice(vocabulary, length - QUERY_WORDS - 3)) for length in drawn]
    return [query for query in queries for _ in range(per_query)], texts


def real_texts(name: str, n: int) -> tuple[list[str], list[str]]:
    """Returns the first candidates of an answer selection dataset."""
    import pyterrier as pt

    folder = Path(os.environ.get("PTC_SHARED", "../shared")) / "data"
    frame = pt.get_dataset(f"as2:{name}/dev", folder=str(folder)).get_candidates().iloc[:n]
    return frame["query"].tolist(), frame["text"].tolist()


# Measuring and printing


def interleaved(contenders: Contenders, n_rounds: int) -> tuple[Times, dict[str, object]]:
    """Returns the seconds of each contender in each round after the first, and what it returned in the last."""
    times, results = {name: [] for name in contenders}, {}
    began, others_before = time.perf_counter(), others()
    for number in range(n_rounds + 1):
        print(f"  round {number} of {n_rounds}: {len(contenders)} contenders", file=sys.stderr)
        for name, work in contenders.items():
            gc.collect()
            # Threads of the contender before go on waiting for work in a loop for some milliseconds.
            time.sleep(0.05)
            start = time.perf_counter()
            results[name] = work()
            if number:
                times[name].append(time.perf_counter() - start)
    share = (others() - others_before) / (time.perf_counter() - began)
    if share > 0.05:
        # Threads that wait for each other at every operation, as torch's do, suffer much more from it than ours.
        print(f"**Do not trust what follows: other processes took {share:.2f} cores meanwhile.**\n", flush=True)
    return times, results


def others() -> float:
    """Returns the seconds of all cores that went to other processes since the start, 0 where that is unknown."""
    counts = Path("/proc/stat")
    if not counts.exists():
        return 0.0
    user, nice, system, _, _, interrupts, soft, steal, *_ = map(int, counts.read_text().splitlines()[0].split()[1:])
    busy = (user + nice + system + interrupts + soft + steal) / os.sysconf("SC_CLK_TCK")
    return busy - time.process_time()


def ratio(times: Times, numerator: str, denominator: str) -> tuple[float, float, float]:
    """Returns the ratio of two contenders' medians, and the least and the greatest ratio of a round."""
    by_round = [a / b for a, b in zip(times[numerator], times[denominator], strict=True)]
    return median(times[numerator]) / median(times[denominator]), min(by_round), max(by_round)


def spread(values: tuple[float, float, float], digits: int = 2) -> str:
    """Returns a figure with its least and greatest value."""
    figure, least, greatest = (f"{value:.{digits}f}" for value in values)
    return f"{figure} ({least}..{greatest})"


def table(columns: list[str], rows: list[list]) -> None:
    """Prints a Markdown table."""
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")
    print(flush=True)


@contextlib.contextmanager
def quiet():
    """Hides what libraries print, while a model is being made."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def installed(*packages: str) -> bool:
    """Returns whether packages are there."""
    return all(find_spec(package) for package in packages)


def missing(bench: Bench, engine: str, precision: str) -> str | None:
    """Returns why an engine of ours is not run, or None."""
    if bench.quick and precision in CALIBRATED:
        return "quantising takes too long for --quick"
    if engine == "openvino" and not installed("openvino", "nncf"):
        return "openvino or nncf is not installed"
    if engine == "torch" and precision in CALIBRATED and not has_int8():
        return "no int8 in this hardware"
    return "no bf16 in this hardware" if precision == "bf16" and not has_bf16(CPU) else None


# Peers


def sentence_transformers(bench: Bench) -> Callable[[], np.ndarray]:
    """Returns CrossEncoder.predict with its defaults, but for log-odds in place of probabilities."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(bench.folder, device="cpu", max_length=bench.model.length_limit)
    rows = list(zip(bench.queries, bench.texts, strict=True))

    def score():
        logits = model.predict(rows, show_progress_bar=False, activation_fn=nn.Identity())
        return log_odds(torch.from_numpy(logits.reshape(len(rows), -1))).numpy()

    return score


class Whole(nn.Module):
    """A Hugging Face classifier that takes its inputs by position and returns relevance.

    Args:
        module: The classifier.
        names: The inputs in order.
    """

    def __init__(self, module: nn.Module, names: list[str]):
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        """Returns relevance ``(n,)`` for inputs ``(n, longest)``."""
        return log_odds(self.module(**dict(zip(self.names, given, strict=True))).logits)


def traceable(bench: Bench) -> tuple[Whole, list[str], tuple[torch.Tensor, ...]]:
    """Returns the classifier, its inputs' names, and an example of them."""
    names = ["attention_mask", *bench.pairs.columns]
    shortest, longest = np.argsort(bench.pairs.lengths)[[0, -1]]
    # Of different lengths, so that the mask is not traced away.
    example = bench.pairs.batch(np.array([shortest, longest, longest]))
    if example["attention_mask"].all():
        example["attention_mask"][0, -1] = 0
    return Whole(load(bench.folder).module, names).eval(), names, tuple(example[name] for name in names)


def onnx_runtime(bench: Bench) -> Contenders:
    """Returns ONNX Runtime in fp32 and dynamic int8, on batches of 32 pairs sorted by length."""
    if not installed("onnx", "onnxruntime"):
        print("ONNX Runtime is left out: onnx or onnxruntime is not installed.\n")
        return {}
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    whole, names, example = traceable(bench)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = torch.get_num_threads(), 3
    sessions = {}
    with tempfile.TemporaryDirectory() as folder, quiet(), torch.no_grad():
        files = {"fp32": f"{folder}/fp32.onnx", "dynamic int8": f"{folder}/int8.onnx"}
        axes = {name: {0: "n", 1: "longest"} for name in names} | {"score": {0: "n"}}
        torch.onnx.export(
            whole, example, files["fp32"], input_names=names, output_names=["score"], dynamic_axes=axes, dynamo=False
        )
        quantize_dynamic(files["fp32"], files["dynamic int8"], weight_type=QuantType.QInt8)
        for kind, file in files.items():
            sessions[kind] = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])

    def score(session):
        pairs, scores = bench.tokenized(), np.empty(len(bench.texts))
        order = np.argsort(pairs.lengths, kind="stable")
        for rows in np.split(order, range(32, len(order), 32)):
            batch = pairs.batch(rows)
            scores[rows] = session.run(None, {name: batch[name].numpy() for name in names})[0]
        return scores

    return {f"ONNX Runtime {kind}": lambda session=session: score(session) for kind, session in sessions.items()}


def openvino_whole(bench: Bench) -> Contenders:
    """Returns OpenVINO's own whole model in each precision, in the best set-up that we know.

    That is batches of pairs sorted by length, of up to 1,024 tokens with pads, and a stream and a Python thread for
    each core. Int8 is static, by NNCF on as many candidates as ours is calibrated on.
    """
    if not installed("openvino", "nncf"):
        print("OpenVINO is left out: openvino or nncf is not installed.\n")
        return {}
    import nncf
    import openvino

    whole, names, example = traceable(bench)

    def inputs(pairs, rows):
        batch = pairs.batch(rows)
        return [batch[name].numpy() for name in names]

    with quiet(), torch.no_grad():
        nncf.set_log_level(logging.ERROR)
        exact = openvino.convert_model(whole, example_input=example)
        n = len(bench.texts)
        sample = np.linspace(0, n - 1, min(n, CALIBRATION[1])).astype(np.int64)
        sample = sample[np.argsort(bench.pairs.lengths[sample], kind="stable")]
        blocks = [inputs(bench.pairs, rows) for rows in np.split(sample, range(8, len(sample), 8))]
        kind = nncf.ModelType.TRANSFORMER
        low = None if bench.quick else nncf.quantize(exact, nncf.Dataset(blocks), model_type=kind, subset_size=n)

    n_threads, hints = torch.get_num_threads(), {"fp32": "f32", "bf16": "bf16", "int8": "bf16"}
    if not has_bf16(CPU):
        hints = {"fp32": "f32", "int8": "f32"}
    if bench.quick:
        del hints["int8"]

    def contender(precision):
        settings = {"NUM_STREAMS": n_threads, "INFERENCE_NUM_THREADS": n_threads}
        settings["INFERENCE_PRECISION_HINT"] = hints[precision]
        model = openvino.Core().compile_model(low if precision == "int8" else exact, "CPU", settings)
        idle = queue.LifoQueue()
        for _ in range(n_threads):
            idle.put(model.create_infer_request())

        def score():
            pairs, scores = bench.tokenized(), np.empty(n)

            def one(rows):
                request = idle.get()
                request.infer(inputs(pairs, rows), share_inputs=True)
                scores[rows] = request.get_output_tensor(0).data
                idle.put(request)

            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(one, token_budget(pairs.lengths, 1_024)[::-1]))
            return scores

        return score

    return {f"OpenVINO whole {precision}": contender(precision) for precision in hints}


# Section "machine"


def gemm(dtype: torch.dtype, n_threads: int, repeats: int = 10) -> Callable[[], None]:
    """Returns a product of matrices by oneDNN with a prepacked weight, repeated; :func:`gemm_flops` says how much."""
    x, weight, bias = (torch.randn(*shape).to(dtype) for shape in ((1024, 1536), (1536, 1536), (1536,)))
    weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)

    def work():
        before = torch.get_num_threads()
        torch.set_num_threads(n_threads)
        try:
            for _ in range(repeats):
                torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        finally:
            torch.set_num_threads(before)

    work.flops = 2 * 1024 * 1536 * 1536 * repeats
    return work


def flops(config, lengths: np.ndarray) -> float:
    """Returns the floating point operations of all layers: 24 W² a token and layer, attention 4 W x length."""
    width, inner = config.hidden_size, config.intermediate_size
    linear = (8 * width**2 + 4 * width * inner) * lengths.sum()
    return float(config.num_hidden_layers * (linear + 4 * width * (lengths.astype(np.float64) ** 2).sum()))


def machine(bench: Bench) -> None:
    """Prints the peak of the machine, and our share of it."""
    precisions = [precision for precision in PRECISIONS if missing(bench, "torch", precision) is None]
    contenders, n_threads = {}, torch.get_num_threads()
    for precision in precisions:
        contenders[f"{precision} 1"] = gemm(PRECISIONS[precision], 1)
        contenders[f"{precision} all"] = gemm(PRECISIONS[precision], n_threads)
        executor = bench.model.executors.get("torch", precision, "cpu", bench.pairs)
        contenders[precision] = lambda executor=executor: run(executor, bench.pairs)
    times, _ = interleaved(contenders, bench.n_rounds)
    rows, work = [], flops(bench.model.module.config, bench.pairs.lengths)
    for precision in precisions:
        peaks = [contenders[f"{precision} {n}"].flops / np.array(times[f"{precision} {n}"]) for n in ("1", "all")]
        ours = work / np.array(times[precision])
        by_round = 100 * ours / peaks[1]
        share = 100 * np.median(ours) / np.median(peaks[1]), by_round.min(), by_round.max()
        rows.append([precision, *(f"{np.median(speed) / 1e9:.0f}" for speed in (*peaks, ours)), spread(share, 1)])
    print("## Machine\n\nPeak: a product of 1,024 x 1,536 x 1,536 by oneDNN, prepacked. Ours: the monolithic model on")
    print("torch without tokenisation, all layers counted in full, though the last computes only what its head reads.")
    print("The peak of int8 is not measured.\n")
    columns = ["precision", "peak, 1 thread (GFLOP/s)", f"peak, {n_threads} threads", "ours", "ours / peak, %"]
    table(columns, rows)


# Section "monolithic"


def our_monolithic(bench: Bench) -> Contenders:
    """Returns our engine on encoder and classifier, tokenisation included."""

    def contender(engine, precision):
        with quiet():
            executor = bench.model.executors.get(engine, precision, "cpu", bench.pairs)
        return lambda: run(executor, bench.tokenized())[:, 0]

    kinds = itertools.product(["torch", "openvino"], [*PRECISIONS, *CALIBRATED])
    found = {}
    for engine, precision in kinds:
        if reason := missing(bench, engine, precision):
            print(f"Ours on {engine} {precision} is left out: {reason}.\n")
        else:
            found[f"ours, {engine} {precision}"] = contender(engine, precision)
    return found


def monolithic(bench: Bench) -> None:
    """Prints how fast the whole model is by each contender, and whether it is the same model."""
    print("## Monolithic\n\nThe same candidates for all, tokenisation included.\n")
    times, scores = interleaved(bench.peers | our_monolithic(bench), bench.n_rounds)
    exact, rows = scores[BASELINE].astype(np.float64), []
    for name, seconds in times.items():
        got = scores[name].astype(np.float64)
        took = spread((median(seconds), min(seconds), max(seconds)), 3)
        difference, probability = np.abs(got - exact).max(), np.abs(sigmoid(got) - sigmoid(exact)).max()
        rows.append(
            [
                *(name, took, spread(ratio(times, BASELINE, name))),
                *(f"{np.corrcoef(got, exact)[0, 1]:.5f}", f"{difference:.1e}", f"{probability:.1e}"),
            ]
        )
    apart = "largest difference"
    table(["", "seconds", f"x {BASELINE}", "correlation", f"{apart}, log-odds", f"{apart}, probability"], rows)
    print(f"The log-odds by {BASELINE} have a standard deviation of {exact.std():.2g}.")
    if exact.std() < 0.1:
        print("Random weights tell pairs hardly apart: compare bf16 and int8 with a trained model (--model).")
    print()
    shared = [p for p in (*PRECISIONS, "int8") if f"OpenVINO whole {p}" in times and f"ours, openvino {p}" in times]
    for precision in shared:
        compared = ratio(times, f"ours, openvino {precision}", f"OpenVINO whole {precision}")
        print(f"- Time of our OpenVINO spans / OpenVINO's whole model, {precision}: {spread(compared, 3)} (goal: 1.03)")
    compared = ratio(times, BASELINE, "ours, torch fp32")
    print(f"- Ours on torch fp32: {spread(compared)} x {BASELINE} (goal: 2.4)\n", flush=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Returns probabilities for log-odds."""
    return 1 / (1 + np.exp(-x))


# Section "exit"


def cascade_heads(model: PairModel) -> list[Head]:
    """Returns heads as the paper's at 2/6, 3/6, ... of the layers, with random weights."""
    torch.manual_seed(SEED)
    width, layers = model.module.config.hidden_size, model.layers

    def head():
        parts = nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        return nn.Sequential(*parts, nn.Flatten(0))

    return [Head(layer, "mean_nocls", head()) for layer in sorted({max(1, layers * n // 6) for n in range(2, 7)})]


def dropping(alpha: float, groups: np.ndarray) -> Callable:
    """Returns a rule that drops a share of each group's inputs after each head, whatever their scores."""
    luck = np.random.default_rng(SEED).random((8, len(groups)))

    def keep(head, rows, scores):
        rows = rows[np.lexsort((luck[head, rows], groups[rows]))]
        _, starts, sizes = np.unique(groups[rows], return_index=True, return_counts=True)
        places = np.arange(len(rows)) - np.repeat(starts, sizes)
        return rows[places < np.repeat(np.maximum(1, np.rint(sizes * (1 - alpha))), sizes)]

    return keep


def ideal(lengths: np.ndarray, layers: list[int], keep: Callable) -> float:
    """Returns the tokens x layers that survive, as a share of all."""
    rows, done = np.arange(len(lengths)), 0
    for head, (before, layer) in enumerate(itertools.pairwise([0, *layers])):
        done += lengths[rows].sum() * (layer - before)
        rows = keep(head, rows, None)
    return float(done / (lengths.sum() * layers[-1]))


def early_exit(bench: Bench) -> None:
    """Prints how much of the ideal saving is a saving of time, for waves of queries and for one query."""
    heads = cascade_heads(bench.model)
    encoder, layers = bench.model.module.base_model, [head.layer for head in heads]
    print(f"## Early exit\n\nHeads at layers {layers}, three linear layers each; after each but the last a share alpha")
    print("of each query's candidates is dropped at random. All: the same encoder with the last head only, everyone to")
    print("the end. Ideal: tokens x layers that survive. Share: of the ideal saving. Without tokenisation.\n")
    staged, alone = Executors(encoder, heads), Executors(encoder, heads[-1:])
    executors = {}
    for engine, precision in STAGED:
        if reason := missing(bench, engine, precision):
            print(f"{engine} {precision} is left out: {reason}.\n")
            continue
        with quiet():
            executors[f"{engine} {precision}"] = [
                made.get(engine, precision, "cpu", bench.pairs) for made in (staged, alone)
            ]
    one = np.arange(min(bench.per_query, len(bench.texts)))
    n_queries = int(bench.groups[-1]) + 1
    # One query takes so little time that it is measured more often.
    waves = (f"{n_queries} x {bench.per_query}", bench.pairs, bench.groups, bench.n_rounds, 96)
    single = (f"1 x {len(one)}", bench.pairs.select(one), bench.groups[one], 3 * bench.n_rounds, 85)
    rows = [row for setting in (waves, single) for row in savings(executors, layers, *setting)]
    table(["executor", "candidates", "alpha", "time / all", "ideal", "share, %", "goal"], rows)
    headline(bench, {name: pair[0] for name, pair in executors.items()})


def savings(executors: dict, layers: list[int], size: str, pairs, groups, n_rounds: int, goal: int) -> list[list]:
    """Returns a row for each executor and alpha."""
    contenders = {}
    for name, (staged, alone) in executors.items():
        contenders[name] = lambda alone=alone: run(alone, pairs)
        for alpha in ALPHAS:
            keep = dropping(alpha, groups)
            contenders[f"{name} {alpha}"] = lambda staged=staged, keep=keep: run(staged, pairs, groups, keep)
    times, _ = interleaved(contenders, n_rounds)
    rows = []
    for name, alpha in itertools.product(executors, ALPHAS):
        best = ideal(pairs.lengths, layers, dropping(alpha, groups))
        compared = ratio(times, f"{name} {alpha}", name)
        share = 100 * (1 - compared[0]) / (1 - best)
        rows.append([name, size, alpha, spread(compared, 3), f"{best:.3f}", f"{share:.1f}", goal])
    return rows


def headline(bench: Bench, staged: dict) -> None:
    """Prints how fast cascades are beside all peers, tokenisation included."""
    contenders = dict(bench.peers)
    for (name, executor), alpha in itertools.product(staged.items(), (ALPHAS[0], ALPHAS[-1])):
        keep = dropping(alpha, bench.groups)
        contenders[f"cascade alpha={alpha}, {name}"] = lambda executor=executor, keep=keep: run(
            executor, bench.tokenized(), bench.groups, keep
        )
    times, _ = interleaved(contenders, bench.n_rounds)
    best = min(bench.peers, key=lambda name: median(times[name]))
    print("Against the whole model elsewhere, tokenisation included; heads and drops are random, so speed only.")
    print(f"Goals: alpha=0.3 9 x and alpha=0.5 12 x {BASELINE}, 1.5 x the best peer, which is {best} here.\n")
    rows = [
        [name, f"{median(seconds):.3f}", spread(ratio(times, BASELINE, name)), spread(ratio(times, best, name))]
        for name, seconds in times.items()
    ]
    table(["", "seconds", f"x {BASELINE}", "x best peer"], rows)


# Section "memory"


def resident() -> int:
    """Returns the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(folder: str, pairs: TokenPairs, groups: np.ndarray) -> float:
    """Returns by how many MB a cascade over some candidates makes a process grow at most, over weights and tokens."""
    silence()
    model = load(folder)
    executor = Executors(model.module.base_model, cascade_heads(model)).get("torch", "fp32", "cpu", pairs)
    # Weights that lie in a file come into memory when they are read, and are no growth.
    sum(float(weight.sum()) for weight in model.module.parameters())
    gc.collect()
    before = peak = resident()
    done = threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    run(executor, pairs, groups, dropping(ALPHAS[0], groups))
    done.set()
    watcher.join()
    return (max(peak, resident()) - before) / 1e6


def memory(bench: Bench, times_queries: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """Prints what scoring adds to the process, and time by the number of candidates."""
    alpha = ALPHAS[0]
    print(f"## Memory and time\n\nA cascade with alpha={alpha} on torch fp32, tokenised before.\n")
    if Path("/proc/self/statm").exists():
        rows = []
        for times in times_queries:
            n = times * len(bench.texts)
            print(f"  memory of {n} candidates", file=sys.stderr)
            # A process for each: memory that a run before has left to the allocator would hide growth.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                grown = pool.submit(growth, bench.folder, bench.tiled(n), np.arange(n) // bench.per_query).result()
            rows.append([f"{times} x", n, f"{grown:.0f}"])
        table(["queries", "candidates", "growth while scoring, MB (goal: 300)"], rows)
    else:
        print("Memory is left out: it is read from /proc, which is not here.\n")
    executor = Executors(bench.model.module.base_model, cascade_heads(bench.model)).get("torch", "fp32", "cpu", None)

    def contender(n):
        pairs, groups = bench.tiled(n), np.zeros(n, dtype=np.int64)
        return lambda: run(executor, pairs, groups, dropping(alpha, groups))

    times, _ = interleaved({str(n): contender(n) for n in sizes}, bench.n_rounds)
    rows = []
    for n in sizes:
        compared = [value * sizes[0] / n for value in ratio(times, str(n), str(sizes[0]))]
        rows.append([n, f"{1_000 * median(times[str(n)]) / n:.3f}", spread(tuple(compared))])
    table(["candidates of one query", "ms a candidate", f"beside {sizes[0]} candidates"], rows)


# Section "cascade"


def whole_cascade(bench: Bench) -> None:
    """Prints how fast the cascade is as a transformer, frames and tokenisation included, and a sweep of its trace."""
    ranker = Cascade.from_pretrained(bench.cascade or bench.folder)
    groups = bench.groups.astype(str)
    frame = pd.DataFrame({"qid": groups, "query": bench.queries, "text": bench.texts})
    frame["docno"] = [f"d{number}" for number in range(len(frame))]
    print("## Cascade\n\nThe transformer: frames in, frames out. Goals: alpha=0.3 9 x and alpha=0.5 12 x")
    print(f"{BASELINE}, 1.5 x the best peer.\n")
    contenders = dict(bench.peers)
    for (engine, precision), alpha in itertools.product(STAGED, (ALPHAS[0], ALPHAS[-1])):
        if reason := missing(bench, engine, precision):
            print(f"{engine} {precision} is left out: {reason}.\n")
            continue
        one = ranker(engine=engine, precision=precision, alpha=alpha)
        contenders[f"cascade alpha={alpha}, {engine} {precision}"] = lambda one=one: one(frame)
    with quiet():
        # Graphs are made when they are first needed, which is not without words.
        for work in contenders.values():
            work()
    times, _ = interleaved(contenders, bench.n_rounds)
    best = min(bench.peers, key=lambda name: median(times[name]))
    rows = [
        [name, f"{median(seconds):.3f}", spread(ratio(times, BASELINE, name)), spread(ratio(times, best, name))]
        for name, seconds in times.items()
    ]
    table(["", "seconds", f"x {BASELINE}", f"x {best}"], rows)

    trace = ranker.trace(frame)
    qrels = frame.groupby("qid").nth(3)[["qid", "docno"]].assign(label=1)
    measures = [AP, RR, P @ 1, nDCG @ 10]
    contenders = {
        "all heads score all candidates": lambda: ranker.trace(frame),
        "sweep of 1,296 alphas": lambda: trace.sweep(qrels, measures),
    }
    times, _ = interleaved(contenders, bench.n_rounds)
    scoring, sweeping = contenders
    print(f"- Sweep of 1,296 alphas by {', '.join(map(str, measures))} / scoring, torch fp32:", end=" ")
    print(f"{spread(ratio(times, sweeping, scoring), 4)} (goal: 0.05)\n")


# The command


def silence() -> None:
    """Turns warnings, logs and bars of the libraries off."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def parsed() -> argparse.Namespace:
    """Returns the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, choices=[384, 768], default=384, help="width of a random encoder")
    parser.add_argument("--lengths", choices=list(LENGTHS), default="sentence", help="of random texts")
    parser.add_argument("--model", help="folder of a trained classifier, in place of --shape; needs --data")
    parser.add_argument("--cascade", help="folder of a trained cascade, in place of random heads; for its section")
    parser.add_argument("--data", choices=["wikiqa", "trecqa"], help="real candidates, in place of --lengths")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--candidates", type=int, default=100, help="of each query")
    parser.add_argument("--rounds", type=int, default=5, help="that count, after one that does not")
    parser.add_argument("--quick", action="store_true", help="2 queries x 50, 3 rounds, 384, sentence: only to try it")
    options = parser.parse_args()
    if bool(options.model) != bool(options.data):
        parser.error("--model and --data go together")
    if options.quick:
        options.shape, options.lengths, options.rounds = 384, "sentence", 3
        options.queries, options.candidates = 2, 50
    return options


SECTIONS = ["machine", "monolithic", "exit", "cascade", "memory"]


def header(bench: Bench) -> None:
    """Prints what is measured, and on what."""
    packages = "torch", "transformers", "sentence-transformers", "onnxruntime", "openvino", "nncf"
    found = [f"{name} {version(name)}" for name in packages if installed(name.replace("-", "_"))]
    config, lengths = bench.model.module.config, bench.pairs.lengths
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    print(f"# Speed\n\n    python {shlex.join(sys.argv)}\n")
    print(f"{config.num_hidden_layers} layers x {config.hidden_size}; {len(lengths)} candidates", end=" ")
    print(f"of {lengths.min()} to {lengths.max()} tokens (median {np.median(lengths):.0f}),")
    print(f"{bench.per_query} a query;", end=" ")
    print(f"medians of {bench.n_rounds} interleaved rounds.")
    print(f"{torch.get_num_threads()} threads, {processor or platform.processor()}, {platform.machine()};", end=" ")
    print(f"Python {platform.python_version()}, {', '.join(found)}.\n", flush=True)


def main() -> None:
    """Runs the sections that are asked for."""
    options = parsed()
    silence()
    with tempfile.TemporaryDirectory() as folder:
        if options.model:
            texts = real_texts(options.data, options.queries * options.candidates)
        else:
            texts = random_texts(options.queries, options.candidates, options.lengths)
        source = options.model or random_model(folder, options.shape)
        bench = Bench(source, *texts, options.candidates, options.rounds, options.quick, options.cascade)
        header(bench)
        times_queries, sizes = ((1,), (100, 200, 400)) if options.quick else ((1, 4, 16), (1_000, 2_000, 4_000))
        sections = {
            "machine": machine,
            "monolithic": monolithic,
            "exit": early_exit,
            "cascade": whole_cascade,
            "memory": lambda bench: memory(bench, times_queries, sizes),
        }
        for name in SECTIONS:
            if name in options.sections:
                print(f"{name}", file=sys.stderr)
                sections[name](bench)


if __name__ == "__main__":
    main()
