"""What a GPU would have to do, counted on a simulated one, and an ESTIMATE of the milliseconds: nothing is measured.

    python benchmarks/gpu.py                  # on a machine without a GPU
    python benchmarks/gpu_estimate.py

The simulated device of ``tests/gpu`` computes with the CPU's values. It notes each launch, wait and upload with the
size of what is read and written. A roofline model then makes milliseconds of these steps, with two clocks. The host's
clock goes on by a fixed time for each launch, wait and upload. A kernel begins when it is launched and the one before
it is finished, and takes as long as its operations at half the peak rate, or as its bytes at three quarters of the
bandwidth, whichever is more. At a wait the host's clock goes on to the GPU's. Caches, the first call, tokenisation and
the work of the host between launches are left out. Weights are random.
"""

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import pandas as pd
import torch
from speed import random_model, random_texts, silence, table

from pyterrier_cascade import Cascade, CrossEncoder

ROOT = Path(__file__).parents[1]
ALPHAS = (0, 0.3, 0.4, 0.5)
LAYERS = (4, 6, 8, 10, 12)
SHAPES = [(384, "sentence", 1), (384, "passage", 1), (768, "sentence", 1), (768, "passage", 1), (384, "sentence", 10)]
"""Width of the encoder, lengths of the texts, and number of queries."""
CANDIDATES = 100
PEER = "sentence-transformers, batches of"

HOST = {"launches": 10e-6, "syncs": 20e-6, "uploads": 20e-6}
"""The assumed seconds of the host for each step."""
SHORTEST = 2e-6
"""The assumed seconds of the shortest kernel."""
RATE, BANDWIDTH = 0.5, 0.75
"""The assumed shares of the peak rate and of the bandwidth that kernels reach."""


@dataclass(frozen=True)
class Gpu:
    """The figures of a data sheet.

    Attributes:
        name: The name.
        rate: Operations a second in half precision, without sparsity.
        bandwidth: Bytes a second.
        varlen: Whether there is a kernel for attention within inputs of any lengths.
    """

    name: str
    rate: float
    bandwidth: float
    varlen: bool = True


GPUS = (
    Gpu("T4", 65e12, 320e9, varlen=False),
    Gpu("L4", 121e12, 300e9),
    Gpu("A100", 312e12, 1_555e9),
    Gpu("H100", 990e12, 3_350e9),
)

Step = tuple[str, float, float]
"""The kind of a step, its operations, and the bytes that it reads and writes."""

PRODUCTS = {"aten::linear", "aten::scaled_dot_product_attention", "torch_attn::_varlen_attn"}
GATHERS = {f"aten::{name}" for name in ("embedding", "index_select", "index", "gather")}
SCATTERS = {f"aten::{name}" for name in ("index_copy_", "index_put_", "_index_put_impl_")}
"""The operations that read or write a few rows of something large."""


def step_of(kind: str, name: str, given: list, returned) -> Step:
    """Returns a step for what the simulated device was given and what it returned."""
    read, written = (
        [one for one in torch.utils._pytree.tree_leaves(values) if isinstance(one, torch.Tensor)]
        for values in (given, returned)
    )
    moved = [*written, *written] if name in GATHERS else [read[-1]] * 2 if name in SCATTERS else [*read, *written]
    return kind, operations(name, given), float(sum(one.numel() * one.element_size() for one in moved))


def operations(name: str, given: list) -> float:
    """Returns the multiplications and additions of a product or an attention; 0 for what is bound by its bytes."""
    if name == "aten::linear":
        return 2.0 * given[0].numel() * len(given[1])
    if name == "aten::scaled_dot_product_attention":
        return 4.0 * given[0].numel() * given[1].shape[-2]
    if name == "torch_attn::_varlen_attn":
        asked, seen = (ends.diff().double() for ends in given[3:5])
        return 4.0 * float((asked * seen).sum()) * prod(given[0].shape[1:])
    return 0.0


def seconds(steps: list[Step], gpu: Gpu) -> float:
    """Returns the estimated seconds of some steps."""
    host = device = 0.0
    for kind, n_operations, n_bytes in steps:
        if kind == "syncs":
            host = max(host, device)
        host += HOST[kind]
        if kind != "syncs":
            took = max(n_operations / (RATE * gpu.rate), n_bytes / (BANDWIDTH * gpu.bandwidth), SHORTEST)
            device = max(host, device) + took
    return max(host, device)


@dataclass(frozen=True)
class Work:
    """What one shape's contenders did.

    Attributes:
        tokens: The mean number of tokens of a pair.
        tokenising: The seconds in which a core of this machine tokenised all pairs.
        steps: The steps of each contender, with the kernel for inputs of any lengths and without it.
    """

    tokens: float
    tokenising: float
    steps: dict[str, dict[bool, list[Step]]]


