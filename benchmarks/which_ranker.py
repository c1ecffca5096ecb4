"""Which ranker for me: all of them on the same questions, quality beside cost and time, as a table and as one plot.

    python benchmarks/which_ranker.py --folder which
    python benchmarks/which_ranker.py --folder which-quick --quick

``as2:facts``, BM25 over its corpus, the best 20 reranked by models that all start from one small encoder (the
hierarchical ones from nothing). Each trained model is kept in the folder, with the time that it took, so that a second
run only measures. All rank the same questions in one call; they take turns, the first round is dropped, and times are
medians over the others. Written are ``which_ranker.md`` beside the other results, and what the page "Which ranker for
me" shows, ``which.csv`` and ``which.png``; with ``--quick`` all of it into the folder, for its figures mean nothing.
"""

import argparse
import json
import platform
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median

import ir_measures
import matplotlib
import pandas as pd
import pyterrier as pt
import torch
from ir_measures import AP, P

from pyterrier_cascade import (
    BM25,
    DCBERT,
    Cascade,
    CascadeTraining,
    CrossEncoder,
    DCBertTraining,
    HierarchicalArchitecture,
    HierarchicalRanker,
    HierarchicalTraining,
    RelativeCost,
    SequentialReranker,
    Training,
)
from pyterrier_cascade.demo import small_encoder

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.transforms import Bbox

PROJECT = Path(__file__).parents[1]
RESULTS, PAGES = PROJECT / "benchmarks" / "results", PROJECT / "pyterrier_cascade" / "pt_docs"
MEASURES = [AP, P @ 1, RelativeCost]
ALPHAS = (0.3, 0.4, 0.5)
SEQUENTIAL_ALPHAS = (0.3, 0.5)
SECONDS = "seconds.json"
# Settings of the labs in examples/, with which a small encoder learns these questions in two or three minutes.
PAIRS = {"learning_rate": 7e-5, "head_learning_rate": 5e-4, "tokens_per_batch": 700, "negatives": 4}
SMALL = HierarchicalArchitecture(embedding_width=64, width=64, channels=32, hidden=64)
LOOKS = {
    "BM25": ("#444444", "s"),
    "CrossEncoder": ("#2b6ca3", "o"),
    "Cascade": ("#d1782a", "D"),
    "SequentialReranker": ("#8a6d3b", "^"),
    "DCBERT": ("#3d8a5f", "v"),
    "HierarchicalRanker": ("#7a4fa3", "P"),
}
"""Colour and mark of each class; marks differ so that the plot can be read without colours."""
NUMBERED = dict.fromkeys(("Cascade", "SequentialReranker"), ", alpha")


class Kept:
    """Trained models in a folder, each with the seconds that its training took.

    Args:
        folder: Where they are kept.
        lists: Labelled candidates to train on, and of the development questions.
    """

    def __init__(self, folder: Path, lists: list[pd.DataFrame]):
        self.folder, self.lists = folder, lists
        self.seconds: dict[str, float] = {}

    def trained(self, name: str, fresh, load: Callable):
        """Returns a ranker with the weights of a fresh one after its training.

        Args:
            name: Of its folder.
            fresh: The ranker, not trained.
            load: Makes a ranker of a folder.
        """
        path = self.folder / name
        if not (path / SECONDS).is_file():
            print(f"training {name} ...", flush=True)
            start = time.perf_counter()
            fresh.fit_candidates(*self.lists)
            seconds = time.perf_counter() - start
            fresh.save_pretrained(str(path))
            (path / SECONDS).write_text(json.dumps(seconds))
        self.seconds[name] = json.loads((path / SECONDS).read_text())
        return load(str(path))


def few(candidates: pd.DataFrame, n_questions: int | None) -> pd.DataFrame:
    """Returns the candidates of the first questions."""
    return candidates[candidates["qid"].isin(candidates["qid"].unique()[:n_questions])]


