"""Questions that any encoder learns to answer, and settings with which it learns quickly."""

import numpy as np
import pandas as pd
import torch

from pyterrier_cascade import Training

QUICK = Training(learning_rate=3e-3, epochs=4, tokens_per_batch=100, patience=4, precision="fp32")


def candidates(n_questions: int, seed: int) -> pd.DataFrame:
    """Questions whose one positive names the asked thing: learnable by any encoder."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(n_questions):
        asked = rng.choice(["ship", "town"])
        other = "town" if asked == "ship" else "ship"
        for place, thing in enumerate(rng.permutation([asked, other, other])):
            text = f"{rng.choice(['the', 'in'])} {thing} was {rng.choice(['founded', 'launched'])}"
            rows.append((f"{seed}-{number}", f"what {asked}", f"{number}-{place}", text, int(thing == asked)))
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "label"])


TRAIN, DEV = candidates(60, 1), candidates(20, 2)


def weights(ranker) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in ranker.model.loaded.module.state_dict().items()}


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=0)
