"""How fast DC-BERT ranks from its cache, beside the monolithic model on the same engine and sentence-transformers.

    python benchmarks/dcbert_speed.py --output benchmarks/results/dcbert_speed.md
    python benchmarks/dcbert_speed.py --quick

SQuAD's paragraphs are encoded once; BM25 gives each question its candidates. Every contender takes the same results
frame and returns a ranked one, tokenisation included. They take turns in one process: the first round is dropped,
ratios are of the same round, medians are over rounds. Before a round in which the cache is cold, its files are dropped
from the system's memory. Heads are fresh: speed only.
"""

import argparse
import contextlib
import io
import os
import platform
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from statistics import median

import pandas as pd
import pyterrier as pt
import torch

from pyterrier_cascade import BM25, DCBERT, CrossEncoder, DocumentCache

SHARED = Path(os.environ.get("PTC_SHARED", "../shared"))


def candidates(options: argparse.Namespace) -> tuple[list[dict], pd.DataFrame]:
    """Returns the corpus and the candidates of some questions."""
    data = pt.get_dataset("as2:squad-open/dev-v1.1", folder=str(SHARED / "data"))
    corpus = list(data.get_corpus_iter(verbose=False))
    topics = data.get_topics().sample(options.questions, random_state=0)
    return corpus, (BM25.from_docs(corpus) % options.candidates)(topics)


def forget(cache: DocumentCache) -> None:
    """Drops a cache's files from the system's memory."""
    for file in Path(cache.path).rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sentence_transformers(model: str, frame: pd.DataFrame):
    """Returns sentence-transformers' cross-encoder with its defaults, as a function without arguments."""
    from sentence_transformers import CrossEncoder as Theirs

    # The folder holds fp16, which they would compute in as it is, and slower.
    theirs = Theirs(model, device="cpu", max_length=512, model_kwargs={"dtype": torch.float32})
    pairs = list(zip(frame["query"], frame["text"], strict=True))

    def score():
        return theirs.predict(pairs, show_progress_bar=False)

    return score


def contenders(options: argparse.Namespace, frame: pd.DataFrame, caches: dict[str, DocumentCache]) -> dict:
    """Returns functions without arguments by name."""
    no_text = frame.drop(columns="text")
    found = {"sentence-transformers": sentence_transformers(options.model, frame)}
    monolithic = CrossEncoder.from_pretrained(options.model)
    found["monolithic, fp32"] = lambda: monolithic(frame)
    monolithic_bf16 = monolithic(precision="bf16")
    found["monolithic, bf16"] = lambda: monolithic_bf16(frame)

    def warm(ranker):
        return lambda: ranker(no_text)

    def cold(dtype, **settings):
        def score():
            return DocumentCache(caches[dtype].path).reranker(model, **settings)(no_text)

        return score

    for k in (1, 2, 3):
        model = DCBERT.from_pretrained(options.model, joint_layers=k)
        found[f"DC-BERT K={k}, fp16 cache"] = warm(caches["fp16"].reranker(model))
    for k in (1, 2, 3, 4):
        model = DCBERT.from_pretrained(options.model, variant="one_way", joint_layers=k)
        for dtype in ("fp16", "int8") if k > 1 else ("fp16",):
            found[f"DC-BERT one way K={k}, {dtype} cache"] = warm(caches[dtype].reranker(model))
    for variant in ("linear", "lstm"):
        other = DCBERT.from_pretrained(options.model, variant=variant)
        found[f"DC-BERT {variant}, fp16 cache"] = warm(caches["fp16"].reranker(other))
    model = DCBERT.from_pretrained(options.model, joint_layers=1)
    found["DC-BERT K=1, int8 cache"] = warm(caches["int8"].reranker(model))
    found["late, fp16 cache"] = warm(caches["fp16"].reranker(model, interaction="late"))
    found["late, int8 cache"] = warm(caches["int8"].reranker(model, interaction="late"))
    # The folder is opened anew, its files come from the disk.
    found["DC-BERT K=1, fp16 cache, cold"] = cold("fp16")
    found["late, fp16 cache, cold"] = cold("fp16", interaction="late")
    return found