def contenders(options: argparse.Namespace, kept: Kept, corpus: list[dict]) -> list[tuple]:
    """Returns name, class, ranker and training time of all that are compared; no ranker for BM25 alone."""
    encoder, quick = small_encoder(options.model), options.quick
    epochs = 1 if quick else 3
    how = {"precision": options.precision}
    cascade = Cascade.from_pretrained(encoder, training=CascadeTraining(epochs=epochs, **PAIRS))
    cascade = kept.trained("cascade", cascade, Cascade.from_pretrained)(**how)
    heads = cascade.head_layers
    alone, training = {}, Training(epochs=epochs, **PAIRS)
    for n in heads:
        fresh = CrossEncoder.from_pretrained(encoder, layers=n, training=training)
        alone[n] = kept.trained(f"sequential/layers-{n:02d}", fresh, CrossEncoder.from_pretrained)(**how)
    whole = heads[-1]
    half = min(heads, key=lambda n: abs(n - whole / 2))
    sequential = SequentialReranker(list(alone.values()))
    of_alone = {n: kept.seconds[f"sequential/layers-{n:02d}"] for n in heads}
    dcbert = DCBERT.from_pretrained(
        encoder, training=DCBertTraining(frozen_epochs=1 if quick else 5, epochs=0, negatives=10)
    )
    dcbert = kept.trained("dcbert", dcbert, DCBERT.from_pretrained)
    cache = dcbert.encode(corpus, kept.folder / "dcbert.dc")
    hierarchical = {}
    for scheme in ("CA", "PRI"):
        training = HierarchicalTraining(learning_rate=3e-3, questions_per_batch=15, epochs=1 if quick else 6)
        fresh = HierarchicalRanker(scheme, "list", architecture=SMALL, training=training)
        hierarchical[scheme] = kept.trained(f"hierarchical-{scheme}", fresh, HierarchicalRanker.from_pretrained)
    found = [
        ("BM25", "BM25", None, 0.0),
        (f"CrossEncoder, {whole} layers", "CrossEncoder", alone[whole], of_alone[whole]),
        (f"CrossEncoder, {half} layers", "CrossEncoder", alone[half], of_alone[half]),
    ]
    found += [
        (f"Cascade, alpha={alpha}", "Cascade", cascade(alpha=alpha), kept.seconds["cascade"]) for alpha in (0, *ALPHAS)
    ]
    found += [
        (f"SequentialReranker, alpha={alpha}", "SequentialReranker", sequential(alpha=alpha), sum(of_alone.values()))
        for alpha in SEQUENTIAL_ALPHAS
    ]
    found += [
        ("DCBERT from a cache, late", "DCBERT", cache.reranker(interaction="late"), 0.0),
        ("DCBERT from a cache, K=1", "DCBERT", cache.reranker(), kept.seconds["dcbert"]),
    ]
    return found + [
        (f"HierarchicalRanker, {scheme}(list)", "HierarchicalRanker", ranker, kept.seconds[f"hierarchical-{scheme}"])
        for scheme, ranker in hierarchical.items()
    ]


def measured(found: list[tuple], bm25: BM25, topics: pd.DataFrame, qrels: pd.DataFrame, rounds: int) -> pd.DataFrame:
    """Returns a row for each contender: its class, measures, milliseconds a query and minutes of training."""
    times: list[list[float]] = [[] for _ in found]
    rows = []
    for number, (place, (name, kind, ranker, seconds)) in product(range(rounds + 1), enumerate(found)):
        pipeline = bm25 if ranker is None else bm25 >> ranker
        start = time.perf_counter()
        results = pipeline(topics)
        times[place].append(1000 * (time.perf_counter() - start) / len(topics))
        if number == 0:
            values = ir_measures.calc_aggregate(
                MEASURES, pt.model.to_ir_measures(qrels), pt.model.to_ir_measures(results)
            )
            if kind == "HierarchicalRanker":
                # Relative to a model of its own, and not to the encoder of all others.
                values[RelativeCost] = float("nan")
            row = {"ranker": name, "class": kind, "minutes": seconds / 60}
            rows.append(row | {str(measure): values[measure] for measure in MEASURES})
    return pd.DataFrame(rows).assign(ms=[median(one[1:]) for one in times])


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the table as it is printed."""
    digits = {"AP": "{:.3f}", "P@1": "{:.3f}", "RelativeCost": "{:.3f}", "ms": "{:.2f}", "minutes": "{:.1f}"}
    formatted = {
        name: ["unknown" if pd.isna(value) else form.format(value) for value in table[name]]
        for name, form in digits.items()
    }
    names = {"RelativeCost": "cost", "ms": "ms a query", "minutes": "training, minutes"}
    return table[["ranker"]].assign(**formatted).rename(columns=names)


def markdown(frame: pd.DataFrame) -> str:
    """Returns a frame as a table."""
    lines = [frame.columns, ["---"] * len(frame.columns), *frame.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def plot(table: pd.DataFrame, title: str, path: Path) -> None:
    """Draws quality against time, cost as the size of the mark; hollow where it is of another model."""
    figure, ax = plt.subplots(figsize=(7.6, 5.4), layout="constrained")
    for kind, rows in table.groupby("class", sort=False):
        colour, mark = LOOKS[kind]
        if kind in ("Cascade", "SequentialReranker"):
            ax.plot(rows["ms"], rows["AP"], color=colour, linewidth=1, zorder=1)
        counted = rows["RelativeCost"].notna()
        ax.scatter(
            rows["ms"], rows["AP"], s=area(rows["RelativeCost"]), marker=mark, edgecolors=colour,
            facecolors=[colour if one else "white" for one in counted], linewidths=1.2, alpha=0.85, zorder=2,
        )  # fmt: skip
    ax.set_xscale("log")
    ax.margins(x=0.14, y=0.08)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("milliseconds a query")
    ax.set_ylabel("AP")
    ax.grid(color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    ax.set_title(title, fontsize=8, loc="left")
    kinds = [
        ax.scatter([], [], s=45, marker=LOOKS[kind][1], color=LOOKS[kind][0], label=kind + NUMBERED.get(kind, ""))
        for kind in table["class"].unique()
    ]
    costs = [
        ax.scatter([], [], s=area(cost), marker="o", color="#999999", label=f"{cost:g}") for cost in (0, 0.5, 1, 1.5)
    ]
    how = {"fontsize": 8, "title_fontsize": 8, "frameon": False}
    figure.legend(
        handles=kinds, loc="outside lower center", ncols=len(kinds), columnspacing=1, handletextpad=0.2, **how
    )
    figure.legend(handles=costs, loc="outside upper right", ncols=len(costs), title="relative cost", **how)
    label(ax, table)
    figure.savefig(path, dpi=160)


def area(cost):
    """Returns the area of a mark in square points; that of a third where there is no cost."""
    return 16 + 110 * pd.Series(cost).fillna(1 / 3).to_numpy()


def label(ax, table: pd.DataFrame) -> None:
    """Writes what each mark is beside it, where it covers the least of marks and of labels that stand already."""
    ax.figure.draw_without_rendering()
    pixels = ax.figure.dpi / 72
    points = ax.transData.transform(table[["ms", "AP"]].to_numpy())
    radii = pixels * area(table["RelativeCost"]) ** 0.5 / 2
    taken = [Bbox.from_extents(x - r, y - r, x + r, y + r) for (x, y), r in zip(points, radii, strict=True)]
    for (_, row), radius in zip(table.iterrows(), radii / pixels, strict=True):
        text = row["ranker"].removeprefix(row["class"]).removeprefix(" from a cache").lstrip(", ") or row["class"]
        text = text.removeprefix("alpha=")
        side, above = radius + 3, radius + 2
        tried = []
        for right, up, align in (
            (side, -3, "left"), (-side, -3, "right"), (0, above, "center"), (0, -above - 7, "center"),
            (side, above - 2, "left"), (side, -above - 3, "left"), (-side, above - 2, "right"),
            (-side, -above - 3, "right"), (0, above + 9, "center"), (0, -above - 17, "center"),
        ):  # fmt: skip
            note = ax.annotate(
                text, (row["ms"], row["AP"]), (right, up), textcoords="offset points", ha=align, fontsize=7.5
            )
            box = note.get_window_extent()
            outside = box.width * box.height - overlap(box, ax.bbox)
            tried.append((sum(overlap(box, other) for other in taken) + 100 * outside, len(tried), note, box))
        *_, best, box = min(tried)
        taken.append(box)
        for *_, note, _ in tried:
            if note is not best:
                note.remove()


def overlap(one, other) -> float:
    """Returns the area that two boxes share."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(width, 0) * max(height, 0)


