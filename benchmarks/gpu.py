"""How fast scoring is on a GPU: cross-encoder and cascade beside sentence-transformers, with quality, in one table.

    python benchmarks/gpu.py > benchmarks/results/gpu.md
    python benchmarks/gpu.py --model cross-encoder/ms-marco-MiniLM-L6-v2 --data facts --torch-compile
    python benchmarks/gpu.py --device cpu --model ../shared/models/bert-tiny --queries 2 --test 9 --rounds 1   # a trial

On a machine with a GPU (CUDA, else MPS) contenders take turns in one process: a round runs each of them once, the first
round is warm-up and dropped, and medians over the others are printed, with the least and greatest ratio of a round.
Times include frames and tokenisation. A query is a block of ``--candidates`` texts of the data. Quality is of the
data's own lists of test. The cascade's heads are distilled, without labels, from lists of its training part.

Without a GPU it prints what a simulated one had to do, and an estimate of the time (``gpu_estimate.py``).
"""

import argparse
import platform
import shlex
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import torch
from convert_quality import MEASURES, SHARED, first_queries, lists, prompted, qrels
from gpu_estimate import ALPHAS, estimate
from ir_measures import AP
from speed import installed, interleaved, ratio, silence, spread, table
from torch import nn

from pyterrier_cascade import BM25, Cascade, CrossEncoder
from pyterrier_cascade.encoder.device import DTYPES, has_bf16, scoring_precision
from pyterrier_cascade.encoder.heads import log_odds

SMALL = SHARED / "models" / "bert-mini-reranker"
HUB = "cross-encoder/ms-marco-MiniLM-L6-v2"
PEER = "sentence-transformers"

Score = Callable[[pd.DataFrame], pd.DataFrame]
"""A function that returns the results for candidates."""


@dataclass(frozen=True)
class Contender:
    """Something that scores candidates.

    Attributes:
        name: What it is.
        precision: The precision of its weights and states.
        score: The function.
        is_whole: Whether its scores are those of the whole model.
    """

    name: str
    precision: str
    score: Score
    is_whole: bool = True

    @property
    def label(self) -> str:
        """The name with the precision."""
        return f"{self.name} {self.precision}"


def data_lists(name: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, ir_measures.Measure]:
    """Returns the lists that heads learn from, those of test, the judgements of test, and the measure."""
    if name != "facts":
        found = lists(name)
        return found["learn"], found["test"], qrels(name), MEASURES[name]
    train, test = (pt.get_dataset(f"as2:facts/{split}") for split in ("train", "test"))
    bm25 = BM25.from_docs(test.get_corpus_iter(verbose=False)) % 100
    return bm25(train.get_topics()), bm25(test.get_topics()), test.get_qrels(), AP


