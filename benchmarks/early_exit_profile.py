"""Where the time of early exit goes on OpenVINO, and what other chunks would change.

    python benchmarks/early_exit_profile.py > benchmarks/results/early_exit_profile.md

The same candidates and random heads as in ``speed.py``. ``boundaries``: all heads, nobody dropped, beside the last head
alone: what stopping four times costs. ``dropping``: what is lost beyond that and the ideal when 30% are dropped at each
head. Within a run, the threads' time is that of the graphs, of reading and writing states between spans, and the rest.
"""

import argparse
import tempfile
import time
from contextlib import contextmanager

import numpy as np
import torch
from speed import cascade_heads, dropping, ideal, interleaved, quiet, random_model, random_texts, ratio, spread, table

from pyterrier_cascade.crossencoder.model import load
from pyterrier_cascade.encoder import wave_states
from pyterrier_cascade.encoder.engine import run
from pyterrier_cascade.encoder.executors import Executors
from pyterrier_cascade.encoder.pairs import tokenize

ALPHA = 0.3
CHUNKS = [(512, 0.08), (1_024, 0.04), (1_024, 0.08), (1_024, 0.15), (2_048, 0.08)]


@contextmanager
def timed(spent: dict[str, float]):
    """Counts the threads' time in graphs and in moving states."""
    import openvino

    def counting(name, function):
        def wrapped(*args, **kwargs):
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] = spent.get(name, 0.0) + time.perf_counter() - start

        return wrapped

    places = [(openvino.InferRequest, "infer", "graphs"), (wave_states.WaveStates, "read", "moving states"),
              (wave_states.WaveStates, "write", "moving states")]  # fmt: skip
    before = [getattr(owner, name) for owner, name, _ in places]
    for (owner, name, what), function in zip(places, before, strict=True):
        setattr(owner, name, counting(what, function))
    try:
        yield
    finally:
        for (owner, name, _), function in zip(places, before, strict=True):
            setattr(owner, name, function)


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=6)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precisions", nargs="+", default=["bf16", "int8"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, quiet():
        model = load(random_model(folder, 384))
    pairs = tokenize(model.tokenizer, *random_texts(options.queries, options.candidates, "sentence"))
    groups = np.arange(len(pairs.lengths)) // options.candidates
    heads = cascade_heads(model)
    layers, encoder = [head.layer for head in heads], model.module.base_model
    rule = dropping(ALPHA, groups)
    best = ideal(pairs.lengths, layers, rule)

    def everyone(head, rows, scores):
        return rows

    print("# Early exit on OpenVINO: where the time goes\n\n    python benchmarks/early_exit_profile.py\n")
    print(f"12 x 384, {options.queries} x {options.candidates} candidates, alpha={ALPHA}, ideal {best:.3f}; medians of")
    print(f"{options.rounds} interleaved rounds, {torch.get_num_threads()} threads.\n")
    rows, shares = [], []
    for precision in options.precisions:
        with quiet():
            staged, alone = (
                Executors(encoder, some).get("openvino", precision, "cpu", pairs) for some in (heads, heads[-1:])
            )
        default = staged.budget, staged.padding
        for budget, padding in dict.fromkeys([default, *CHUNKS]):
            for executor in (staged, alone):
                executor.budget, executor.padding = budget, padding
            times, _ = interleaved(
                {
                    "alone": lambda alone=alone: run(alone, pairs),
                    "everyone": lambda staged=staged: run(staged, pairs, groups, everyone),
                    "dropping": lambda staged=staged: run(staged, pairs, groups, rule),
                },
                options.rounds,
            )
            boundaries, dropped = ratio(times, "everyone", "alone"), ratio(times, "dropping", "alone")
            rows.append(
                [
                    precision,
                    f"{budget}{' (ours)' * ((budget, padding) == default)}",
                    f"{padding:.0%}",
                    f"{1000 * np.median(times['alone']):.0f}",
                    spread(boundaries, 3),
                    spread(dropped, 3),
                    f"{100 * (1 - dropped[0]) / (1 - best):.0f}",
                ]
            )
            if (budget, padding) == default:
                for name, keep in (("everyone", everyone), ("dropping", rule)):
                    spent, start = {}, time.perf_counter()
                    with timed(spent):
                        run(staged, pairs, groups, keep)
                    whole = (time.perf_counter() - start) * torch.get_num_threads()
                    parts = [spent["graphs"], spent["moving states"]]
                    shares.append(
                        [precision, name, *(f"{100 * part / whole:.0f}" for part in [*parts, whole - sum(parts)])]
                    )
    table(
        ["precision", "tokens of a chunk", "pads", "alone, ms", "boundaries", "dropping", "share of the saving, %"],
        rows,
    )
    print()
    table(["precision", "rule", "graphs, %", "moving states, %", "rest, %"], shares)


if __name__ == "__main__":
    main()