def main() -> None:
    """Trains what is not there, measures, and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("which"), help="where trained models are kept")
    parser.add_argument("--model", help="an encoder; by default the all-MiniLM-L6-v2 that the extra [demo] brings")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="in which encoders score")
    parser.add_argument("--depth", type=int, default=20, help="candidates of a query")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few questions, to see it run")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    train, dev, test = (pt.get_dataset(f"as2:facts/{split}") for split in ("train", "dev", "test"))
    sizes = (40, 10) if options.quick else (None, 50)
    lists = [few(data.get_candidates(), n) for data, n in zip((train, dev), sizes, strict=True)]
    corpus = list(test.get_corpus_iter(verbose=False))
    topics = test.get_topics().head(20 if options.quick else None)
    qrels = test.get_qrels()[lambda rows: rows["qid"].isin(topics["qid"])]
    bm25 = BM25.from_docs(corpus) % options.depth
    with warnings.catch_warnings():
        # DC-BERT says that few questions taught it little, which is meant.
        warnings.filterwarnings("ignore" if options.quick else "default", category=UserWarning)
        found = contenders(options, Kept(options.folder, lists), corpus)
        table = measured(found, bm25, topics, qrels, options.rounds)
    title = (
        f"as2:facts, {len(topics)} test questions, the best {options.depth} of BM25, {options.precision}, "
        f"threads: {torch.get_num_threads()}"
    )
    if options.quick:
        title = f"TRIAL, the figures mean nothing; {title}"
    command = shlex.join(["python", "benchmarks/which_ranker.py", *sys.argv[1:]])
    lines = [
        "# Which ranker for me", f"    {command}",
        f"{title}; medians of {options.rounds} interleaved rounds. Python {platform.python_version()}, "
        f"{platform.machine()}, torch {torch.__version__}.", markdown(shown(table)),
    ]  # fmt: skip
    results, pages = (options.folder, options.folder) if options.quick else (RESULTS, PAGES)
    (results / "which_ranker.md").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    shown(table).to_csv(pages / "which.csv", index=False)
    plot(table, title, pages / "which.png")
    print("\n" + shown(table).to_string(index=False))


if __name__ == "__main__":
    main()
