"""The time of a training step on a CPU, with torch's attention and with this package's own.

    python benchmarks/training_speed.py

A step is a forward and a backward pass of an encoder over 2,000 tokens, in texts of some length. The table shows
medians of interleaved rounds.
"""

import argparse
import contextlib
import os
import time
from pathlib import Path

import numpy as np
import torch
import transformers

from pyterrier_cascade.training.attention import fast_attention

SHARED = Path(os.environ.get("PTC_SHARED", "../shared"))
CPU = torch.device("cpu")


def step(model: transformers.PreTrainedModel, length: int, bf16: bool, ours: bool) -> float:
    """Returns the seconds of a step."""
    ids = torch.randint(1_000, model.config.vocab_size, (2_000 // length, length))
    mask = torch.ones_like(ids)
    mask[::2, length * 4 // 5 :] = 0
    start = time.perf_counter()
    with fast_attention(model, CPU) if ours else contextlib.nullcontext():
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
        states.float().pow(2).mean().backward()
    return time.perf_counter() - start


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(SHARED / "models" / "e5-small"))
    parser.add_argument("--lengths", type=int, nargs="+", default=[50, 125, 250, 500])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    model = transformers.AutoModel.from_pretrained(options.model, dtype=torch.float32).train()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {Path(options.model).name}\n")
    print("| tokens of a text | precision | s, torch's | s, ours | times as fast |\n|---|---|---|---|---|")
    for length in options.lengths:
        for bf16 in (True, False):
            rounds = [[step(model, length, bf16, ours) for ours in (False, True)] for _ in range(options.rounds + 1)]
            usual, ours = np.median(rounds[1:], axis=0)
            precision = "bf16" if bf16 else "fp32"
            print(f"| {length} | {precision} | {usual:.2f} | {ours:.2f} | {usual / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
