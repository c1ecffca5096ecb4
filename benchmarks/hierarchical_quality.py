"""Quality of all hierarchical models on WikiQA and TREC-QA: the paper's tables 1 and 2, its t-test and its figure 4.

    python benchmarks/hierarchical_quality.py train --data wikiqa --vectors glove-6b-50d
    python benchmarks/hierarchical_quality.py train --data trecqa --vectors glove.840B.300d.txt --models "PRI(list)"
    python benchmarks/hierarchical_quality.py table --data wikiqa --plot curves.png

``train`` trains every model with every seed and appends each result to a file of JSON lines. It may be stopped at any
time, because it skips results that are in the file. The settings are the paper's (HR-8, HR-15, HR-17, HR-30). WikiQA is
in the paper's mode, ``no_all_minus`` (243 test questions); TREC-QA is clean. ``table`` prints the means over seeds
beside the paper's figures, the paired t-tests of PRI(list) against CA(list), the list loss by epoch, and which of the
expected relations between models hold. The paper's t-tests are against DCA, which has the same figures on WikiQA as its
CA(list) (HR-33).
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyterrier as pt

from pyterrier_cascade import HierarchicalArchitecture, HierarchicalRanker, HierarchicalTraining, Runs
from pyterrier_cascade.hierarchical.plots import curves
from pyterrier_cascade.hierarchical.schemes import ABLATIONS, MODELS
from pyterrier_cascade.runs import measured

NAMES = {f"{scheme}({level})": (scheme, level) for scheme, level in (*MODELS, *ABLATIONS)}
SETTINGS = ("vectors", "questions", "epochs", "precision", "k_max")
MODES = {"wikiqa": ["wikiqa/no_all_minus/"] * 3, "trecqa": ["trecqa/"] * 3}
# MAP and MRR on WikiQA, then on TREC-QA (HR-33, HR-34).
PUBLISHED = {
    "CA(point)": (0.721, 0.735, 0.809, 0.867),
    "CA(pair)": (0.725, 0.737, 0.832, 0.889),
    "CA(list)": (0.736, 0.749, 0.809, 0.863),
    "MTL(point)": (0.734, 0.747, 0.831, 0.885),
    "MTL(pair)": (0.734, 0.745, 0.837, 0.895),
    "MTL(list)": (0.739, 0.751, 0.835, 0.892),
    "RI(point)": (0.734, 0.747, 0.823, 0.880),
    "RI(pair)": (0.737, 0.749, 0.842, 0.904),
    "RI(list)": (0.740, 0.751, 0.835, 0.892),
    "PRI(point)": (0.732, 0.743, 0.825, 0.890),
    "PRI(list)": (0.742, 0.754, 0.841, 0.898),
    "PRI w/o point(list)": (0.735, 0.746, 0.829, 0.883),
    "PRI w/o pair(list)": (0.739, 0.752, 0.833, 0.881),
    "PRI all list(list)": (0.726, 0.737, 0.814, 0.859),
}


def splits(name: str) -> list[pd.DataFrame]:
    """Returns the candidates of the training, development and test questions."""
    folder = os.environ.get("PTC_DATA") or str(Path(os.environ.get("PTC_SHARED", "../shared")) / "data")
    parts = zip(MODES[name], ("train", "dev", "test"), strict=True)
    return [pt.get_dataset(f"as2:{mode}{split}", folder=folder).get_candidates() for mode, split in parts]


def training_of(options: argparse.Namespace, seed: int) -> HierarchicalTraining:
    """Returns the paper's settings for the data."""
    how = {"seed": seed, "epochs": options.epochs, "precision": options.precision}
    return HierarchicalTraining(**how) if options.data == "wikiqa" else HierarchicalTraining.for_trecqa(**how)


def train(options: argparse.Namespace) -> None:
    """Trains every model that has no result yet."""
    lists = [frame[frame["qid"].isin(frame["qid"].unique()[: options.questions])] for frame in splits(options.data)]
    # The paper filters by k-max on WikiQA without saying which k (HR-7).
    k_max = (10, 5) if options.data == "wikiqa" and not options.no_k_max else (None, None)
    architecture = HierarchicalArchitecture(k_max=k_max)
    for seed in options.seeds:
        for name in options.models:
            key = {one: getattr(options, one) for one in ("data", *SETTINGS[:-1])}
            key |= {"model": name, "seed": seed, "k_max": list(k_max)}
            if any(all(row[one] == value for one, value in key.items()) for row in rows_of(options.results)):
                continue
            training = training_of(options, seed)
            ranker = HierarchicalRanker(
                *NAMES[name], vectors=options.vectors, architecture=architecture, training=training
            )
            start = time.perf_counter()
            ranker.fit_candidates(*lists[:2])
            seconds = time.perf_counter() - start
            found = measured(ranker(lists[2].drop(columns="label")), lists[2])
            row = key | {
                "seconds": round(seconds, 1),
                "values": found.round(6).to_dict(),
                "history": ranker.history.round(6).to_dict("list"),
            }
            # A single write, so that a kill leaves no half line.
            with Path(options.results).open("ab", buffering=0) as file:
                file.write((json.dumps(row) + "\n").encode())
            means = ", ".join(f"{measure} {value:.4f}" for measure, value in found.mean().items())
            print(
                f"{options.data} {name} seed {seed}: {means}; {len(ranker.history)} epochs, {seconds:.0f} s", flush=True
            )


