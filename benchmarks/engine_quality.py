"""What the engines and their precisions do to the quality of a trained reranker.

    python benchmarks/monolithic_quality.py --data wikiqa --model ../shared/models/e5-small --seeds 0 --save trained
    python benchmarks/engine_quality.py --data wikiqa --model trained

int8 and mixed are calibrated on 320 development pairs. Prints a Markdown table: MAP and MRR on test, the difference
of MAP from torch in fp32, and the correlation with its scores and the largest difference from them. Of a cascade, that
is of ``benchmarks/cascade_quality.py train --save trained``, it prints MAP of each head and of cascades.
"""

import argparse
import os
from pathlib import Path

import ir_measures
import numpy as np
import pyterrier as pt
import transformers
from ir_measures import AP, RR

from pyterrier_cascade import Cascade, CrossEncoder
from pyterrier_cascade.cascade.model import CascadeConfig
from pyterrier_cascade.encoder.executors import ENGINES

ALPHAS = [0.3, 0.4, 0.5]
# "auto" stands for one of the others, and fp16 is for GPUs.
KINDS = [(engine, name) for engine, names in ENGINES.items() for name in names if name not in ("auto", "fp16")]


def cascades(ranker: Cascade, candidates, qrels, data: str) -> None:
    """Prints MAP of a cascade's heads and of its cascades in every engine and precision."""
    names = [*(f"head {layer}" for layer in ranker.head_layers), *(f"alpha {alpha}" for alpha in ALPHAS)]
    print(f"| MAP, {data} test | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    for engine, precision in KINDS:
        trace = ranker(engine=engine, precision=precision).trace(candidates)
        found = [trace.sweep(qrels, [AP], [0.0], plan=(layer,)).full["AP"] for layer in trace.layers]
        found += trace.sweep(qrels, [AP], ALPHAS).frame["AP"].tolist()
        print(f"| {engine} {precision} | {' | '.join(f'{value:.4f}' for value in found)} |", flush=True)


def main() -> None:
    """Scores with every engine and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["wikiqa", "trecqa"], required=True)
    parser.add_argument("--model", required=True, help="folder of a trained reranker or cascade")
    options = parser.parse_args()

    folder = os.environ.get("PTC_DATA") or str(Path(os.environ.get("PTC_SHARED", "../shared")) / "data")
    dev, test = (pt.get_dataset(f"as2:{options.data}/{split}", folder=folder) for split in ("dev", "test"))
    candidates, qrels = test.get_candidates().drop(columns="label"), pt.model.to_ir_measures(test.get_qrels())
    staged = transformers.PretrainedConfig.get_config_dict(options.model)[0]["model_type"] == CascadeConfig.model_type
    ranker = (Cascade if staged else CrossEncoder).from_pretrained(options.model)
    ranker.calibrate(dev.get_candidates())
    if staged:
        cascades(ranker, candidates, test.get_qrels(), options.data)
        return

    print(f"| {options.data} test | MAP | MRR | MAP - fp32 | correlation | largest difference |")
    print("|---|---|---|---|---|---|")
    exact = None
    for engine, precision in KINDS:
        results = ranker(engine=engine, precision=precision)(candidates)
        found = ir_measures.calc_aggregate([AP, RR], qrels, pt.model.to_ir_measures(results))
        scores = results.sort_values(["qid", "docno"])["score"].to_numpy()
        exact = (found[AP], scores) if exact is None else exact
        print(
            f"| {engine} {precision} | {found[AP]:.4f} | {found[RR]:.4f} | {found[AP] - exact[0]:+.4f} | "
            f"{np.corrcoef(scores, exact[1])[0, 1]:.5f} | {np.abs(scores - exact[1]).max():.2g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