def counted(width: int, lengths: str, n_queries: int) -> Work:
    """Returns the steps of all contenders; in a process of its own, because the device cannot be removed again."""
    silence()
    sys.path.insert(0, str(ROOT))
    from pyterrier_cascade.encoder import engine, torch_executor
    from tests.gpu import sim

    sim.register()
    # Without them counting is quick; what is counted depends on sizes, and on who stays where candidates leave.
    sim.skipped |= PRODUCTS
    # A GPU with 8 GB to spare.
    engine.free_memory = lambda device: 8 << 30
    queries, texts = random_texts(n_queries, CANDIDATES, lengths)
    numbers = np.arange(len(texts))
    frame = pd.DataFrame({"qid": (numbers // CANDIDATES).astype(str), "query": queries, "text": texts})
    frame["docno"] = numbers.astype(str)
    steps: dict[str, dict[bool, list[Step]]] = {}
    with TemporaryDirectory() as folder:
        random_model(folder, width)
        torch.set_num_threads(1)
        for varlen in (True, False):
            torch_executor.has_varlen = lambda *given, varlen=varlen: varlen
            for name, ranker in rankers(folder).items():
                ranker(frame[:4])
                steps.setdefault(name, {})[varlen] = noted(sim, lambda ranker=ranker: ranker(frame))
        for size in (32, min(256, len(texts))):
            score = sentence_transformers(folder, size)
            score(queries[:2], texts[:2])
            # Its batches have pads and masks on every device.
            found = noted(sim, lambda score=score: score(queries, texts))
            steps[f"{PEER} {size}"] = dict.fromkeys((True, False), found)
        times = [timed(lambda: ranker._tokenize(queries, texts)) for _ in range(6)]
        tokens = ranker._tokenize(queries, texts).lengths.mean()
    return Work(float(tokens), median(times[1:]), steps)


def rankers(folder: str) -> dict[str, CrossEncoder | Cascade]:
    """Returns our contenders; bf16 has the same steps as fp16, and the CPU has it in hardware."""
    given = {"device": "sim", "precision": "bf16"}
    cascade = Cascade.from_cross_encoder(folder, LAYERS, **given)
    cascades = {f"cascade, alpha={alpha}": cascade(alpha=alpha) for alpha in ALPHAS}
    return {"cross-encoder": CrossEncoder.from_pretrained(folder, **given), **cascades}


def sentence_transformers(folder: str, size: int) -> Callable[[list[str], list[str]], object]:
    """Returns the peer in half precision, with torch's attention and batches of some size."""
    from sentence_transformers import CrossEncoder as Peer

    peer = Peer(folder, device="sim", model_kwargs={"dtype": torch.bfloat16})
    return lambda *columns: peer.predict(list(zip(*columns, strict=True)), batch_size=size, show_progress_bar=False)


def noted(sim, work: Callable[[], object]) -> list[Step]:
    """Returns the steps of some work, whose weights are loaded."""
    found: list[Step] = []
    sim.watch = lambda *step: found.append(step_of(*step))
    work()
    sim.watch = None
    return found


def timed(work: Callable[[], object]) -> float:
    """Returns the seconds of this process's cores that some work takes."""
    start = process_time()
    work()
    return process_time() - start


def estimate() -> None:
    """Prints the counts and the estimates of all shapes."""
    print("**There is no GPU here, and no figure below is a measured time of one.** Launches, waits and uploads are")
    print(
        "counted on a simulated device. Milliseconds are an **ESTIMATE** by a roofline model, from these assumptions:\n"
    )
    rows = [
        [gpu.name, f"{gpu.rate / 1e12:.0f}", f"{gpu.bandwidth / 1e9:.0f}", "kernel" if gpu.varlen else "masks"]
        for gpu in GPUS
    ]
    table(["", "half precision, TFLOP/s", "GB/s", "attention"], rows)
    launch, wait, upload = (f"{1e6 * HOST[kind]:.0f}" for kind in ("launches", "syncs", "uploads"))
    least = f"{1e6 * SHORTEST:.0f} microseconds"
    print(
        f"Products reach {RATE:.0%} of this rate and memory {BANDWIDTH:.0%} of this bandwidth; a kernel takes at least"
    )
    print(f"{least}. The host takes {launch} for a launch, {wait} for a wait and {upload} for an upload. Left out:")
    print("caches, tokenisation, frames and the rule (about 1 ms a query, `frames_overhead.md`).")
    print("sentence-transformers has torch's attention; its flash path cannot be simulated. Of two counts the first is")
    print("with the kernel for inputs of any lengths, the second with masks.\n")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for shape in SHAPES:
            print(f"  {shape}", file=sys.stderr)
            show(*shape, pool.submit(counted, *shape).result())


def show(width: int, lengths: str, n_queries: int, work: Work) -> None:
    """Prints the table of a shape."""
    several = f", {n_queries} queries at once" if n_queries > 1 else ", one query"
    print(f"## 12 layers x {width}, {work.tokens:.0f} tokens a pair{several} of {CANDIDATES} candidates\n")
    rows = []
    for name, steps in work.steps.items():
        counts = [{kind: sum(step[0] == kind for step in one) for kind in HOST} for one in steps.values()]
        shown = [" / ".join(dict.fromkeys(str(one[kind]) for one in counts)) for kind in HOST]
        taken = [1e3 * seconds(steps[gpu.varlen], gpu) / n_queries for gpu in GPUS]
        rows.append([name, *shown, *(f"{ms:.1f}" for ms in taken)])
    columns = ["", "launches", "waits", "uploads", *(f"{gpu.name}, est. ms a query" for gpu in GPUS)]
    table(columns, rows)
    tokenising = 1e3 * work.tokenising / n_queries
    print(
        f"Not in these figures: a core of this machine tokenises a query's pairs in {tokenising:.1f} ms.\n", flush=True
    )


if __name__ == "__main__":
    silence()
    estimate()
