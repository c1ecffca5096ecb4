"""Whether probabilities mean the same at every exit layer: the picture and the table of the docs.

    python benchmarks/reliability.py
    python benchmarks/reliability.py --model trained --data wikiqa

By default a cascade is trained on questions of ``as2:facts``, its curves are fitted on the development questions, and
its probabilities are checked on the test questions, with BM25's best 20 as candidates. With ``--model`` it is a trained
cascade, and the candidates are those of the data set. ``sigmoid of the score`` is what the heads say of themselves.
Writes the picture of the docs, ``reliability.png``, and prints the expected calibration error of each exit layer.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path

import matplotlib
import pandas as pd
import pyterrier as pt

from pyterrier_cascade import BM25, Cascade, CascadeTraining, reliability
from pyterrier_cascade.demo import small_encoder

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PICTURE = Path(__file__).parents[1] / "pyterrier_cascade" / "pt_docs" / "reliability.png"
TITLES = {"score": "sigmoid of the score", "labels": "fitted to labels", "last head": "fitted to the last head"}


def candidates_of(name: str, split: str, depth: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the candidates of a split and their judgements."""
    if name != "facts":
        folder = os.environ.get("PTC_DATA") or str(Path(os.environ.get("PTC_SHARED", "../shared")) / "data")
        data = pt.get_dataset(f"as2:{name}/{split}", folder=folder)
        return data.get_candidates().drop(columns="label"), data.get_qrels()
    data = pt.get_dataset(f"as2:facts/{split}")
    bm25 = BM25.from_docs(data.get_corpus_iter(verbose=False)) % depth
    return bm25(data.get_topics()), data.get_qrels()


def trained(n_questions: int) -> Cascade:
    """Returns a cascade that was trained on some questions."""
    lists = pt.get_dataset("as2:facts/train").get_candidates()
    few = lists[lists["qid"].isin(lists["qid"].unique()[:n_questions])]
    training = CascadeTraining(epochs=1, learning_rate=7e-5, head_learning_rate=5e-4, tokens_per_batch=700, negatives=4)
    return Cascade.from_pretrained(small_encoder(), training=training).fit_candidates(few)


def main() -> None:
    """Draws and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="the folder of a trained cascade; one is trained unless given")
    parser.add_argument("--data", default="facts")
    parser.add_argument("--questions", type=int, default=400, help="training questions, if one is trained")
    parser.add_argument("--depth", type=int, default=20, help="candidates of a query of as2:facts")
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--bins", type=int, default=10)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args()
    cascade = trained(options.questions) if options.model is None else Cascade.from_pretrained(options.model)
    (dev, dev_qrels), (test, qrels) = (candidates_of(options.data, split, options.depth) for split in ("dev", "test"))
    trace, ranker = cascade.trace(dev), cascade(alpha=options.alpha, probability=True)
    identity = {str(layer): [1.0, 0.0] for layer in cascade.head_layers}
    found = {}
    cascade.model.note(probability=identity)
    found["score"] = ranker(test)
    cascade.fit_probability(trace)
    found["last head"] = ranker(test)
    cascade.fit_probability(trace, dev_qrels)
    found["labels"] = ranker(test)

    print(f"# Probabilities\n\n    {shlex.join(['python', 'benchmarks/reliability.py', *sys.argv[1:]])}\n")
    print(
        f"{options.data}, alpha={options.alpha}: curves from {len(trace)} development candidates; expected calibration"
    )
    print(f"error over {options.bins} bins, on {len(test)} test candidates, by the layer where they left.\n")
    layers = cascade.head_layers
    print(f"| | all | {' | '.join(f'layer {layer}' for layer in layers)} |\n|{'---|' * (len(layers) + 2)}")
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 4.3), layout="constrained")
    for name, results in found.items():
        parts = {layer: results[results["exit_layer"] == layer] for layer in layers}
        errors = [reliability(part, qrels, options.bins) for part in (results, *parts.values())]
        print(f"| {TITLES[name]} | {' | '.join(f'{one.error:.3f}' for one in errors)} |")
        if name != "last head":
            ax = axes[0 if name == "score" else 1]
            for layer, one in zip(layers, errors[1:], strict=True):
                one.plot(f"layer {layer}", ax)
            ax.set_title(f"{TITLES[name]}, error {errors[0].error:.3f}", fontsize=9)
    figure.savefig(options.picture, dpi=130)


if __name__ == "__main__":
    main()