def blocks(frame: pd.DataFrame, n_queries: int, n_candidates: int) -> pd.DataFrame:
    """Returns queries with so many candidates each: the texts of a set, over and over if they are too few."""
    numbers = np.arange(n_queries * n_candidates)
    found = frame.iloc[numbers % len(frame)][["query", "text"]].reset_index(drop=True)
    first = numbers // n_candidates * n_candidates
    found["query"] = found["query"].to_numpy()[first]
    return found.assign(qid=(numbers // n_candidates).astype(str), docno=numbers.astype(str))


def precisions(device: torch.device) -> list[str]:
    """Returns the precisions that a device has in hardware, the exact one first."""
    return ["fp32", *["bf16"] * has_bf16(device), *["fp16"] * (device.type != "cpu")]


def ours(options: argparse.Namespace, folder: str, learn: pd.DataFrame) -> list[Contender]:
    """Returns our cross-encoder and cascades in every precision."""
    device = torch.device(options.device)
    encoder = CrossEncoder.from_pretrained(folder, device=options.device, max_length=options.max_length)
    cascade = Cascade.from_cross_encoder(folder, device=options.device, max_length=options.max_length)
    cascade = cascade(precision="fp32").distil(first_queries(learn, 0, options.teach))
    how = [(name, {"precision": name}) for name in precisions(device)]
    if options.torch_compile:
        fast = scoring_precision("auto", device)
        how.append((f"{fast}, compiled", {"precision": fast, "torch_compile": True}))
    found = [Contender("CrossEncoder", name, encoder(**given)) for name, given in how]
    for alpha in ALPHAS:
        found += [
            Contender(f"Cascade, alpha={alpha}", name, cascade(alpha=alpha, **given), alpha == 0) for name, given in how
        ]
    return found


def peers(options: argparse.Namespace, folder: str) -> list[Contender]:
    """Returns sentence-transformers in every precision: its default batches, larger ones, and flash attention."""
    device = torch.device(options.device)
    found = [peer(options, folder, name, 32) for name in precisions(device)]
    for name in precisions(device)[1:]:
        found.append(peer(options, folder, name, 256))
        try:
            found.append(peer(options, folder, name, 256, attn_implementation="flash_attention_2"))
        except (ImportError, ValueError, RuntimeError) as error:
            print(f"{PEER}' flash attention in {name} is left out: {' '.join(str(error).split())[:200]}\n")
    return found


def peer(options: argparse.Namespace, folder: str, precision: str, size: int, **more: str) -> Contender:
    """Returns CrossEncoder.predict with batches of some size, but for log-odds in place of probabilities."""
    from sentence_transformers import CrossEncoder as Peer

    given = {"dtype": DTYPES[precision], **more}
    model = Peer(folder, device=options.device, max_length=options.max_length, model_kwargs=given)

    def score(frame: pd.DataFrame) -> pd.DataFrame:
        rows = list(zip(frame["query"], frame["text"], strict=True))
        logits = model.predict(rows, batch_size=size, show_progress_bar=False, activation_fn=nn.Identity())
        return frame.assign(score=log_odds(torch.from_numpy(logits.reshape(len(rows), -1))).numpy())

    attention = ", flash" if more else ""
    return Contender(f"{PEER}, batches of {size}{attention}", precision, score)


def able(contenders: list[Contender], frame: pd.DataFrame) -> list[Contender]:
    """Returns the contenders that can score a few candidates here; says why the others cannot."""
    found = []
    for one in contenders:
        try:
            one.score(frame)
        except (ImportError, ValueError, RuntimeError) as error:
            print(f"{one.label} is left out: {' '.join(str(error).split())[:200]}\n", flush=True)
        else:
            found.append(one)
    return found


def measure(options: argparse.Namespace, folder: str) -> None:
    """Prints the table of a device."""
    learn, test, judged, wanted = data_lists(options.data)
    test = first_queries(test, 0, options.test)
    judged = pt.model.to_ir_measures(judged[judged["qid"].isin(test["qid"])])
    many, one = (blocks(test, n, options.candidates) for n in (options.queries, 1))
    header(options, folder, many)
    contenders = able([*peers(options, folder), *ours(options, folder, learn)], one[:4])
    n_single = min(10, options.queries)
    singles = [block for _, block in many[: n_single * options.candidates].groupby("qid", sort=False)]
    settings = [
        (n_single, lambda score: [score(block) for block in singles]),
        (options.queries, lambda score: score(many)),
    ]
    columns = []
    for n_queries, work in settings:
        jobs = {each.label: lambda each=each, work=work: work(each.score) for each in contenders}
        times, _ = interleaved(jobs, options.rounds)
        best = min((name for name in times if name.startswith(PEER)), key=lambda name: median(times[name]))
        columns.append(
            {
                name: [f"{1e3 * median(seconds) / n_queries:.2f}", spread(ratio(times, best, name))]
                for name, seconds in times.items()
            }
        )
    rows, exact = [], None
    for each in contenders:
        results = each.score(test)
        found = ir_measures.calc_aggregate([wanted], judged, pt.model.to_ir_measures(results))[wanted]
        scores = results.sort_values(["qid", "docno"])["score"].to_numpy()
        exact = scores if exact is None else exact
        apart = f"{np.abs(scores - exact).max():.1e}" if each.is_whole else "-"
        rows.append(
            [each.name, each.precision, *columns[0][each.label], *columns[1][each.label], f"{found:.4f}", apart]
        )
    titles = ["one query, ms", "x best peer", f"{options.queries} queries at once, ms a query", "x best peer"]
    table(["", "precision", *titles, str(wanted), "largest difference"], rows)
    print(f"The best peer is the fastest row of {PEER} in that column. Differences are of log-odds on the test lists,")
    print("from the first row.")


def header(options: argparse.Namespace, folder: str, frame: pd.DataFrame) -> None:
    """Prints what is measured, and on what."""
    encoder = CrossEncoder.from_pretrained(folder, device="cpu", max_length=options.max_length)
    lengths = encoder._tokenize(frame["query"].tolist(), frame["text"].tolist()).lengths
    config = encoder.model.loaded.module.config
    print(f"{options.model}, {config.num_hidden_layers} layers x {config.hidden_size}; {options.data},", end=" ")
    print(f"{options.candidates} candidates a query, {lengths.min()} to {lengths.max()} tokens a pair (median", end=" ")
    print(f"{np.median(lengths):.0f}); medians of {options.rounds} interleaved rounds, tokenisation included.")
    print(f"{name_of(torch.device(options.device))}.\n", flush=True)


def name_of(device: torch.device) -> str:
    """Returns the name of a device, with its memory and its ability."""
    if device.type != "cuda":
        return f"Device {device.type!r}, {platform.processor() or platform.machine()}"
    found, ability = torch.cuda.get_device_properties(device), torch.cuda.get_device_capability(device)
    return f"{found.name}, {found.total_memory / 1e9:.0f} GB, compute capability {ability[0]}.{ability[1]}"


def parsed() -> argparse.Namespace:
    """Returns the options of the command."""
    there = (SHARED / "data" / "wikiqa").exists()
    gpu = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=gpu, help="by default a GPU; 'cpu' to try the command")
    parser.add_argument(
        "--model", default=str(SMALL) if SMALL.exists() else HUB, help="a classifier: folder or Hub name"
    )
    parser.add_argument("--data", choices=["facts", *MEASURES], default="wikiqa" if there else "facts")
    parser.add_argument("--queries", type=int, default=50, help="that are scored at once")
    parser.add_argument("--candidates", type=int, default=100, help="of each query")
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--teach", type=int, default=300, help="queries that the cascade's heads learn from")
    parser.add_argument("--test", type=int, default=300, help="queries that quality is measured on")
    parser.add_argument("--rounds", type=int, default=7, help="that count, after one that does not")
    parser.add_argument("--torch-compile", action="store_true", help="adds our contenders with torch_compile=True")
    return parser.parse_args()


def main() -> None:
    """Measures on a GPU, or counts and estimates."""
    options = parsed()
    silence()
    print(f"# GPUs\n\n    {shlex.join(['python', 'benchmarks/gpu.py', *sys.argv[1:]])}\n")
    names = ("torch", "transformers", "sentence-transformers", "flash-attn")
    found = [f"{name} {version(name)}" for name in names if installed(name.replace("-", "_"))]
    print(f"Python {platform.python_version()}, {', '.join(found)}, {platform.machine()}.\n", flush=True)
    if options.device is None:
        estimate()
        return
    with tempfile.TemporaryDirectory() as folder:
        if Path(options.model) == SMALL:
            prompted(SMALL, Path(folder))
        measure(options, folder if Path(options.model) == SMALL else options.model)


if __name__ == "__main__":
    main()
