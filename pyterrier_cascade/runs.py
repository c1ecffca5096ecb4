"""The same training under several seeds, and whether two models differ by more than chance (HR-30, HR-32)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ir_measures
import numpy as np
import pandas as pd
from ir_measures import AP, RR

from pyterrier_cascade import frames
from pyterrier_cascade.hierarchical.ranker import HierarchicalRanker

MEASURES = (AP, RR)


@dataclass(frozen=True)
class Runs:
    """What a model was worth on each test question, for each seed.

    Attributes:
        values: Index ``seed`` and ``qid``, a column for each measure.
        histories: For each seed the course of the training, as :attr:`HierarchicalRanker.history`.
    """

    values: pd.DataFrame
    histories: dict[int, pd.DataFrame] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        ranker: HierarchicalRanker,
        train: pd.DataFrame,
        dev: pd.DataFrame | None,
        test: pd.DataFrame,
        measures: Sequence = MEASURES,
        seeds: Iterable[int] = range(5),
    ) -> "Runs":
        """Trains a ranker once for each seed, on weights of their own, and measures it; the ranker stays as it is.

        With a ``folder`` in its training each seed has a folder in it, and a call that was killed goes on.

        Args:
            ranker: What is trained, not trained yet; its ``training`` says how.
            train: Labelled candidates, as ``dataset.get_candidates()`` gives them.
            dev: The same of the development questions, or None.
            test: The same of the test questions; those without a positive are not measured (X-1).
            measures: Of ir-measures, or their names.
            seeds: Decide fresh weights and the order of the data.
        """
        seeds, values, histories = list(seeds), {}, {}
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds={seeds}; give at least one, and none twice")
        if ranker.model.loaded.untrained is None:
            raise ValueError(f"every seed would go on from the same weights: {ranker!r} is trained; give a fresh one")
        frames.validate(test, context=ranker, text_field=ranker.text_field)
        frames.check_labels(test, "test")
        measures = [ir_measures.parse_measure(one) if isinstance(one, str) else one for one in measures]
        for seed in seeds:
            folder = ranker.training.folder and str(Path(ranker.training.folder) / f"seed-{seed}")
            one = ranker.apart().with_training(seed=seed, folder=folder).fit_candidates(train, dev)
            values[seed] = measured(one(test.drop(columns="label")), test, measures)
            histories[seed] = one.history
        return cls(pd.concat(values, names=["seed"]), histories)

    @property
    def means(self) -> pd.DataFrame:
        """The mean of each measure over questions, a row for each seed."""
        return self.values.groupby(level="seed").mean()

    @property
    def summary(self) -> pd.DataFrame:
        """Mean and standard deviation over seeds, a row for each measure."""
        return pd.DataFrame({"mean": self.means.mean(), "deviation": self.means.std()})

    def t_test(self, other: "Runs") -> pd.DataFrame:
        """Returns paired t-tests of this model against another, a row for each measure (HR-32).

        The paper does not say what it pairs: ``p_questions`` pairs questions, each with its mean over seeds, and
        ``p_runs`` pairs the means of runs of one seed. A ``p`` is NaN where all differences are the same.

        Args:
            other: The other model, of the same seeds on the same questions.
        """
        from scipy.stats import ttest_rel

        for name in ("seed", "qid"):
            ours, theirs = (set(one.values.index.get_level_values(name)) for one in (self, other))
            if ours != theirs:
                differing = ", ".join(map(str, sorted(ours ^ theirs, key=str)[:5]))
                raise ValueError(f"a paired test needs the same {name}s in both, but only one has {differing}")
        rows = {}
        for measure in self.values.columns:
            # Both with questions and seeds in order.
            ours, theirs = (one.values[measure].unstack("seed") for one in (self, other))
            rows[measure] = {
                "mean": ours.to_numpy().mean(),
                "other": theirs.to_numpy().mean(),
                "p_questions": _p(ttest_rel, ours.mean(axis=1), theirs.mean(axis=1)),
                "p_runs": _p(ttest_rel, ours.mean(), theirs.mean()),
            }
        return pd.DataFrame(rows).T


def _p(test, ours: pd.Series, theirs: pd.Series) -> float:
    difference = (ours - theirs).to_numpy()
    if len(difference) < 2 or np.ptp(difference) < 1e-12:
        return float("nan")
    return float(test(ours.to_numpy(), theirs.to_numpy()).pvalue)


def measured(results: pd.DataFrame, judged: pd.DataFrame, measures: Sequence = MEASURES) -> pd.DataFrame:
    """Returns each question's measures: index ``qid``, a column for each measure; only questions with a positive."""
    found = ir_measures.iter_calc(measures, frames.judgements(judged), frames.scored(results))
    table = pd.DataFrame([(one.query_id, str(one.measure), one.value) for one in found], columns=["qid", "of", "value"])
    return table.pivot(index="qid", columns="of", values="value")[list(map(str, measures))].rename_axis(columns=None)