def measure(options: argparse.Namespace, frame: pd.DataFrame, caches: dict, n_threads: int) -> list[list[str]]:
    """Returns the rows of a table: all contenders on so many threads, interleaved."""
    torch.set_num_threads(n_threads)
    found, times = contenders(options, frame, caches), {}
    for number in range(options.rounds + 1):
        for name, score in found.items():
            slow = "monolithic" in name or "transformers" in name
            taken = []
            for _ in range(1 if slow else 3):
                if "cold" in name:
                    forget(caches["fp16"])
                start = time.perf_counter()
                score()
                taken.append(time.perf_counter() - start)
            if number:
                times.setdefault(name, []).append(median(taken))
    rows = []
    for name, taken in times.items():
        cells = [name, f"{median(taken) / options.questions * 1000:.1f}"]
        for base in ("sentence-transformers", "monolithic, fp32", "monolithic, bf16"):
            ratios = [other / own for other, own in zip(times[base], taken, strict=True)]
            cells.append(f"{median(ratios):.1f} ({min(ratios):.1f}..{max(ratios):.1f})")
        rows.append(cells)
    return rows


def main() -> None:
    """Runs what is asked for and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(SHARED / "models" / "e5-small"))
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--candidates", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--cache", help="folder for the caches, kept; a temporary one unless given")
    parser.add_argument("--output", help="file for the tables; standard output unless given")
    parser.add_argument("--quick", action="store_true", help="few questions and rounds, to try it")
    options = parser.parse_args()
    if options.quick:
        options.questions, options.rounds, options.threads = 2, 2, [2]
    warnings.filterwarnings("ignore", message="the (head|joint layers)")
    corpus, frame = candidates(options)
    out = io.StringIO()
    with contextlib.ExitStack() as stack:
        folder = Path(options.cache or stack.enter_context(tempfile.TemporaryDirectory()))
        model, caches, seconds = DCBERT.from_pretrained(options.model), {}, {}
        for dtype in ("fp16", "int8"):
            there, start = (folder / dtype).exists(), time.perf_counter()
            caches[dtype] = model.encode(corpus, folder / dtype, dtype=dtype)
            seconds[dtype] = None if there else time.perf_counter() - start
        sizes = {d: sum(f.stat().st_size for f in Path(c.path).rglob("*") if f.is_file()) for d, c in caches.items()}
        n_tokens = caches["fp16"].n_tokens
        command = "python benchmarks/dcbert_speed.py"
        print(f"# The speed of DC-BERT\n\n    {command} --output benchmarks/results/dcbert_speed.md\n", file=out)
        print(
            f"{len(corpus)} paragraphs of SQuAD, {n_tokens / len(corpus):.0f} tokens in the mean; {options.questions} "
            f"questions with {options.candidates} candidates each; e5-small (12 x 384), fresh joint layers; medians "
            f"of {options.rounds} interleaved rounds, frames and tokenisation included.\n{platform.machine()}, Python "
            f"{platform.python_version()}, torch {torch.__version__}, transformers {version('transformers')}, "
            f"sentence-transformers {version('sentence-transformers')}.\n",
            file=out,
        )
        print(
            "Caches: "
            + "; ".join(
                f"{dtype} {sizes[dtype] / 1e6:.0f} MB, {sizes[dtype] / n_tokens:.0f} bytes a token"
                + (f", encoded at {len(corpus) / seconds[dtype]:.0f} paragraphs a second" if seconds[dtype] else "")
                for dtype in caches
            )
            + ".",
            file=out,
        )
        for n_threads in options.threads:
            rows = measure(options, frame, caches, n_threads)
            head = ["", "ms a question", "x sentence-transformers", "x monolithic fp32", "x monolithic bf16"]
            print(f"\n## {n_threads} thread{'s' * (n_threads > 1)}\n", file=out)
            for line in (head, ["---"] * len(head), *rows):
                print(f"| {' | '.join(line)} |", file=out)
    if options.output:
        Path(options.output).write_text(out.getvalue())
    print(out.getvalue())


if __name__ == "__main__":
    main()