def rows_of(path: str) -> list[dict]:
    """Returns the results so far."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()] if Path(path).exists() else []


def settings_of(row: dict) -> str:
    """Returns how a model was trained, as text."""
    return ", ".join(f"{name} {row[name]}" for name in SETTINGS)


def runs_of(rows: Sequence[dict]) -> Runs:
    """Returns a model's results as runs."""
    tables = {row["seed"]: pd.DataFrame(row["values"]).rename_axis("qid") for row in rows}
    return Runs(pd.concat(tables, names=["seed"]), {row["seed"]: pd.DataFrame(row["history"]) for row in rows})


def table(options: argparse.Namespace) -> None:
    """Prints the results, separately for different settings of the trainings."""
    rows = [row for row in rows_of(options.results) if row["data"] == options.data]
    for settings in dict.fromkeys(settings_of(row) for row in rows):
        chosen = [row for row in rows if settings_of(row) == settings]
        names = [name for name in NAMES if any(row["model"] == name for row in chosen)]
        runs = {name: runs_of([row for row in chosen if row["model"] == name]) for name in names}
        print(f"## as2:{MODES[options.data][-1]}test, {settings}; mean (deviation) over seeds\n")
        overview(options.data, runs, chosen)
        significance(runs)
        relations(runs)
        course(runs, options.plot)


def overview(data: str, runs: dict[str, Runs], rows: list[dict]) -> None:
    """Prints the tables 1 and 2."""
    first = 0 if data == "wikiqa" else 2
    print("| | seeds | MAP | MRR | MAP, paper | MRR, paper | epochs | s |\n|---|---|---|---|---|---|---|---|")
    for name, made in runs.items():
        several = len(made.histories) > 1
        figures = [f"{row['mean']:.4f}" + several * f" ({row['deviation']:.4f})" for _, row in made.summary.iterrows()]
        paper = [f"{value:.3f}" for value in PUBLISHED[name][first : first + 2]]
        epochs = pd.Series([len(history) for history in made.histories.values()]).mean()
        seconds = pd.Series([row["seconds"] for row in rows if row["model"] == name]).mean()
        cells = [name, str(len(made.histories)), *figures, *paper, f"{epochs:.1f}", f"{seconds:.0f}"]
        print(f"| {' | '.join(cells)} |")
    print()


def significance(runs: dict[str, Runs]) -> None:
    """Prints the t-tests of PRI(list) against CA(list) (HR-32)."""
    ours, base = runs.get("PRI(list)"), runs.get("CA(list)")
    if ours is None or base is None or set(ours.histories) != set(base.histories):
        return
    print("PRI(list) against CA(list), paired t-tests:")
    for measure, row in ours.t_test(base).iterrows():
        over_runs = f", over runs {row['p_runs']:.3f}" if len(ours.histories) > 1 else ""
        over_questions = f"p over questions {row['p_questions']:.3f}"
        print(f"{measure} {row['mean']:.4f} against {row['other']:.4f}, {over_questions}{over_runs}.")
    print()


def relations(runs: dict[str, Runs]) -> None:
    """Prints which of the paper's relations between models hold here (HR-36)."""
    map_of = {name: made.means["AP"].mean() for name, made in runs.items()}
    expected = [
        *((f"{scheme}({level})", f"CA({level})") for scheme, level in MODELS if scheme != "CA"),
        ("PRI(list)", "RI(list)"),
        ("RI(list)", "MTL(list)"),
        *(("PRI(list)", f"{scheme}({level})") for scheme, level in ABLATIONS),
        *((f"{scheme}({level})", "PRI all list(list)") for scheme, level in MODELS),
    ]
    known = [(one, other) for one, other in dict.fromkeys(expected) if one in runs and other in runs]
    if not known:
        return
    print("| expected (MAP) | difference | p, questions | p, runs | holds |\n|---|---|---|---|---|")
    for one, other in known:
        difference = map_of[one] - map_of[other]
        p = ["", ""]
        if set(runs[one].histories) == set(runs[other].histories):
            p = runs[one].t_test(runs[other]).loc["AP", ["p_questions", "p_runs"]].map("{:.3f}".format)
        cells = [f"{one} >= {other}", f"{difference:+.4f}", *p, "yes" if difference >= 0 else "no"]
        print(f"| {' | '.join(cells)} |")
    print(f"\nBest: {max(map_of, key=map_of.get)}.\n")


def course(runs: dict[str, Runs], plot: str | None) -> None:
    """Prints the list loss by epoch, means over seeds (HR-35)."""
    names = [name for name in ("CA(list)", "PRI(list)") if name in runs]
    histories = {
        name: pd.concat(runs[name].histories.values()).groupby("epoch", as_index=False).mean() for name in names
    }
    if not histories:
        return
    losses = pd.DataFrame({name: history.set_index("epoch")["loss_list"] for name, history in histories.items()})
    print(f"List loss by epoch:\n\n```\n{losses.round(4).to_string()}\n```\n")
    if plot:
        curves(histories).figure.savefig(plot, dpi=120)


def main() -> None:
    """Runs the command that was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "table"])
    parser.add_argument("--data", choices=list(MODES), required=True)
    parser.add_argument("--results", default="hierarchical_quality.jsonl", help="file of JSON lines")
    parser.add_argument(
        "--vectors", default="glove-6b-50d", help="a name or a file of word vectors; 'none' learns them from scratch"
    )
    parser.add_argument("--models", nargs="+", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=50, help="at most; ten without progress end it earlier")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="the precision of training")
    parser.add_argument("--questions", type=int, help="how many questions of each split, to try it; all unless given")
    parser.add_argument("--no-k-max", action="store_true", help="attend to all words on WikiQA too")
    parser.add_argument("--plot", help="file for the curves of the list loss")
    options = parser.parse_args()
    if options.vectors == "none":
        options.vectors = None
    train(options) if options.what == "train" else table(options)


if __name__ == "__main__":
    main()
