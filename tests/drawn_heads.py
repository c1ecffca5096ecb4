"""A ranker with early exit whose scores are random, for tests of costs and explanations without a model."""

import numpy as np

from pyterrier_cascade.early_exit.policy import Policy
from pyterrier_cascade.early_exit.pruning import scores_in_turn
from pyterrier_cascade.early_exit.ranker import EarlyExitRanker, HeadScores


class DrawnHeads(EarlyExitRanker):
    """Heads of an encoder of 12 layers whose scores are drawn at random."""

    text_field, head_layers, full_layers, weights = "text", (4, 6, 8, 10, 12), 12, "none"
    computed_precision = "fp32"

    def __init__(self, reuses_encodings=True, **policy):
        self.reuses_encodings, self.policy = reuses_encodings, Policy(**policy)

    def fingerprint(self):
        return ""

    def head_scores(self, frame, blocks, plan, prune=True, handover=None):
        rng = np.random.default_rng(0)
        scores = scores_in_turn(plan, blocks.codes, lambda number, alive: rng.random(len(alive)), prune)
        return HeadScores(np.arange(len(frame)), scores, np.ones(len(frame)))
